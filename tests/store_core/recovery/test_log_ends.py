# SPDX-License-Identifier: Apache-2.0
"""Readers and recovery agree on where a log ends: old cuts, damage, remains of a crash."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core import MessageStore, MessageStoreConfig
from store_core.commit_job import close_committed, open_for_commit
from store_core.errors import LogDamageError
from store_core.layout import CHECKPOINT, CQ_UNIT, HEADER_IPV4
from store_core.log.end_rules import CRASH_TAIL, DAMAGED, NEVER_DISPATCHED, UNFINISHED_APPEND
from store_core.recovery.recovery_plan import Loss
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.staged_commit.staging import CrashPoints
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.golden_store import golden
from tests.store_core.damage import read_everything
from tests.store_factory import START_MS, StoreFactory

NOW_MS = 1_800_000_000_000
SMALL = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)
RECORDS = 24
SEGMENT = 1024
CHECKPOINTS = ("5x", "4x", "damaged", "missing")


class CutStore:
    """A store that tore at a record, as RocketMQ recovered it and stopped it cleanly.

    Nothing is erased: bytes remain after the cut in its segment, later segments are deleted, units
    of records that were dispatched before the crash stay in their queues.

    Parameters
    ----------
    torn
        Number of the record that tore.
    Number of records that were dispatched before the crash.
        So many records were dispatched before the crash.
    checkpoint
        One of ``CHECKPOINTS``.
    """

    def __init__(self, root: Path, torn: int, dispatched: int, checkpoint: str) -> None:
        self.factory = StoreFactory(root, segment_bytes=SEGMENT)
        for number in range(RECORDS):
            self.factory.add(
                "TopicA",
                b"body %d" % number * (number % 4),
                queue_id=number % 2,
                properties={"KEYS": f"k{number}"},
                dispatched=number < max(dispatched, torn),
                queue_offset=number // 2,
            )
        record = self.factory.records[torn]
        self.torn, self.at = torn, record.commit_log_offset
        border = self.at - self.at % SEGMENT + SEGMENT
        self.stale = [r for r in self.factory.records[torn + 1 :] if r.commit_log_offset < border]
        del self.factory.data[border:]
        self.factory.data[self.at + 4] ^= 0xFF  # no magic code of a record
        self.stale_end = torn + 1 + len(self.stale)
        self.root = self.factory.write()
        for path in (self.root / "index").iterdir():  # RocketMQ deletes the newest
            path.unlink()
        last = self.factory.records[torn - 1] if torn else None
        self._write_checkpoint(checkpoint, last)

    def _write_checkpoint(self, kind: str, last: object) -> None:
        path = self.root / "checkpoint"
        time_ms = last.store_timestamp if last else 0
        confirmed = last.commit_log_offset if last and kind == "5x" else 0
        if kind == "missing":
            path.unlink()
        elif kind == "damaged":
            path.write_bytes(b"\0" * 4096)
        else:
            data = CHECKPOINT.struct.pack(time_ms, time_ms, 0, 0, confirmed, 0)
            path.write_bytes(data.ljust(4096, b"\0"))


def reading(root: Path) -> tuple[list[int], int, int, str]:
    rows, gaps, error = read_everything(root)
    assert error is None
    with StoreSnapshot(root, SMALL) as view:
        return (
            [row["commit_log_offset"] for row in rows],
            len(gaps),
            view.end_offset,
            view.end_reason,
        )


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("phantoms", [0, 1, 2, RECORDS])
def test_what_a_cut_left_is_no_message(tmp_path, checkpoint, phantoms):
    """For each record that may have torn, including the first one of a segment."""
    borders = judged = 0
    for torn in range(1, RECORDS):
        store = CutStore(tmp_path / str(torn), torn, torn + phantoms, checkpoint)
        if not store.stale or (is_gone(checkpoint) and torn + phantoms >= store.stale_end):
            continue  # nothing readable is there, or it cannot be distinguished from damage
        kept = [r.commit_log_offset for r in store.factory.records[:torn]]
        offsets, gaps, end, reason = reading(store.root)
        assert (offsets, gaps, end) == (kept, 0, store.at), (torn, reason)
        planned = plan_recovery(str(store.root), SMALL).log
        assert (planned.log_end, planned.loss, planned.reason) == (store.at, Loss.OLD_CUT, reason)
        borders, judged = borders + (store.at % SEGMENT == 0), judged + 1
    assert judged > 15 or is_gone(checkpoint)
    assert borders == 2 or (is_gone(checkpoint) and phantoms == RECORDS)


def is_gone(checkpoint):
    return checkpoint in {"damaged", "missing"}


@pytest.mark.parametrize("confirmed", ["none", "the record before"])
def test_damage_of_a_store_that_was_stopped_cleanly_is_no_cut(tmp_path, confirmed):
    """Even the first record that was appended after a start: the one before is confirmed."""
    factory = StoreFactory(tmp_path, segment_bytes=SEGMENT)
    for number in range(RECORDS):
        factory.add(queue_id=number % 2, properties={"KEYS": f"k{number}"})
    whole = bytes(factory.data)
    starts = [r.commit_log_offset for r in factory.records]
    for bad in range(1, RECORDS - 1):
        factory.data[:] = whole
        factory.data[starts[bad] + 4] ^= 0xFF
        before = starts[bad - 1] if confirmed == "the record before" else 0
        root = factory.write(confirm_phy_offset=before)
        offsets, gaps, _, reason = reading(root)
        assert (offsets, gaps) == (starts[:bad] + starts[bad + 1 :], 1), (bad, reason)
        planned = plan_recovery(str(root), SMALL).log
        if starts[bad] >= planned.start_offset:  # earlier bytes are not read
            assert (planned.log_end, planned.loss) == (starts[bad], Loss.MESSAGES), bad
            assert planned.reason == DAMAGED


def test_a_queue_that_lost_its_end_says_nothing_of_the_log(tmp_path):
    """Two faults: missing units are no sign of a cut if the queue also lacks older ones."""
    factory = StoreFactory(tmp_path, segment_bytes=1 << 14)
    for _ in range(40):
        factory.add()
    del factory.queues["TopicA", 0][20:]
    bad = factory.records[30].commit_log_offset
    factory.data[bad + 4] ^= 0xFF
    root = factory.write()
    assert reading(root)[:2] == (
        [r.commit_log_offset for r in factory.records if r.commit_log_offset != bad],
        1,
    )


def test_a_queue_that_is_lost_says_nothing_of_the_log(tmp_path):
    factory = StoreFactory(tmp_path, segment_bytes=1 << 14)
    for number in range(40):
        factory.add(queue_id=number % 2)
    del factory.queues["TopicA", 1]
    bad = factory.records[38].commit_log_offset
    factory.data[bad + 4] ^= 0xFF
    assert len(reading(factory.write())[0]) == 39


def test_a_queue_offset_that_is_taken_tells_a_cut(tmp_path):
    """Records of the same time follow the cut, and the checkpoint with the end is missing."""
    factory = StoreFactory(tmp_path, segment_bytes=1 << 14, step_ms=0)
    for _ in range(5):
        factory.add()
    factory.add_bytes(b"\xff" * 60)
    end = factory.end_offset - 60
    for number in range(2, 9):  # the units of all except the first are there
        factory.add(dispatched=number > 4, queue_offset=number)
    root = factory.write()
    (root / "checkpoint").unlink()
    kept = [r.commit_log_offset for r in factory.records[:5]]
    assert reading(root) == (kept, 0, end, NEVER_DISPATCHED)


def crashed(root: Path, *, units: int, flushed: int) -> tuple[StoreFactory, int]:
    """Return a crashed store of 12 records of which the 6th tore, and that one's offset.

    ``units`` and ``flushed`` say how many records were dispatched and flushed.
    """
    factory, at = written(root, units=units)
    factory.data[at + 90] ^= 0xFF
    crash(factory, flushed)
    return factory, at


def written(root: Path, *, units: int, **fields: object) -> tuple[StoreFactory, int]:
    """Return a store of 12 records, so many of them dispatched, and the 6th one's offset."""
    factory = StoreFactory(root)
    for number in range(12):
        factory.add(
            queue_id=number % 2, dispatched=number < units, queue_offset=number // 2, **fields
        )
    return factory, factory.records[5].commit_log_offset


def crash(factory: StoreFactory, flushed: int) -> None:
    """Write the files of a store that crashed when so many records were flushed."""
    factory.write(abort=b"1")
    time_ms = factory.records[flushed - 1].store_timestamp
    data = CHECKPOINT.struct.pack(time_ms, START_MS, 0, 0, 0, 0)
    (factory.root / "checkpoint").write_bytes(data.ljust(4096, b"\0"))


@pytest.mark.parametrize(
    ("units", "flushed", "loss"),
    [
        (0, 4, Loss.CRASH_TAIL),
        (5, 5, Loss.CRASH_TAIL),
        (6, 5, Loss.CRASH_TAIL),  # a unit of the torn record saves nothing
        (7, 5, Loss.MESSAGES),
        (12, 5, Loss.MESSAGES),
        (5, 7, Loss.MESSAGES),
        (5, 12, Loss.MESSAGES),
    ],
)
def test_only_what_was_neither_flushed_nor_dispatched_is_a_tail(tmp_path, units, flushed, loss):
    _, at = crashed(tmp_path, units=units, flushed=flushed)
    before = files(tmp_path)
    planned = plan_recovery(str(tmp_path), SMALL).log
    assert (planned.log_end, planned.loss, planned.records_behind) == (at, loss, 6)
    if loss is Loss.CRASH_TAIL:
        done = recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS).log
        assert (done.loss, done.reason) == (loss, CRASH_TAIL)
        (kept,) = Path(done.kept_at).iterdir()
        assert kept.read_bytes() == before[f"commitlog/{0:020d}"][at:].rstrip(b"\0")
        return
    with pytest.raises(LogDamageError, match=r"6 readable records.*--cut"):
        recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS)
    assert files(tmp_path)[f"commitlog/{0:020d}"] == before[f"commitlog/{0:020d}"]
    done = recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS, cut=True).log
    assert (done.log_end, done.loss, len(list(Path(done.kept_at).iterdir()))) == (at, loss, 1)


@pytest.mark.parametrize("number", [3, 4, 6, 7, 11])
@pytest.mark.parametrize("said", [1, -1, START_MS - 1, START_MS + 11, 1 << 62])
def test_one_wrong_time_makes_no_old_cut_of_damage(tmp_path, said, number):
    factory, at = crashed(tmp_path, units=12, flushed=12)
    record = factory.records[number]
    with factory.segment_path(record.commit_log_offset).open("r+b") as file:
        file.seek(record.commit_log_offset + HEADER_IPV4.at("store_timestamp"))
        file.write(said.to_bytes(8, "big", signed=True))
    with pytest.raises(LogDamageError, match=r"6 readable records.*--cut"):
        recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS)
    assert plan_recovery(str(tmp_path), SMALL).log.log_end == at


@pytest.mark.parametrize("said", [START_MS + 1, 1 << 62, START_MS - 1, 1, -1])
def test_one_wrong_time_makes_none_where_all_records_are_of_the_last_dispatch(tmp_path, said):
    """Damage in a busy log: the checkpoint's time is that of the record before, and of the last."""
    factory = StoreFactory(tmp_path, segment_bytes=1 << 14, step_ms=0)
    for number in range(RECORDS):
        factory.add(queue_id=number % 2)
    whole, bad = bytes(factory.data), RECORDS // 2
    starts = [record.commit_log_offset for record in factory.records]
    for wrong in {*range(bad - 2, RECORDS)} - {bad}:
        factory.data[:] = whole
        factory.data[starts[bad] + 4] ^= 0xFF
        at = starts[wrong] + HEADER_IPV4.at("store_timestamp")
        factory.data[at : at + 8] = said.to_bytes(8, "big", signed=True)
        root = factory.write()
        assert reading(root)[:2] == (starts[:bad] + starts[bad + 1 :], 1), wrong
        planned = plan_recovery(str(root), SMALL).log
        assert (planned.log_end, planned.loss) == (starts[bad], Loss.MESSAGES), wrong


@pytest.mark.parametrize("abort", [None, b"1"])
@pytest.mark.parametrize("step_ms", [0, 1000])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_field_of_another_record_makes_a_cut_of_damage(tmp_path, abort, step_ms, data):
    """Any bit of a header, except the first twelve bytes, which say that there is a record."""
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    factory = StoreFactory(root, step_ms=step_ms)
    for number in range(12):
        factory.add(queue_id=number % 2)
    starts = [record.commit_log_offset for record in factory.records]
    factory.data[starts[5] + 4] ^= 0xFF
    number = data.draw(st.sampled_from([3, 4, 6, 7, 11]), "record")
    byte = data.draw(st.integers(12, HEADER_IPV4.size - 1), "byte")
    factory.data[starts[number] + byte] ^= 1 << data.draw(st.integers(0, 7), "bit")
    planned = plan_recovery(str(factory.write(abort=abort)), SMALL).log
    assert planned.loss is Loss.MESSAGES


@pytest.mark.parametrize("byte", [0, 7, 8, 11])
def test_a_damaged_unit_is_not_taken_for_none(tmp_path, byte):
    """The unit of the last record, which follows a damaged record of the same millisecond."""
    factory = StoreFactory(tmp_path, step_ms=0)
    for number in range(12):
        factory.add(queue_id=number % 2)
    bad = factory.records[10].commit_log_offset
    factory.data[bad + 4] ^= 0xFF
    path = factory.write() / "consumequeue/TopicA/1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[CQ_UNIT.size * 5 + byte] ^= 0x80
    path.write_bytes(data)
    planned = plan_recovery(str(tmp_path), SMALL).log
    assert (planned.log_end, planned.loss, planned.records_behind) == (bad, Loss.MESSAGES, 1)


@pytest.mark.parametrize(("bad", "set_back_ms"), [(6, 60_000), (3, 0)])
def test_what_an_old_cut_left_makes_no_cut_of_damage(tmp_path, bad, set_back_ms):
    """Damage where the clock was set back, or right after the last record recovery accepted.

    Remains of the cut follow the last record of the log, which the checkpoint calls dispatched.
    """
    factory = StoreFactory(tmp_path)
    for number in range(16):
        factory.add(dispatched=number < 3, queue_offset=number)
    cut = factory.records[3].commit_log_offset
    stale = factory.data[cut:]
    stale[4] ^= 0xFF
    del factory.data[cut:], factory.records[3:]
    for number in range(3, 9):
        if number == 6:
            factory.set_back(set_back_ms)
        factory.add(body=b"other sizes", queue_offset=number)
    factory.data += stale[factory.end_offset - cut :]
    starts = [record.commit_log_offset for record in factory.records]
    factory.data[starts[bad] + 4] ^= 0xFF
    root = factory.write(confirm_phy_offset=0 if set_back_ms else starts[2])
    assert reading(root)[0] == starts[:bad] + starts[bad + 1 :]
    planned = plan_recovery(str(root), SMALL).log
    assert (planned.log_end, planned.loss) == (starts[bad], Loss.MESSAGES)


def test_a_clock_that_was_set_back_before_a_crash_makes_no_cut_of_what_was_flushed(tmp_path):
    factory = StoreFactory(tmp_path)
    for number in range(12):
        if number == 6:
            factory.set_back(60_000)
        factory.add(dispatched=number < 6, queue_offset=number)
    bad = factory.records[6].commit_log_offset
    factory.data[bad + 4] ^= 0xFF
    root = factory.write(abort=b"1")
    times = [record.store_timestamp for record in factory.records]
    point = CHECKPOINT.struct.pack(times[11], times[5], 0, 0, 0, 0)
    (root / "checkpoint").write_bytes(point.ljust(4096, b"\0"))
    planned = plan_recovery(str(root), SMALL).log
    assert (planned.log_end, planned.loss, planned.records_behind) == (bad, Loss.MESSAGES, 5)
    with pytest.raises(LogDamageError, match=r"5 readable records.*--cut"):
        recover_store(str(root), SMALL, clock=lambda: NOW_MS)


def test_what_was_refused_once_is_refused_again(tmp_path):
    """Queues rebuilt up to the damage would suggest that no later record was dispatched."""
    factory = StoreFactory(tmp_path, segment_bytes=SEGMENT)
    for number in range(RECORDS):
        factory.add(queue_id=number % 2)
    bad = factory.records[-3].commit_log_offset
    factory.data[bad + 4] ^= 0xFF
    root = factory.write()
    shutil.rmtree(root / "consumequeue")
    before = files(root)
    for _ in range(2):
        with pytest.raises(LogDamageError, match=r"2 readable records.*--cut"):
            recover_store(str(root), SMALL, clock=lambda: NOW_MS)
        assert plan_recovery(str(root), SMALL).log.loss is Loss.MESSAGES
        assert {name: data for name, data in files(root).items() if data} == before


_BODY_CRC_AT = 8


@pytest.mark.parametrize("is_dispatched", [True, False])
@pytest.mark.parametrize("abort", [None, b"1"])
def test_a_last_record_that_fails_its_crc(tmp_path, abort, is_dispatched):
    """Half written before a crash, or cut by RocketMQ 4.x, it is no message; else it is damaged.

    After a crash it is damaged if the checkpoint says that the log was forced up to it. A damaged
    record is kept.
    """
    factory = StoreFactory(tmp_path, segment_bytes=SEGMENT)
    for number in range(RECORDS):
        is_last = number == RECORDS - 1
        factory.add(queue_id=number % 2, dispatched=is_dispatched or not is_last)
    last = factory.records[-1].commit_log_offset
    factory.data[last + _BODY_CRC_AT] ^= 1
    root = factory.write(abort=abort)
    before = files(root)
    planned = plan_recovery(str(root), SMALL).log
    if abort and is_dispatched:
        assert (planned.log_end, planned.loss) == (last, Loss.END)
        with (root / "checkpoint").open("r+b") as file:
            file.write(factory.records[-2].store_timestamp.to_bytes(8, "big"))
        planned = plan_recovery(str(root), SMALL).log
    if abort or not is_dispatched:
        assert (planned.log_end, planned.loss) == (last, Loss.NOTHING)
        return
    assert (planned.log_end, planned.loss, planned.records_behind) == (last, Loss.MESSAGES, 1)
    for open_it in (
        lambda: MessageStore(replace(SMALL, store_path_root_dir=str(root))).load(cut=False),
        lambda: recover_store(str(root), SMALL, clock=lambda: NOW_MS),
    ):
        with pytest.raises(LogDamageError, match=r"the last record fails its CRC.*--cut"):
            open_it()
    assert files(root).items() >= before.items()
    done = recover_store(str(root), SMALL, clock=lambda: NOW_MS, cut=True).log
    (kept,) = Path(done.kept_at).iterdir()
    segment = f"commitlog/{last - last % SEGMENT:020d}"
    assert kept.read_bytes() == before[segment][last % SEGMENT :].rstrip(b"\0")


def test_a_unit_behind_a_hole_proves_that_its_record_was_dispatched(tmp_path):
    crashed(tmp_path, units=12, flushed=5)
    for queue_id in (0, 1):  # nothing is left of the first units
        path = tmp_path / "consumequeue/TopicA" / str(queue_id) / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[CQ_UNIT.size * 1 + 8 : CQ_UNIT.size * 1 + 12] = b"\xff\xff\xff\xff"
        path.write_bytes(data)
    assert plan_recovery(str(tmp_path), SMALL).log.loss is Loss.MESSAGES


@pytest.mark.parametrize("bad", [[10, 11], [6, 7, 10, 11]])
def test_a_last_unit_of_a_damaged_record_hides_no_units_before_it(tmp_path, bad):
    """Two places of a crashed store are damaged, one of which has the last unit of each queue."""
    factory, _ = crashed(tmp_path, units=12, flushed=5)
    for number in bad:
        factory.data[factory.records[number].commit_log_offset + 4] ^= 0xFF
    data = bytes(factory.data).ljust(factory.segment_bytes, b"\0")
    factory.segment_path().write_bytes(data)
    assert plan_recovery(str(tmp_path), SMALL).log.loss is Loss.MESSAGES


def test_a_torn_unit_before_damage_is_mended_only_when_it_is_known_what_follows(tmp_path):
    """Units after a torn one go with it: the next try would take the records for a crash's tail."""
    factory, at = crashed(tmp_path, units=12, flushed=5)
    for queue_id in (0, 1):
        path = tmp_path / "consumequeue/TopicA" / str(queue_id) / f"{0:020d}"
        data = bytearray(path.read_bytes())
        start, size, code = CQ_UNIT.struct.unpack_from(data)
        CQ_UNIT.struct.pack_into(data, 0, start + 1, size, code)  # of no record
        path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(LogDamageError, match=r"6 readable records.*--cut"):
            recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS)
    assert factory.segment_path().read_bytes()[at:].rstrip(b"\0")


@pytest.mark.parametrize("topic", ["TopicA", "T" * 130])
@pytest.mark.parametrize("units", [0, 5])
def test_an_append_that_a_kill_interrupted_is_no_damage(tmp_path, units, topic):
    """Several messages in one call are one write, whose first eight bytes are written last."""
    factory, at = written(tmp_path, units=units, topic=topic)
    factory.data[at : at + 8] = bytes(8)
    crash(factory, 4)
    kept = [record.commit_log_offset for record in factory.records[:5]]
    assert reading(tmp_path) == (kept, 0, at, UNFINISHED_APPEND)
    planned = plan_recovery(str(tmp_path), SMALL).log
    assert (planned.log_end, planned.loss, planned.records_behind) == (at, Loss.CRASH_TAIL, 6)
    done = recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS).log
    assert (done.reason, len(list(Path(done.kept_at).iterdir()))) == (UNFINISHED_APPEND, 1)
    assert reading(tmp_path)[:3] == (kept, 0, at)


@pytest.mark.parametrize(
    ("units", "flushed"),
    [(6, 5), (7, 5), (12, 5), (5, 6), (5, 7), (5, 12)],
)
def test_what_was_flushed_or_dispatched_was_appended(tmp_path, units, flushed):
    """Even if that is true only for the record without its first bytes."""
    factory, at = written(tmp_path, units=units)
    factory.data[at : at + 8] = bytes(8)
    crash(factory, flushed)
    shown = [record.commit_log_offset for record in factory.records]
    assert reading(tmp_path)[:2] == ([*shown[:5], *shown[6:]], 1)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_whole_records_were_appended_at_once(tmp_path, data):
    """If any other bit of the first record that its CRC covers is wrong, it is damage."""
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    factory, at = written(root, units=5)
    factory.data[at : at + 8] = bytes(8)
    body = range(HEADER_IPV4.size, HEADER_IPV4.size + len(b"body"))
    byte = data.draw(st.sampled_from([*range(12), *range(28, 36), *body]), "byte")
    factory.data[at + byte] ^= 1 << data.draw(st.integers(0, 7), "bit")
    crash(factory, 5)
    assert reading(root)[1] == 1


def test_a_store_that_was_stopped_cleanly_has_no_interrupted_append(tmp_path):
    factory, at = written(tmp_path, units=12)
    factory.data[at : at + 8] = bytes(8)
    factory.write()
    assert reading(tmp_path)[1] == 1
    assert plan_recovery(str(tmp_path), SMALL).log.loss is Loss.MESSAGES


def test_the_sink_cuts_no_message_of_a_crash(tmp_path):
    crashed(tmp_path, units=5, flushed=5)
    before = files(tmp_path)
    with pytest.raises(LogDamageError, match="rocketmq-store recover`"):
        open_for_commit(str(tmp_path), SMALL, lambda: NOW_MS, CrashPoints())
    assert files(tmp_path) == before
    recover_store(str(tmp_path), SMALL, clock=lambda: NOW_MS)
    opened = open_for_commit(str(tmp_path), SMALL, lambda: NOW_MS, CrashPoints())
    close_committed(opened, clean=True)


def test_a_torn_golden_store_keeps_what_was_dispatched(tmp_path):
    """Of the 99 readable records after the torn one 19 are in queues: this is no crash's tail."""
    store = golden("torn-5x")
    root = store.copy_to(tmp_path)
    config = MessageStoreConfig.from_properties(store.config_properties)
    before = files(root)
    with pytest.raises(LogDamageError, match=r"99 readable records.*--cut"):
        recover_store(str(root), config, clock=lambda: NOW_MS)
    after = files(root)
    assert {name for name in before if name.startswith("commitlog")} <= {
        name for name, data in before.items() if after.get(name) == data
    }


def files(root: Path) -> dict[str, bytes]:
    """Return the content of all files except the lock."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
