# SPDX-License-Identifier: Apache-2.0
"""Damage at a random place of a store, of every kind that the damage sweep knows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.maintenance.ledger import Record, read_ledger

_PAGE = 4096
_BLANK_MAGIC = bytes.fromhex("cbd43194")
_BLANK_SHARE = 0.15
_FIELDS = {
    **{"total_size": (0, 4), "magic_code": (4, 4), "body_crc": (8, 4), "queue_id": (12, 4)},
    **{"queue_offset": (20, 8), "commit_log_offset": (28, 8), "sys_flag": (36, 4)},
    **{"born_timestamp": (40, 8), "store_timestamp": (56, 8), "body_length": (84, 4)},
}
"""Fields of a record with IPv4 hosts: position and width."""

Damage = Callable[[random.Random, Path], str]


def damage(chance: random.Random, root: Path) -> str:
    """Damage a store in one place; return a description."""
    for _ in range(50):
        name = chance.choices(list(_DAMAGES), [weight for weight, _ in _DAMAGES.values()])[0]
        text = _DAMAGES[name][1](chance, root)
        if text:
            return f"{name}: {text}"
    return "nothing found to damage"


def _files(root: Path, *patterns: str) -> list[Path]:
    return sorted(path for p in patterns for path in root.glob(p) if path.is_file())


def _segments(root: Path) -> list[Path]:
    """Return the segments that have data."""
    found = [path for path in _files(root, "commitlog/*") if path.name.isdecimal()]
    return [path for path in found if path.read_bytes().strip(b"\0")]


def _queue_files(root: Path) -> list[Path]:
    return _files(root, "consumequeue/*/*/*", "batchconsumequeue/*/*/*")


def _overwrite(path: Path, at: int, data: bytes) -> None:
    """Change bytes within a file, but not its length."""
    content = bytearray(path.read_bytes())
    data = data[: max(len(content) - at, 0)]
    content[at : at + len(data)] = data
    _write(path, bytes(content))


def _write(path: Path, content: bytes) -> None:
    path.unlink()  # a new file: a map of the old one may be in use
    path.write_bytes(content)


def _some_record(chance: random.Random, root: Path) -> Record | None:
    records = [record for record in read_ledger(root).records.values()]
    return chance.choice(records) if records else None


def _segment_of(root: Path, start: int) -> tuple[Path, int]:
    path = max(path for path in _segments(root) if int(path.name) <= start)
    return path, start - int(path.name)


def _record_field(chance: random.Random, root: Path) -> str:
    record = _some_record(chance, root)
    if record is None:
        return ""
    path, at = _segment_of(root, record.start)
    name = chance.choice(list(_FIELDS))
    position, width = _FIELDS[name]
    where = at + position + chance.randrange(width)
    _flip(chance, path, where)
    return f"{name} of the record at {record.start}"


def _record_number(chance: random.Random, root: Path) -> str:
    """A field that no CRC covers reads somewhat higher or lower."""
    record = _some_record(chance, root)
    if record is None:
        return ""
    path, at = _segment_of(root, record.start)
    name = chance.choice(["queue_offset", "queue_id", "store_timestamp", "commit_log_offset"])
    position, width = _FIELDS[name]
    old = int.from_bytes(path.read_bytes()[at + position : at + position + width], "big")
    new = max(old + chance.choice([1, -1, 7, 1000, -1000]), 0)
    _overwrite(path, at + position, new.to_bytes(width, "big"))
    return f"{name} of the record at {record.start}: {old} -> {new}"


def _record_bytes(chance: random.Random, root: Path) -> str:
    record = _some_record(chance, root)
    if record is None:
        return ""
    path, at = _segment_of(root, record.start)
    if chance.random() < _BLANK_SHARE:
        _overwrite(path, at + 4, _BLANK_MAGIC)
        return f"magic code of the record at {record.start} is that of blank ones"
    where = at + chance.randrange(record.size)
    _overwrite(path, where, chance.randbytes(chance.choice([1, 4, 40])))
    return f"byte {where - at} of the record at {record.start}"


def _flip(chance: random.Random, path: Path, at: int) -> None:
    data = path.read_bytes()
    if at < len(data):
        _overwrite(path, at, bytes([data[at] ^ 1 << chance.randrange(8)]))


def _page_of(files: Callable[[Path], list[Path]], *, is_zero: bool) -> Damage:
    def overwrite(chance: random.Random, root: Path) -> str:
        found = files(root)
        if not found:
            return ""
        path = chance.choice(found)
        at = chance.randrange(max(path.stat().st_size // _PAGE, 1)) * _PAGE
        _overwrite(path, at, bytes(_PAGE) if is_zero else chance.randbytes(_PAGE))
        return f"{path.relative_to(root)} at {at}"

    return overwrite


def _flip_in(files: Callable[[Path], list[Path]]) -> Damage:
    def flip(chance: random.Random, root: Path) -> str:
        found = [path for path in files(root) if path.stat().st_size]
        if not found:
            return ""
        path = chance.choice(found)
        filled = len(path.read_bytes().rstrip(b"\0")) or path.stat().st_size
        at = chance.randrange(filled)
        _flip(chance, path, at)
        return f"{path.relative_to(root)} at {at}"

    return flip


def _truncate(files: Callable[[Path], list[Path]]) -> Damage:
    def truncate(chance: random.Random, root: Path) -> str:
        found = [path for path in files(root) if path.stat().st_size]
        if not found:
            return ""
        path = chance.choice(found)
        length = chance.randrange(path.stat().st_size)
        _write(path, path.read_bytes()[:length])
        return f"{path.relative_to(root)} to {length} bytes"

    return truncate


def _delete(files: Callable[[Path], list[Path]]) -> Damage:
    def delete(chance: random.Random, root: Path) -> str:
        found = files(root)
        if not found:
            return ""
        path = chance.choice(found)
        path.unlink()
        return str(path.relative_to(root))

    return delete


def _last_segments(chance: random.Random, root: Path) -> str:
    found = _segments(root)
    if len(found) < 2:
        return ""
    count = chance.randint(1, min(2, len(found) - 1))
    for path in found[-count:]:
        if chance.random() < 0.5:
            path.unlink()
        else:
            _write(path, bytes(path.stat().st_size))
    return f"the last {count} segments that hold something"


def _delete_queue(chance: random.Random, root: Path) -> str:
    found = sorted(root.glob("consumequeue/*/*")) + sorted(root.glob("batchconsumequeue/*/*"))
    if not found:
        return ""
    path = chance.choice([*found, *{path.parent for path in found}])
    shutil.rmtree(path)
    return str(path.relative_to(root))


def _delete_all(chance: random.Random, root: Path) -> str:
    found = [root / name for name in ("consumequeue", "index") if (root / name).is_dir()]
    if not found:
        return ""
    path = chance.choice(found)
    shutil.rmtree(path)
    return f"all of {path.name}"


def _checkpoint(chance: random.Random, root: Path) -> str:
    path = root / "checkpoint"
    if not path.is_file():
        return ""
    way = chance.choice(["zeroed", "deleted", "garbage", "cut"])
    if way == "deleted":
        path.unlink()
    elif way == "cut":
        _write(path, path.read_bytes()[: chance.randrange(40)])
    else:
        size = path.stat().st_size
        _write(path, bytes(size) if way == "zeroed" else chance.randbytes(size))
    return way


def _abort(chance: random.Random, root: Path) -> str:
    """Turn a clean stop into a crash; or the reverse if all was dispatched."""
    path = root / "abort"
    if not path.exists():
        path.touch()
        return "made"
    ledger = read_ledger(root)
    if any(r.is_queued and not ledger.is_referred_to(r) for r in ledger.records.values()):
        return ""  # it would report these as cut
    path.unlink()
    return "removed"


def _settings_file(chance: random.Random, root: Path) -> str:
    found = _files(root, "config/*.json", "config/*.bak")
    if not found:
        return ""
    path = chance.choice(found)
    way = chance.choice(["deleted", "emptied", "broken"])
    if way == "deleted":
        path.unlink()
    else:
        _write(path, b"" if way == "emptied" else b'{"topicConfigTable":{')
    return f"{path.name} {way}"


def _index_files(root: Path) -> list[Path]:
    return _files(root, "index/*")


_DAMAGES: dict[str, tuple[int, Damage]] = {
    "bit of a record": (10, _record_field),
    "number of a record": (6, _record_number),
    "bytes of a record": (8, _record_bytes),
    "zero page of the log": (6, _page_of(_segments, is_zero=True)),
    "bad page of the log": (8, _page_of(_segments, is_zero=False)),
    "segment truncated": (1, _truncate(_segments)),
    "segment deleted": (3, _delete(_segments)),
    "last segments lost": (3, _last_segments),
    "bit of a queue": (5, _flip_in(_queue_files)),
    "zero page of a queue": (3, _page_of(_queue_files, is_zero=True)),
    "bad page of a queue": (3, _page_of(_queue_files, is_zero=False)),
    "queue file truncated": (1, _truncate(_queue_files)),
    "queue file deleted": (4, _delete(_queue_files)),
    "queue deleted": (4, _delete_queue),
    "bit of the index": (3, _flip_in(_index_files)),
    "bad page of the index": (2, _page_of(_index_files, is_zero=False)),
    "index file truncated": (1, _truncate(_index_files)),
    "index file deleted": (2, _delete(_index_files)),
    "directory deleted": (2, _delete_all),
    "checkpoint": (5, _checkpoint),
    "abort": (6, _abort),
    "settings": (2, _settings_file),
}
"""Weight and function by name."""
