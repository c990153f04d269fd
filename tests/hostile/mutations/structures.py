# SPDX-License-Identifier: Apache-2.0
"""Damage to fields of records, units, index entries and the checkpoint."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

from store_core.layout import (
    CHECKPOINT,
    CQ_UNIT,
    INDEX_ENTRY,
    INDEX_HEADER,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RecordLayout,
    header_layout,
)
from tests.hostile.mutations.places import data_end, file_of, files_below, overwrite, short


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
    overwrite(
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


def record_field(chance: random.Random, root: Path) -> str:
    path = file_of(chance, root, "commitlog")
    starts = _record_starts(path) if path is not None else []
    if path is None or not starts:
        return ""
    at = chance.choice([*starts[:1], *starts[-1:], chance.choice(starts)])
    with path.open("rb") as file:
        sys_flag = int.from_bytes(os.pread(file.fileno(), 4, at + 36), "big", signed=True)
    return f"{short(root, path)} at {at}: " + _change_field(
        chance, path, header_layout(sys_flag), at
    )


def old_records(chance: random.Random, root: Path) -> str:
    """Put older records of the log after its end, as a cut without erasing leaves them."""
    paths = [path for path in files_below(root, "commitlog") if _record_starts(path)]
    if not paths:
        return ""
    source, target = chance.choice(paths), paths[-1]
    starts = _record_starts(source)
    end = data_end(target, target.stat().st_size) + chance.choice([0, 1, 8, 300])
    with source.open("rb") as file:
        data = os.pread(file.fileno(), 4000, chance.choice(starts))
    overwrite(target, end, data[: max(target.stat().st_size - end, 0)])
    return f"{len(data)} bytes of {short(root, source)} in {short(root, target)} at {end}"


def queue_unit(chance: random.Random, root: Path) -> str:
    path = file_of(chance, root, "consumequeue")
    if path is None:
        return ""
    at = data_end(path, path.stat().st_size) // CQ_UNIT.size * CQ_UNIT.size
    at = chance.choice([at, max(at - CQ_UNIT.size, 0), chance.randrange(at + 1)])
    at -= at % CQ_UNIT.size
    return f"{short(root, path)} at {at}: " + _change_field(chance, path, CQ_UNIT, at)


def index_field(chance: random.Random, root: Path) -> str:
    path = file_of(chance, root, "index")
    if path is None:
        return ""
    if chance.random() < 0.5:
        return f"{short(root, path)}: " + _change_field(chance, path, INDEX_HEADER, 0)
    at = max(data_end(path, path.stat().st_size) - INDEX_ENTRY.size * chance.randint(1, 50), 40)
    return f"{short(root, path)} at {at}: " + _change_field(chance, path, INDEX_ENTRY, at)


def checkpoint(chance: random.Random, root: Path) -> str:
    path = root / "checkpoint"
    if not path.is_file() or path.is_symlink():
        return ""
    if chance.random() < 0.7:
        return _change_field(chance, path, CHECKPOINT, 0)
    data = chance.choice([b"", bytes(4096), b"\xff" * 4096, chance.randbytes(4096), b"x"])
    path.write_bytes(data)
    return f"{len(data)} bytes {data[:4]!r}"
