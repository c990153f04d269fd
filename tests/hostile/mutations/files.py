# SPDX-License-Identifier: Apache-2.0
"""Damage to names and kinds of files: deleted, moved, duplicated, replaced."""

from __future__ import annotations

import os
import random
import shutil
import socket
from pathlib import Path

from tests.hostile.mutations.places import (
    any_entry,
    any_file,
    files_below,
    outside_of,
    remove,
    short,
)

_SPARSE_BYTES = 200 << 30
_MOST_NAME_BYTES = 255

_ODD_NAMES = (
    b"garbage", b"-1", b"9" * 25, b"00000000000000000001", b"\xff\xfe", b"a\nb", b"\x1b[31m",
    "\u202e.json".encode(), b"=1+1", b"99999999999999999999", b"09223372036854775807",
    b"%RETRY%", "\u0663".encode() * 20, b" ", b"1.tmp", b"x" * 255, "\u00b2".encode(),
)  # fmt: skip


def swap(chance: random.Random, root: Path) -> str:
    one = any_file(chance, root)
    if one is None:
        return ""
    others = files_below(root, str(one.relative_to(root).parts[0])) or files_below(root)
    other = chance.choice(others if chance.random() < 0.8 else files_below(root))
    kept = root / "kept.tmp"
    one.rename(kept)
    if other != one:
        other.rename(one)
    kept.rename(other)
    return f"{short(root, one)} and {short(root, other)}"


def duplicate(chance: random.Random, root: Path) -> str:
    path = any_file(chance, root)
    if path is None or path.stat().st_size > 50 << 20:
        return ""
    if path.name.isdecimal() and chance.random() < 0.7:
        step = chance.choice([path.stat().st_size, 1, 4096, 10**15])
        name = f"{int(path.name) + step:0{len(path.name)}d}"
    else:
        name = chance.choice(["copy", f"{path.name}.bak", f"{path.name}~", f".{path.name}.tmp"])
    target = path.with_name(name)
    if len(os.fsencode(name)) > _MOST_NAME_BYTES or os.path.lexists(target):
        return ""
    shutil.copy2(path, target)
    return f"{short(root, path)} as {target.name}"


def rename(chance: random.Random, root: Path) -> str:
    path = any_entry(chance, root)
    if path is None:
        return ""
    name = chance.choice(_ODD_NAMES)
    target = os.path.join(os.fsencode(path.parent), name)
    if os.path.lexists(target):
        return ""
    os.rename(path, target)
    return f"{short(root, path)} to {name!r}"


def odd_directory(chance: random.Random, root: Path) -> str:
    """Add a topic, queue or file that does not belong there."""
    place = chance.choice(["", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index"])
    place = chance.choice([place, "commitlog", "config", "_staging", "consumequeue/TopicA"])
    parent = root / place
    if any(os.path.lexists(p) and not p.is_dir() for p in (parent, parent.parent)):
        return ""
    parent.mkdir(parents=True, exist_ok=True)
    target = os.path.join(os.fsencode(parent), chance.choice(_ODD_NAMES))
    if os.path.lexists(target):
        return ""
    if chance.random() < 0.5:
        os.makedirs(os.path.join(target, chance.choice([b"0", b"-1", b"99999999999", b"x"])))
    else:
        Path(os.fsdecode(target)).write_bytes(chance.choice([b"", b"x", bytes(1000)]))
    return ascii(os.fsdecode(os.path.relpath(target, os.fsencode(root))))


def delete(chance: random.Random, root: Path) -> str:
    path = any_entry(chance, root) if chance.random() < 0.5 else any_file(chance, root)
    if path is None:
        return ""
    remove(path)
    return short(root, path)


_KINDS = (
    "empty", "directory", "fifo", "link to itself", "dangling link", "link outside", "link inside",
    "socket", "sparse", "file", "link to directory", "device",
)  # fmt: skip


def replace(chance: random.Random, root: Path) -> str:
    path = any_entry(chance, root) if chance.random() < 0.4 else any_file(chance, root)
    if path is None:
        return ""
    kind, files = chance.choice(_KINDS), files_below(root)
    text = f"{short(root, path)} by {kind}"
    remove(path)
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "file":
        path.write_bytes(chance.randbytes(100))
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        _socket(path)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, chance.choice([_SPARSE_BYTES, 2**40, 2**31, 2**31 - 1]))
    elif kind == "device":
        path.symlink_to(chance.choice(["/dev/zero", "/dev/null", "/dev/full", "/dev/tty"]))
    else:
        outside = outside_of(root)
        targets = {
            "link to itself": path.name,
            "dangling link": "nowhere",
            "link outside": outside / "file",
            "link to directory": outside,
            "link inside": chance.choice(files) if files else "nowhere",
        }
        path.symlink_to(targets[kind])
    return text


def _socket(path: Path) -> None:
    kept = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:100])
    finally:
        os.chdir(kept)


def times(chance: random.Random, root: Path) -> str:
    path = any_file(chance, root)
    if path is None:
        return ""
    seconds = chance.choice([0, -1, 1, 2**31, 2**33, 1e9])
    os.utime(path, (seconds, seconds))
    return f"{short(root, path)}: {seconds}"


def abort(chance: random.Random, root: Path) -> str:
    path = root / "abort"
    if os.path.lexists(path):
        remove(path)
        return "removed"
    path.write_bytes(chance.choice([b"", b"1", b"99999999999999999999", b"\xff\xfe", b"-1"]))
    return "made"
