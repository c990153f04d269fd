# SPDX-License-Identifier: Apache-2.0
"""Each kind of damage is found in its place, and nothing else is reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import StoreReadError
from store_core.layout import (
    BATCH_CQ_UNIT,
    CHECKPOINT,
    COMPRESSED_FLAG,
    CQ_UNIT,
    HEADER_IPV4,
    INDEX_ENTRY,
    INDEX_HEADER,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    SYS_FLAG_AT,
    index_file_bytes,
)
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.store_lock import StoreLock
from store_core.tools.check import FindingKind, Severity, check_store, index_check
from store_core.tools.check.findings import MAX_PLACES, Findings
from store_core.tools.check.queue_units import CheckedQueue, OffsetRanges
from tests.golden_store import golden
from tests.rmqsource.reading import read_rows
from tests.store_core.tools.check.support import all_kinds, checked, kinds
from tests.store_factory import StoreFactory, small_store

SIZES = {"maxHashSlotNum": "8", "maxIndexNum": "64"}
numbers = st.integers(0, 40)


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    put(path, position, bytes([path.read_bytes()[position] ^ 0x40]))


def queue_file(store: StoreFactory, topic: str = "TopicA", queue_id: int = 0) -> Path:
    return min((store.root / "consumequeue" / topic / str(queue_id)).iterdir())


def index_file(store: StoreFactory) -> Path:
    return min((store.root / "index").iterdir())


def entry_at(entry: int) -> int:
    return index_file_bytes(int(SIZES["maxHashSlotNum"]), 0) + entry * INDEX_ENTRY.size


class Case(NamedTuple):
    change: Callable[[StoreFactory], object]
    found: dict[str, int]


def record_byte(at: int) -> Callable[[StoreFactory], object]:
    def change(store: StoreFactory) -> None:
        record = store.records[23]  # IPv4 hosts, a body
        offset = record.commit_log_offset
        path = store.segment_path(offset)
        flip(path, offset % store.segment_bytes + at)

    return change


def record_flags(value: int) -> Callable[[StoreFactory], object]:
    def change(store: StoreFactory) -> None:
        offset = store.records[23].commit_log_offset
        position = offset % store.segment_bytes + SYS_FLAG_AT
        put(store.segment_path(offset), position, value.to_bytes(4, "big"))

    return change


def in_queue(number: int, field: str, data: bytes) -> Callable[[StoreFactory], object]:
    return lambda s: put(queue_file(s), number * CQ_UNIT.size + CQ_UNIT.at(field), data)


def in_entry(number: int, field: str, data: bytes) -> Callable[[StoreFactory], object]:
    return lambda s: put(index_file(s), entry_at(number) + INDEX_ENTRY.at(field), data)


def new_file(name: str, content: bytes = b"x") -> Callable[[StoreFactory], object]:
    def change(store: StoreFactory) -> None:
        path = store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return change


def cut(path: Callable[[StoreFactory], Path], length: int) -> Callable[[StoreFactory], object]:
    def change(store: StoreFactory) -> None:
        with path(store).open("r+b") as file:
            file.truncate(length)

    return change


def physic_time(value: int) -> Callable[[StoreFactory], object]:
    data = value.to_bytes(8, "big", signed=True)
    return lambda s: put(s.root / "checkpoint", CHECKPOINT.at("physic_msg_timestamp"), data)


NINE = (9).to_bytes(8, "big")


CASES = {
    "frame": Case(record_byte(0), {"LOG_GAP": 1}),
    "body": Case(record_byte(90), {"BODY_CRC": 1}),
    "compressed flag": Case(record_flags(COMPRESSED_FLAG), {"BODY_FLAGS": 1}),
    "batch flags": Case(record_flags(INNER_BATCH_FLAG | NEED_UNWRAP_FLAG), {"BODY_FLAGS": 1}),
    "segment gone": Case(
        lambda s: s.segment_path(s.segment_bytes).unlink(), {"SEGMENT_MISSING": 1}
    ),
    "segment cut": Case(cut(lambda s: s.segment_path(0), 3000), {"LOG_GAP": 1, "SEGMENT_SIZE": 1}),
    "strange file": Case(new_file("commitlog/00000000000000000000.tmp"), {"STRANGE_FILE": 1}),
    "unit nowhere": Case(
        in_queue(3, "commit_log_offset", (77).to_bytes(8, "big")),
        {"UNIT_WRONG": 1, "RECORD_WITHOUT_UNIT": 1},
    ),
    "unit size": Case(
        in_queue(3, "message_size", (77).to_bytes(4, "big")),
        {"UNIT_WRONG": 1, "RECORD_WITHOUT_UNIT": 1},
    ),
    "unit tags": Case(in_queue(3, "tags_code", b"\0" * 8), {"UNIT_TAGS": 1}),
    "unit empty": Case(
        in_queue(3, "commit_log_offset", b"\0" * CQ_UNIT.size),
        {"UNIT_EMPTY": 1, "RECORD_WITHOUT_UNIT": 1},
    ),
    "queue gone": Case(lambda s: shutil.rmtree(queue_file(s).parent), {"QUEUE_MISSING": 20}),
    "queue file gone": Case(lambda s: queue_file(s).unlink(), {"RECORD_WITHOUT_UNIT": 16}),
    "queue file cut": Case(
        cut(queue_file, 100),
        {"QUEUE_FILE_SIZE": 1, "QUEUE_UNREADABLE": 1, "RECORD_WITHOUT_UNIT": 16},
    ),
    "index gone": Case(lambda s: shutil.rmtree(s.root / "index"), {"NOT_FOUND_BY_KEY": 60}),
    "index cut": Case(cut(index_file, 50), {"INDEX_UNUSABLE": 1, "NOT_FOUND_BY_KEY": 32}),
    "entry hash": Case(
        in_entry(9, "key_hash", (1 << 20).to_bytes(4, "big")),
        {"INDEX_CHAIN": 2, "INDEX_ENTRY": 1, "NOT_FOUND_BY_KEY": 1},
    ),
    "entry place": Case(
        in_entry(9, "commit_log_offset", (3).to_bytes(8, "big")),
        {"INDEX_ENTRY": 2, "NOT_FOUND_BY_KEY": 1},
    ),
    "entry chain": Case(in_entry(9, "previous_entry", (60).to_bytes(4, "big")), {"INDEX_CHAIN": 1}),
    "slot": Case(
        lambda s: put(index_file(s), INDEX_HEADER.size, b"\0\0\0\x63" * 8), {"INDEX_CHAIN": 16}
    ),
    "header": Case(
        lambda s: put(index_file(s), INDEX_HEADER.at("begin_phy_offset"), (1).to_bytes(8, "big")),
        {"INDEX_HEADER": 1},
    ),
    "checkpoint": Case(physic_time(1 << 50), {"CHECKPOINT": 1}),
    "checkpoint dispatch": Case(
        lambda s: put(s.root / "checkpoint", CHECKPOINT.at("logics_physical_offset"), NINE),
        {"CHECKPOINT": 1},
    ),
    "checkpoint sign": Case(physic_time(-5), {"CHECKPOINT": 1}),
    "topics": Case(new_file("config/topics.json", b"{no json"), {"SETTINGS_LOST": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    assert checked(store.root, SIZES).findings == ()
    CASES[name].change(store)
    report = checked(store.root, SIZES)
    assert kinds(report) == CASES[name].found, report.findings
    assert not report.is_good
    for finding in report.findings:
        assert finding.meaning
        assert finding.advice
        assert finding.examples


def test_property_crc(tmp_path: Path) -> None:
    source = golden("batch-5x")
    root = source.copy_to(tmp_path)
    row = next(row for row in source.dump("messages") if row["flag"] == 0)
    path = min((root / "commitlog").iterdir())
    flip(path, row["commit_log_offset"] + 19)  # the lowest bits of FLAG: no other check sees it
    report = checked(root, source.config_properties)
    assert kinds(report) == {"PROPERTY_CRC": 1}
    assert report.findings[0].commit_log_offset == row["commit_log_offset"]


def test_batch_units(tmp_path: Path) -> None:
    source = golden("batch-5x")
    root = source.copy_to(tmp_path)
    path = min((root / "batchconsumequeue" / "BatchTopic" / "0").iterdir())
    put(path, 2 * BATCH_CQ_UNIT.size + BATCH_CQ_UNIT.at("batch_size"), b"\0\x63")
    put(path, 5 * BATCH_CQ_UNIT.size + BATCH_CQ_UNIT.at("tags_code"), b"\x01" * 8)
    put(path, 7 * BATCH_CQ_UNIT.size, b"\0" * 7 + b"\x05")
    found = kinds(checked(root, source.config_properties))
    assert found["QUEUE_ORDER"] == 1
    assert found["UNIT_TAGS"] == 1
    assert found["UNIT_WRONG"] == 2
    assert found["RECORD_WITHOUT_UNIT"] >= 1


def test_extension_units(tmp_path: Path) -> None:
    source = golden("ext-5x")
    root = source.copy_to(tmp_path)
    path = min((root / "consumequeue_ext" / "ExtA" / "0").iterdir())
    flip(path, 9)  # the tags code of the first unit
    assert kinds(checked(root, source.config_properties)) == {"EXT_UNIT": 1}
    shutil.rmtree(root / "consumequeue_ext" / "ExtA")
    found = kinds(checked(root, source.config_properties))
    assert found == {"EXT_MISSING": 338}


def test_light_queue_units(tmp_path: Path) -> None:
    source = golden("batch-5x")
    root = source.copy_to(tmp_path)
    path = min((root / "consumequeue" / "%LMQ%alpha" / "0").iterdir())
    put(path, 4 * CQ_UNIT.size, b"\0" * 7 + b"\x05")
    found = kinds(checked(root, source.config_properties))
    assert found == {"UNIT_WRONG": 1, "RECORD_WITHOUT_UNIT": 1}


def test_a_shifted_queue_is_told_as_moved_units(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.queues["TopicA", 0].pop(3)  # as RocketMQ does when a record was not dispatched
    store.write()
    report = checked(store.root, SIZES)
    assert kinds(report) == {"UNIT_MOVED": 16, "RECORD_WITHOUT_UNIT": 1}


def test_a_topic_deleted_and_made_again_is_no_damage(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", 30)
    for queue_id in range(2):
        store.queues[("TopicA", queue_id)] = []
        for number in range(3):
            store.add("TopicA", b"again %d" % number, queue_id=queue_id, queue_offset=number)
    store.write()
    report = checked(store.root, SIZES)
    assert report.is_good, report.findings
    found = {finding.place: (finding.kind, finding.count) for finding in report.findings}
    kind = FindingKind.EARLIER_LIFE
    assert found == {"TopicA/0": (kind, 10), "TopicA/1": (kind, 10)}


def test_one_queue_of_a_topic_that_began_again_lost_its_files(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", 30)
    store.queues[("TopicA", 0)] = []
    for number in range(3):
        store.add("TopicA", b"again %d" % number, queue_offset=number)
    store.write()
    (lost,) = checked(store.root, SIZES).findings
    assert (lost.kind, lost.place) == (FindingKind.QUEUE_RESTARTED, "TopicA/0")
    assert (lost.severity, lost.count) == (Severity.DAMAGE, 10)


def test_a_deleted_topic_is_no_damage(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    for key in [key for key in store.queues if key[0] == "TopicB"]:
        del store.queues[key]
    store.write()
    assert all_kinds(checked(store.root, SIZES)) == {"EARLIER_LIFE"}


def test_old_bytes_behind_the_end_are_information(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    last = store.records[-1].commit_log_offset
    store.write(confirm_phy_offset=last)
    end = store.end_offset
    put(store.segment_path(end), end % store.segment_bytes + 8, b"old bytes")
    report = checked(store.root, SIZES)
    assert report.is_good
    (stale,) = report.findings
    assert stale.kind is FindingKind.STALE_BYTES
    assert (stale.commit_log_offset, stale.byte_count) == (end + 8, 9)


def test_a_live_store_is_checked_up_to_its_end(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    for number in range(4):
        store.add("TopicA", b"not dispatched", dispatched=False, queue_offset=20 + number)
    store.write(abort=b"1")
    with StoreLock(str(store.root)):
        report = checked(store.root, SIZES)
    assert report.state == "open in a broker"
    assert report.is_good
    assert all_kinds(report) == {"NOT_DISPATCHED"}


def test_an_expired_begin_is_good(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    store.segment_path(0).unlink()
    report = checked(store.root, SIZES)
    assert report.findings == ()
    assert report.counts.expired_units > 0
    assert report.counts.expired_index_entries > 0


def test_index_sizes_that_nothing_proves(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    for path in (store.root / "index").iterdir():
        put(path, entry_at(1), b"\0" * INDEX_ENTRY.size)
    assert "INDEX_SIZES" in all_kinds(checked(store.root))


def test_progress_ends_with_all(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    told: dict[str, tuple[int, int]] = {}
    with StoreSnapshot(store.root) as view:
        check_store(view, lambda what, done, total: told.update({what: (done, total)}))
    assert told["log"] == (store.end_offset, store.end_offset)
    assert told["index files"] == (2, 2)


def test_findings_stay_bounded() -> None:
    findings = Findings()
    for number in range(10 * MAX_PLACES):
        findings.add(FindingKind.BODY_CRC, f"file {number}", examples=["a"])
    assert len(findings.found) == MAX_PLACES + 1
    assert sum(finding.count for finding in findings.sorted()) == 10 * MAX_PLACES
    assert {f.severity for f in findings.sorted()} == {Severity.DAMAGE}


@pytest.mark.parametrize(("slot", "entry"), [(3, 0), (0, 9)])
def test_a_broken_chain_is_told_with_its_place_in_the_file(
    slot: int, entry: int, tmp_path: Path
) -> None:
    store = small_store(tmp_path)
    store.write()
    at = INDEX_HEADER.size + 4 * slot
    if entry:
        at = INDEX_HEADER.size + 4 * 8 + 20 * entry
        put(index_file(store), at + 16, (60).to_bytes(4, "big"))
    else:
        put(index_file(store), at, (99).to_bytes(4, "big"))
    found = checked(store.root, SIZES).findings
    assert at in [f.position for f in found if f.kind is FindingKind.INDEX_CHAIN]


def test_a_queue_file_far_behind_the_others_is_told_without_a_walk_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_store(tmp_path / "store", 100)
    root = store.write()
    path = queue_file(store)
    for other in set(path.parent.iterdir()) - {path}:
        other.unlink()  # otherwise their last units end the queue
    shutil.copy(path, path.with_name(f"{10**15 // 320 * 320:020d}"))
    reads = []
    true_read = CheckedQueue._read

    def read(queue: CheckedQueue, start: int, stop: int) -> object:
        reads.append((start, stop))
        assert len(reads) < 100
        return true_read(queue, start, stop)

    monkeypatch.setattr(CheckedQueue, "_read", read)
    report = checked(root)
    assert not report.is_good
    assert "QUEUE_UNREADABLE" in all_kinds(report)


def test_index_files_that_cannot_be_read_are_closed(tmp_path, monkeypatch) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    opened = []

    def unreadable(source, *_):
        opened.append(source)
        raise StoreReadError("no", source.path)

    monkeypatch.setattr(index_check, "IndexFile", unreadable)
    assert kinds(checked(store.root, SIZES))["INDEX_UNUSABLE"] == len(opened) > 0
    for source in opened:
        with pytest.raises(StoreReadError, match="was closed"):
            source.view(0, 1)


@pytest.mark.parametrize(
    ("flags", "option", "rows"),
    [
        (COMPRESSED_FLAG, {"body": "raw"}, 60),
        (INNER_BATCH_FLAG | NEED_UNWRAP_FLAG, {"mode": "PERMISSIVE"}, 59),
    ],
)
def test_what_is_advised_for_wrong_flags_reads_the_rest(tmp_path, flags, option, rows) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    record_flags(flags)(store)
    found = read_rows(store.root, ("commit_log_offset", "body"), **SIZES, **option)
    assert sum(row["body"] is not None for row in found) == rows


# Sets of ranges against Python's sets.


@given(st.lists(st.sets(numbers)), numbers, numbers)
def test_holes_are_what_is_not_in_the_set(parts: list[set[int]], start: int, stop: int) -> None:
    ranges = OffsetRanges()
    for part in parts:
        ranges.add_sorted(np.array(sorted(part), np.int64))
    held = set().union(*parts)
    assert [n for a, b in ranges.ranges() for n in range(a, b)] == sorted(held)
    holes = [n for a, b in ranges.holes(start, stop) for n in range(a, b)]
    assert holes == [n for n in range(start, stop) if n not in held]


def test_what_grows_at_the_end_is_one_range() -> None:
    ranges = OffsetRanges()
    for start in range(0, 1000, 10):
        ranges.add_sorted(np.arange(start, start + 10))
    assert ranges.ranges() == [(0, 1000)]


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 2, -(2**63), -1, 2**32])
def test_no_queue_offset_is_too_large_to_count_on_from(tmp_path, offset):
    factory = small_store(tmp_path / "store", 12)
    root = factory.write()
    for record in factory.records:
        path = root / "commitlog" / f"{record.commit_log_offset // factory.segment_bytes:020d}"
        sound = path.read_bytes()
        put(
            path,
            record.commit_log_offset + HEADER_IPV4.at("queue_offset"),
            offset.to_bytes(8, "big", signed=True),
        )
        assert "QUEUE_OFFSET" in kinds(checked(root, SIZES)), record.commit_log_offset
        path.write_bytes(sound)
    assert not kinds(checked(root, SIZES))
