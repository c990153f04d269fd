# SPDX-License-Identifier: Apache-2.0
"""Damage a copy of a golden store at random, salvage it, and check the new store."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from store_core.codec.message_codec import split_properties
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import header_layout
from store_core.log.commit_log import scan_log
from store_core.log.log_scan import Gap
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import check_store
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.salvage import SalvageOptions, SalvageReport, salvage_store
from tests.golden_store import GoldenStore, golden

NOW_MS = 1_790_000_000_000
NAMES = (
    *(("batch-5x", False), ("classic-4x", False), ("classic-5x", False), ("cluster-4x", False)),
    *(("cluster-5x", False), ("cluster-5x-ext", False), ("expired-5x", False), ("ext-5x", False)),
    *(("multipath-5x", False), ("crashed-5x", True), ("torn-5x", True)),
)
"""Golden stores without damage of their own; True: as RocketMQ's recovery left them."""
OPTIONS = SalvageOptions(clock=lambda: NOW_MS)
_PAGE = 4096
_OWN_NAMES = {"INNER_BASE", "INNER_MULTI_QUEUE_OFFSET", "__CRC32#"}


class Stored(NamedTuple):
    """A record: its place, its bytes, and the values that a salvage must keep."""

    commit_log_offset: int
    raw: bytes
    kept: tuple[object, ...]

    @property
    def body(self) -> bytes:
        """As stored."""
        layout = header_layout(int.from_bytes(self.raw[36:40], "big", signed=True))
        return self.raw[layout.size : layout.size + layout.unpack(self.raw).body_length]


def what_is_kept(raw: bytes) -> tuple[object, ...]:
    """Return the values of a record that are the same in both stores."""
    sys_flag = int.from_bytes(raw[36:40], "big", signed=True)
    layout = header_layout(sys_flag)
    header = layout.unpack(raw)
    topic_bytes = 2 if header.magic_code & 0xFF == 0xAB else 1
    body_end = layout.size + header.body_length
    length = int.from_bytes(raw[body_end : body_end + topic_bytes], "big")
    topic_end = body_end + topic_bytes + length
    pairs = [p for p in split_properties(raw[topic_end + 2 :]) if p[0] not in _OWN_NAMES]
    changed = {"total_size", "queue_offset", "commit_log_offset"}
    if sys_flag & 0x8:
        changed.add("prepared_transaction_offset")
    fields = tuple((n, v) for n, v in header._asdict().items() if n not in changed)
    return (*fields, raw[layout.size : topic_end], tuple(pairs))


def records_of(root: Path, config: MessageStoreConfig) -> list[Stored]:
    """Return the records of a store without damage."""
    with StoreSnapshot(root, config) as view:
        return records_in(view)


def records_in(view: StoreSnapshot) -> list[Stored]:
    found = []
    for part in scan_log(view.log, max(view.min_phy_offset, 0), view.end_offset):
        assert not isinstance(part, Gap), part
        columns = [part.position, part.column("total_size"), part.column("commit_log_offset")]
        for at, size, offset in zip(*(column.tolist() for column in columns)):
            raw = part.data[at : at + size].tobytes()
            found.append(Stored(offset, raw, what_is_kept(raw)))
    return found


def records_behind(view: StoreSnapshot) -> list[Stored]:
    """Return intact records after the end of the log, in its last segment."""
    found = []
    segment = view.log.segments.find(view.end_offset)
    if segment is not None:
        records = view.log.records(segment, segment.from_offset + segment.size)
        at = view.end_offset - segment.from_offset
        while (at := records.find(at)) >= 0:
            size = int.from_bytes(records.bytes_at(at, 4).tobytes(), "big")
            raw = records.bytes_at(at, size).tobytes()
            found.append(Stored(segment.from_offset + at, raw, what_is_kept(raw)))
            at += size
    return found


class Damage:
    """The damage done to a copy of a store."""

    def __init__(self, store: GoldenStore, target: Path, seed: int) -> None:
        self.config = MessageStoreConfig.from_properties(store.config_properties)
        self.root = store.copy_to(target)
        self.done: list[str] = []
        self._chance = random.Random(seed)
        self._hit: list[tuple[int, int]] = []
        with StoreSnapshot(self.root, self.config) as view:
            self.originals = records_in(view)
            self.end_offset = view.end_offset
            # A recovery once cut them off; without checkpoint or last record that cannot be known.
            self.stale = records_behind(view)
            self._segments = [Path(segment.path) for segment in view.log.segments]
            self._size = view.log.segments.file_size
        for _ in range(self._chance.choice([1, 1, 2, 3])):
            self._chance.choice(
                [
                    *(self._cut, self._zero_page, self._flip_bytes, self._flip_bytes),
                    *(self._lose_segment, self._lose_queues, self._lose_index),
                    *(self._wrong_checkpoint, self._lose_topics),
                ]
            )()

    @property
    def untouched(self) -> list[Stored]:
        """Records without a changed byte."""
        return [record for record in self.originals if not self.is_hit(record)]

    def is_hit(self, record: Stored) -> bool:
        start, stop = record.commit_log_offset, record.commit_log_offset + len(record.raw)
        return any(a < stop and b > start for a, b in self._hit)

    def _change(self, path: Path, at: int, data: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)
        self._hit.append((int(path.name) + at, int(path.name) + at + len(data)))

    def _segment(self) -> tuple[Path, int]:
        """Return an existing segment, and its bytes with data."""
        path = self._chance.choice([path for path in self._segments if path.exists()])
        return path, max(min(self.end_offset - int(path.name), path.stat().st_size), 1)

    def _cut(self) -> None:
        path, length = self._segment()
        keep = self._chance.randrange(length)
        self._hit.append((int(path.name) + keep, int(path.name) + self._size))
        with path.open("r+b") as file:
            file.truncate(keep)
        self.done.append(f"cut {path.name} at {keep}")

    def _zero_page(self) -> None:
        path, length = self._segment()
        at = self._chance.randrange(length) // _PAGE * _PAGE
        count = min(_PAGE * self._chance.choice([1, 1, 4]), path.stat().st_size - at)
        self._change(path, at, bytes(count))
        self.done.append(f"zeros at {at} of {path.name}")

    def _flip_bytes(self) -> None:
        path, length = self._segment()
        for _ in range(self._chance.choice([1, 1, 8, 40])):
            at = self._chance.randrange(length)
            self._change(path, at, bytes([self._chance.randrange(256)]))
            self.done.append(f"a byte at {at} of {path.name}")

    def _lose_segment(self) -> None:
        left = [path for path in self._segments if path.exists()]
        if len(left) > 2:  # otherwise the size of a segment cannot be seen
            path = self._chance.choice(left)
            path.unlink()
            self._hit.append((int(path.name), int(path.name) + self._size))
            self.done.append(f"lost {path.name}")

    def _lose_queues(self) -> None:
        queues = sorted(self.root.glob("*consumequeue/*/*"))
        for path in self._chance.sample(queues, len(queues) // self._chance.choice([1, 2, 4])):
            shutil.rmtree(path, ignore_errors=True)
        self.done.append("lost queues")

    def _lose_index(self) -> None:
        shutil.rmtree(self.root / "index", ignore_errors=True)
        self.done.append("lost index")

    def _wrong_checkpoint(self) -> None:
        path = self.root / "checkpoint"
        numbers = [self._chance.choice([0, -1, 1, 2**62, self._chance.randrange(2**40)])] * 4
        confirm = self._chance.choice(self.originals).commit_log_offset
        data = np.array([*numbers, self._chance.choice([confirm, 0, 2**50])], ">i8").tobytes()
        path.write_bytes(self._chance.choice([b"", data[:13], data, data.ljust(4096, b"\0")]))
        self.done.append("wrong checkpoint")

    def _lose_topics(self) -> None:
        path = self.root / "config" / "topics.json"
        if path.exists():
            path.write_bytes(self._chance.choice([b"", b"{", path.read_bytes()[:-40]]))
            self.done.append("wrong topics")


def damaged(seed: int, target: Path) -> Damage:
    """Return a golden store, damaged as the seed says."""
    name, recovered = NAMES[seed % len(NAMES)]
    return Damage(golden(name, recovered), target, seed)


def salvage(damage: Damage, target: Path) -> SalvageReport:
    return salvage_store(str(damage.root), str(target), damage.config, OPTIONS)


def judge(damage: Damage, target: Path, report: SalvageReport) -> None:
    """Raise AssertionError if the new store lacks something, invents it, or is not sound."""
    config = salvaged_config(damage.config)
    found = records_of(target, config)
    told = (damage.root.parent, damage.done)
    assert report.records == len(found), told
    at, hit = 0, [record for record in damage.originals if damage.is_hit(record)]
    wanted, extra = damage.untouched, []
    for record in found:
        if at < len(wanted) and record.kept == wanted[at].kept:
            at += 1
        else:
            extra.append(record)
    assert at == len(wanted), (told, wanted[at].commit_log_offset)
    # The rest are records with changed bytes that no checksum covers; that of the body does.
    bodies = [record.body for record in hit]
    end_is_lost = "wrong checkpoint" in damage.done or damage.is_hit(damage.originals[-1])
    stale = [r.kept for r in damage.stale] if end_is_lost else []
    for record in extra:
        if record.kept in stale:
            continue
        assert record.body in bodies, told
        bodies.remove(record.body)
    check(target, config, told)


_TAKEN_OVER = {
    FindingKind.BODY_FLAGS,
    FindingKind.NOT_QUEUED,
    FindingKind.OFFSET_BEYOND_END,
    FindingKind.OFFSET_EXPIRED,
    FindingKind.SETTINGS_LOST,
    FindingKind.SETTINGS_OLD,
}
"""Findings of the old store that salvage takes over: records whose meaning is unknown, or whose
body contradicts their flags, settings that cannot be read, and offsets of groups in queues that
lost messages."""


def check(target: Path, config: MessageStoreConfig, told: Any = "") -> None:
    with StoreSnapshot(target, config) as view:
        checked = check_store(view)
    findings = tuple(f for f in checked.findings if f.kind not in _TAKEN_OVER)
    assert replace(checked, findings=findings).is_good, (
        told,
        [(f.kind.label, f.place, f.examples) for f in checked.findings],
    )


def salvaged_config(config: MessageStoreConfig) -> MessageStoreConfig:
    """Return the configuration for a salvaged store: its log is in one directory."""
    return replace(config, store_path_commit_log=None)
