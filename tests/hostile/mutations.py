"""Damage of every kind to the files of a store, drawn from a generator of random numbers.

Each mutation takes the generator and the store root, does something to it if it can, and returns
what it did in a few words; an empty text where it found nothing to do it to.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from store_core.layout.checkpoint import CHECKPOINT
from store_core.layout.consume_queue import CQ_UNIT
from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER
from store_core.layout.message import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, header_layout
from store_core.layout.record_layout import RecordLayout

Mutation = Callable[[random.Random, Path], str]

_SPARSE_BYTES = 200 << 30
_NESTED = 100_000
_ODD_NAMES = (
    b"garbage", b"-1", b"9" * 25, b"00000000000000000001", b"\xff\xfe", b"a\nb", b"\x1b[31m",
    "\u202e.json".encode(), b"=1+1", b"99999999999999999999", b"09223372036854775807",
    b"%RETRY%", "\u0663".encode() * 20, b" ", b"1.tmp", b"x" * 255, "\u00b2".encode(),
)  # fmt: skip
_ODD_JSON = (
    b"", b"{", b"[]", b"null", b"1", b'""', b"{}", b"\xff\xfe{", b"\xef\xbb\xbf{}", b"NaN",
    b"[" * _NESTED, b'{"a":' * _NESTED, b"1" * 5000, b'{"a": 1e999}', b'{"a": "\\ud800"}',
    b'{"a": 1, "a": 2}', b"{}{}", b"\0\0\0\0",
)  # fmt: skip
_ODD_VALUES = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 1.5, float("inf"), float("nan"), "", "x", "\0",
    "\ud800", [], {}, [[]], {"a": []}, "9" * 5000, "1" * 400, "-1", "\u202e", "../../x", 10**30,
)  # fmt: skip


def mutate(chance: random.Random, root: Path, count: int) -> list[str]:
    """Do some mutations; return what was done."""
    done: list[str] = []
    for _ in range(20 * count):
        name = chance.choices(_NAMES, _WEIGHTS)[0]
        text = MUTATIONS[name][1](chance, root)
        if text:
            done.append(f"{name}: {text}")
        if len(done) == count:
            break
    return done


# What to do it to.


def _files(root: Path, part: str = "") -> list[Path]:
    """Return the regular files below the root, or below a directory there."""
    top = root / part
    found = []
    for place, directories, names in os.walk(top):
        directories.sort()
        found += [Path(place, name) for name in sorted(names)]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _file(chance: random.Random, root: Path, least: int = 0) -> Path | None:
    """Return a file: each directory of the root is as likely as the others."""
    kinds: dict[str, list[Path]] = {}
    for path in _files(root):
        if path.stat().st_size >= least:
            kinds.setdefault(path.relative_to(root).parts[0], []).append(path)
    return chance.choice(kinds[chance.choice(sorted(kinds))]) if kinds else None


def _entry(chance: random.Random, root: Path) -> Path | None:
    """Return a file or a directory below the root."""
    entries = [path for path in sorted(root.rglob("*"))]
    top = [path for path in entries if path.parent == root]
    if not entries:
        return None
    return chance.choice(top if top and chance.random() < 0.3 else entries)


def _position(chance: random.Random, path: Path) -> int:
    """Return a position, more likely at the beginning or where data is than in a hole."""
    size = path.stat().st_size
    if size <= 0:
        return 0
    way = chance.random()
    if way < 0.25:
        return chance.randrange(min(size, 64))
    if way < 0.85:
        return chance.randrange(_data_end(path, size))
    return chance.randrange(size)


def _data_end(path: Path, size: int) -> int:
    """Return where the trailing zeros begin, roughly, at least 1."""
    with path.open("rb") as file:
        at = size
        while at > 0:
            step = min(at, 1 << 16)
            try:
                if os.lseek(file.fileno(), at - step, os.SEEK_DATA) >= at:
                    at -= step
                    continue
            except OSError:  # only a hole follows
                at -= step
                continue
            data = os.pread(file.fileno(), step, at - step).rstrip(b"\0")
            if data:
                return at - step + len(data)
            at -= step
    return 1


def _overwrite(path: Path, at: int, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def _short(root: Path, path: Path) -> str:
    return ascii(str(path.relative_to(root)))


# Bytes.


def _flip(chance: random.Random, root: Path) -> str:
    path = _file(chance, root, 1)
    if path is None:
        return ""
    at = _position(chance, path)
    with path.open("rb") as file:
        byte = os.pread(file.fileno(), 1, at) or b"\0"
    bit = 1 << chance.randrange(8)
    _overwrite(path, at, bytes([byte[0] ^ bit]))
    return f"{_short(root, path)} at {at}: bit {bit:#x}"


def _random_bytes(chance: random.Random, root: Path) -> str:
    path = _file(chance, root, 1)
    if path is None:
        return ""
    at, length = _position(chance, path), chance.choice([1, 2, 4, 8, 20, 100, 512, 4096])
    length = min(length, path.stat().st_size - at)
    kind = chance.choice(["zeros", "ones", "garbage"])
    data = {"zeros": bytes(length), "ones": b"\xff" * length}.get(kind)
    _overwrite(path, at, chance.randbytes(length) if data is None else data)
    return f"{_short(root, path)} at {at}: {length} {kind}"


def _shift(chance: random.Random, root: Path) -> str:
    """Insert or drop some bytes; the length stays."""
    path = _file(chance, root, 64)
    if path is None or path.stat().st_size > 4 << 20:
        return ""
    data, count = path.read_bytes(), chance.choice([1, 4, 8, 20, 40])
    at = _position(chance, path)
    if chance.random() < 0.5:
        path.write_bytes((data[:at] + bytes(count) + data[at:])[: len(data)])
        return f"{_short(root, path)} at {at}: {count} bytes put in"
    path.write_bytes((data[:at] + data[at + count :]).ljust(len(data), b"\0"))
    return f"{_short(root, path)} at {at}: {count} bytes taken out"


def _length(chance: random.Random, root: Path) -> str:
    path = _file(chance, root)
    if path is None:
        return ""
    size = path.stat().st_size
    way = chance.randrange(5)
    if way == 0:
        new = chance.randrange(size + 1)
    elif way == 1:
        new = max(size - chance.choice([1, 4, 10, 20, 4096]), 0)
    elif way == 2:
        new = size + chance.choice([1, 4, 10, 20, 4096])
    elif way == 3:
        new = 2 * size
    else:
        with path.open("ab") as file:
            file.write(chance.randbytes(chance.choice([1, 20, 5000])))
        return f"{_short(root, path)}: garbage behind its end"
    os.truncate(path, new)
    return f"{_short(root, path)}: {new} bytes long, not {size}"


def _torn_tail(chance: random.Random, root: Path) -> str:
    """Zeros from a position of the log on, as after a loss of power."""
    path = _file_of(chance, root, "commitlog")
    if path is None:
        return ""
    at, size = _position(chance, path), path.stat().st_size
    os.truncate(path, at)
    os.truncate(path, size)
    return f"{_short(root, path)}: zeros from {at} on"


# Structures.


def _file_of(chance: random.Random, root: Path, part: str) -> Path | None:
    found = [path for path in _files(root, part) if path.stat().st_size]
    return chance.choice(found) if found else None


def _odd_number(chance: random.Random, code: str, old: int) -> int:
    bits = 8 * int(code[1:])
    low, high = (0, 2**bits - 1) if code[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    value = chance.choice(
        [
            0,
            1,
            -1,
            low,
            high,
            old + 1,
            old - 1,
            -old,
            old ^ 1 << chance.randrange(bits - 1),
            2 * old,
            chance.randint(low, high),
            chance.randrange(1 << 20),
            old + chance.randint(-2000, 2000),
        ]
    )
    return min(max(value, low), high)


def _change_field(chance: random.Random, path: Path, layout: RecordLayout, at: int) -> str:
    with path.open("rb") as file:
        data = os.pread(file.fileno(), layout.size, at)
    if len(data) < layout.size:
        return ""
    names = [n for n in layout.dtype.names or () if layout.dtype.fields[n][0].kind in "iu"]  # type: ignore[index]
    name = chance.choice(names)
    kind = layout.dtype.fields[name][0]  # type: ignore[index]
    code = f"{kind.kind}{kind.itemsize}"
    old = getattr(layout.unpack(data), name)
    new = _odd_number(chance, code, old)
    _overwrite(
        path, at + layout.at(name), new.to_bytes(kind.itemsize, "big", signed=kind.kind == "i")
    )
    return f"{name} {old} -> {new}"


def _record_starts(path: Path) -> list[int]:
    starts, at = [], 0
    with path.open("rb") as file:
        data = file.read(2 << 20)
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">ii", data, at)
        if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) or size < 50:
            break
        starts.append(at)
        at += size
    return starts


def _record_field(chance: random.Random, root: Path) -> str:
    path = _file_of(chance, root, "commitlog")
    starts = _record_starts(path) if path is not None else []
    if path is None or not starts:
        return ""
    at = chance.choice([*starts[:1], *starts[-1:], chance.choice(starts)])
    with path.open("rb") as file:
        sys_flag = int.from_bytes(os.pread(file.fileno(), 4, at + 36), "big", signed=True)
    return f"{_short(root, path)} at {at}: " + _change_field(
        chance, path, header_layout(sys_flag), at
    )


def _old_records(chance: random.Random, root: Path) -> str:
    """Older records of the log behind its end, as a cut without erasing leaves them."""
    paths = [path for path in _files(root, "commitlog") if _record_starts(path)]
    if not paths:
        return ""
    source, target = chance.choice(paths), paths[-1]
    starts = _record_starts(source)
    end = _data_end(target, target.stat().st_size) + chance.choice([0, 1, 8, 300])
    with source.open("rb") as file:
        data = os.pread(file.fileno(), 4000, chance.choice(starts))
    _overwrite(target, end, data[: max(target.stat().st_size - end, 0)])
    return f"{len(data)} bytes of {_short(root, source)} in {_short(root, target)} at {end}"


def _queue_unit(chance: random.Random, root: Path) -> str:
    path = _file_of(chance, root, "consumequeue")
    if path is None:
        return ""
    at = _data_end(path, path.stat().st_size) // CQ_UNIT.size * CQ_UNIT.size
    at = chance.choice([at, max(at - CQ_UNIT.size, 0), chance.randrange(at + 1)])
    at -= at % CQ_UNIT.size
    return f"{_short(root, path)} at {at}: " + _change_field(chance, path, CQ_UNIT, at)


def _index_field(chance: random.Random, root: Path) -> str:
    path = _file_of(chance, root, "index")
    if path is None:
        return ""
    if chance.random() < 0.5:
        return f"{_short(root, path)}: " + _change_field(chance, path, INDEX_HEADER, 0)
    at = max(_data_end(path, path.stat().st_size) - INDEX_ENTRY.size * chance.randint(1, 50), 40)
    return f"{_short(root, path)} at {at}: " + _change_field(chance, path, INDEX_ENTRY, at)


def _checkpoint(chance: random.Random, root: Path) -> str:
    path = root / "checkpoint"
    if not path.is_file() or path.is_symlink():
        return ""
    if chance.random() < 0.7:
        return _change_field(chance, path, CHECKPOINT, 0)
    data = chance.choice([b"", bytes(4096), b"\xff" * 4096, chance.randbytes(4096), b"x"])
    path.write_bytes(data)
    return f"{len(data)} bytes {data[:4]!r}"


# Names.


def _swap(chance: random.Random, root: Path) -> str:
    one = _file(chance, root)
    if one is None:
        return ""
    others = _files(root, str(one.relative_to(root).parts[0])) or _files(root)
    other = chance.choice(others if chance.random() < 0.8 else _files(root))
    kept = root / "kept.tmp"
    one.rename(kept)
    if other != one:
        other.rename(one)
    kept.rename(other)
    return f"{_short(root, one)} and {_short(root, other)}"


def _duplicate(chance: random.Random, root: Path) -> str:
    path = _file(chance, root)
    if path is None or path.stat().st_size > 50 << 20:
        return ""
    if path.name.isdecimal() and chance.random() < 0.7:
        step = chance.choice([path.stat().st_size, 1, 4096, 10**15])
        name = f"{int(path.name) + step:0{len(path.name)}d}"
    else:
        name = chance.choice(["copy", f"{path.name}.bak", f"{path.name}~", f".{path.name}.tmp"])
    target = path.with_name(name)
    if target.exists():
        return ""
    shutil.copy2(path, target)
    return f"{_short(root, path)} as {target.name}"


def _rename(chance: random.Random, root: Path) -> str:
    path = _entry(chance, root)
    if path is None:
        return ""
    name = chance.choice(_ODD_NAMES)
    target = os.path.join(os.fsencode(path.parent), name)
    if os.path.lexists(target):
        return ""
    os.rename(path, target)
    return f"{_short(root, path)} to {name!r}"


def _odd_directory(chance: random.Random, root: Path) -> str:
    """A topic, queue or file that nobody made."""
    place = chance.choice(["", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index"])
    place = chance.choice([place, "commitlog", "config", "_staging", "consumequeue/TopicA"])
    parent = root / place
    if os.path.lexists(parent) and not parent.is_dir():
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


def _delete(chance: random.Random, root: Path) -> str:
    path = _entry(chance, root) if chance.random() < 0.5 else _file(chance, root)
    if path is None:
        return ""
    _remove(path)
    return _short(root, path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_KINDS = (
    "empty", "directory", "fifo", "link to itself", "dangling link", "link outside", "link inside",
    "socket", "sparse", "file", "link to directory", "device",
)  # fmt: skip


def _replace(chance: random.Random, root: Path) -> str:
    path = _entry(chance, root) if chance.random() < 0.4 else _file(chance, root)
    if path is None:
        return ""
    kind, files = chance.choice(_KINDS), _files(root)
    text = f"{_short(root, path)} by {kind}"
    _remove(path)
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


def outside_of(root: Path) -> Path:
    """Return a directory beside the store, to which nothing may be written."""
    place = root.parent / "outside"
    if not place.is_dir():
        (place / "old").mkdir(parents=True)
        (place / "file").write_bytes(b"not of the store\n" * 300)
        (place / "old" / "file").write_bytes(b"kept")
        for path in (place / "old" / "file", place / "old", place / "file", place):
            os.utime(path, (1e9, 1e9))
    return place


def _socket(path: Path) -> None:
    kept = os.getcwd()
    os.chdir(path.parent)  # a socket's path has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name[:100])
    finally:
        os.chdir(kept)


def _times(chance: random.Random, root: Path) -> str:
    path = _file(chance, root)
    if path is None:
        return ""
    seconds = chance.choice([0, -1, 1, 2**31, 2**33, 1e9])
    os.utime(path, (seconds, seconds))
    return f"{_short(root, path)}: {seconds}"


def _abort(chance: random.Random, root: Path) -> str:
    path = root / "abort"
    if os.path.lexists(path):
        _remove(path)
        return "removed"
    path.write_bytes(chance.choice([b"", b"1", b"99999999999999999999", b"\xff\xfe", b"-1"]))
    return "made"


# Our own files, and JSON.


def _json_file(chance: random.Random, root: Path) -> str:
    known = ["topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"]
    found = [path.name for path in _files(root, "config") if path.suffix == ".json"]
    name = chance.choice([*known, *found, "sinkCommits.json"])
    path = root / "config" / name
    if (root / "config").is_symlink() or (os.path.lexists(path) and not path.is_file()):
        return ""
    if (root / "config").exists() and not (root / "config").is_dir():
        return ""
    path.parent.mkdir(exist_ok=True)
    if chance.random() < 0.3 or not path.exists():
        data = chance.choice(_ODD_JSON)
        path.write_bytes(data)
        return f"{name}: {data[:20]!r}, {len(data)} bytes"
    return f"{name}: " + _odd_value(chance, path)


def _odd_value(chance: random.Random, path: Path) -> str:
    """Put an odd value, or drop one, somewhere in a JSON file."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return ""
    places = list(_places(values))
    if not places:
        return ""
    holder, key = chance.choice(places)
    if chance.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
        text = f"without {key!a}"
    else:
        holder[key] = chance.choice(_ODD_VALUES)
        text = f"{key!a} = {ascii(holder[key])[:40]}"
    path.write_bytes(json.dumps(values).encode("utf-8", "surrogatepass"))
    return text


def _places(values: object) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    waiting = [values]
    while waiting:
        value = waiting.pop()
        keys = value.keys() if isinstance(value, dict) else ()
        keys = range(len(value)) if isinstance(value, list) else keys
        for key in keys:
            found.append((value, key))
            waiting.append(value[key])  # type: ignore[index]
    return found


def _staging(chance: random.Random, root: Path) -> str:
    """What is left of a job: a journal with odd values, parts, foreign files."""
    place = root / "_staging"
    if place.is_symlink() or (os.path.lexists(place) and not place.is_dir()):
        return ""
    name = chance.choice(["job", "0123456789abcdef", "part", ".hidden"])
    directory = place / name
    if os.path.lexists(directory) and not directory.is_dir():
        return ""
    directory.mkdir(parents=True, exist_ok=True)
    intent = directory / "intent.json"
    if os.path.lexists(intent):
        return ""
    intent.write_bytes(json.dumps(_journal(chance, root)).encode())
    text = ""
    if chance.random() < 0.6:
        text = _odd_value(chance, intent)
    elif chance.random() < 0.3:
        intent.write_bytes(chance.choice(_ODD_JSON))
        text = "odd JSON"
    if chance.random() < 0.3:
        (directory / "part-0.records").write_bytes(chance.randbytes(100))
    if chance.random() < 0.5:
        for path in (*sorted(directory.iterdir()), directory):
            os.utime(path, (1e9, 1e9))
    return f"{name}: {text}"


def _journal(chance: random.Random, root: Path) -> dict[str, object]:
    """Return a journal of a job that was to be appended at the end of the log, or within it."""
    segments = [path for path in _files(root, "commitlog") if path.name.isdecimal()]
    end = 0
    if segments:
        path = segments[-1]
        end = int(path.name) + _data_end(path, max(path.stat().st_size, 1))
    start = chance.choice([end, 0, max(end - 1000, 0), end + 1])
    return {
        "format": 1, "job": "job", "application": chance.choice([None, "app"]), "version": 3,
        "start_offset": start, "end_offset": start + chance.choice([0, 500, 100_000]),
        "first_bytes": "000000ffdaa320a7", "proof_offset": start, "proof_bytes": 255,
        "proof_crc": 12345, "store_timestamp": 1_700_000_000_000, "messages": 2,
        "record_bytes": 500, "dropped": {},
        "queues": [{"topic": "TopicA", "queue_id": 0, "first_queue_offset": 0, "messages": 2}],
    }  # fmt: skip


MUTATIONS: dict[str, tuple[int, Mutation]] = {
    "flip": (10, _flip),
    "bytes": (10, _random_bytes),
    "shift": (3, _shift),
    "length": (6, _length),
    "torn tail": (4, _torn_tail),
    "record": (10, _record_field),
    "old records": (3, _old_records),
    "unit": (6, _queue_unit),
    "index": (5, _index_field),
    "checkpoint": (5, _checkpoint),
    "swap": (5, _swap),
    "duplicate": (4, _duplicate),
    "rename": (4, _rename),
    "odd entry": (4, _odd_directory),
    "delete": (6, _delete),
    "replace": (7, _replace),
    "times": (2, _times),
    "abort": (5, _abort),
    "json": (6, _json_file),
    "staging": (5, _staging),
}
"""Weight and function by name."""

_NAMES = tuple(MUTATIONS)
_WEIGHTS = [weight for weight, _ in MUTATIONS.values()]
