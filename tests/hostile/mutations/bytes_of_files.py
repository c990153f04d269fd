# SPDX-License-Identifier: Apache-2.0
"""Damage to the bytes and the length of a file, whatever its content."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.hostile.mutations.places import any_file, any_position, file_of, overwrite, short


def flip(chance: random.Random, root: Path) -> str:
    path = any_file(chance, root, 1)
    if path is None:
        return ""
    at = any_position(chance, path)
    with path.open("rb") as file:
        byte = os.pread(file.fileno(), 1, at) or b"\0"
    bit = 1 << chance.randrange(8)
    overwrite(path, at, bytes([byte[0] ^ bit]))
    return f"{short(root, path)} at {at}: bit {bit:#x}"


def random_bytes(chance: random.Random, root: Path) -> str:
    path = any_file(chance, root, 1)
    if path is None:
        return ""
    at, length = any_position(chance, path), chance.choice([1, 2, 4, 8, 20, 100, 512, 4096])
    length = min(length, path.stat().st_size - at)
    kind = chance.choice(["zeros", "ones", "garbage"])
    data = {"zeros": bytes(length), "ones": b"\xff" * length}.get(kind)
    overwrite(path, at, chance.randbytes(length) if data is None else data)
    return f"{short(root, path)} at {at}: {length} {kind}"


def shift(chance: random.Random, root: Path) -> str:
    """Insert or drop some bytes; the length stays the same."""
    path = any_file(chance, root, 64)
    if path is None or path.stat().st_size > 4 << 20:
        return ""
    data, count = path.read_bytes(), chance.choice([1, 4, 8, 20, 40])
    at = any_position(chance, path)
    if chance.random() < 0.5:
        path.write_bytes((data[:at] + bytes(count) + data[at:])[: len(data)])
        return f"{short(root, path)} at {at}: {count} bytes put in"
    path.write_bytes((data[:at] + data[at + count :]).ljust(len(data), b"\0"))
    return f"{short(root, path)} at {at}: {count} bytes taken out"


def length(chance: random.Random, root: Path) -> str:
    path = any_file(chance, root)
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
        return f"{short(root, path)}: garbage after its end"
    os.truncate(path, new)
    return f"{short(root, path)}: {new} bytes long, not {size}"


def torn_tail(chance: random.Random, root: Path) -> str:
    """Write zeros from a position of the log on, as after a power loss."""
    path = file_of(chance, root, "commitlog")
    if path is None:
        return ""
    at, size = any_position(chance, path), path.stat().st_size
    os.truncate(path, at)
    os.truncate(path, size)
    return f"{short(root, path)}: zeros from {at} on"
