# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from store_core.codec.message_codec import encode_blank, encode_message
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.layout import HEADERS
from store_core.log import log_end
from store_core.log.commit_log import CommitLog
from store_core.log.end_rules import UNKNOWN
from store_core.log.log_end import find_log_end
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import golden
from tests.store_core.damage import read_everything
from tests.store_factory import BORN_HOST, START_MS, STORE_HOST, StoreFactory, small_store

SEGMENT = 4096
HOLDER = (
    "import fcntl, sys\n"
    "f = open(sys.argv[1], 'r+b')\n"
    "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)
DAMAGED = "damaged bytes with no record after them"
ZEROS = "only zeros follow"
OLD_CUT = "the next readable record is older: it remains from an earlier cut of the log"
CONFIRMED = "the checkpoint confirms the record before it as the last"
LIVE = "a broker is writing after its last dispatched record"


def end_of(root):
    with StoreSnapshot(root) as view:
        return view.end_offset, view.end_reason


def offsets_read(root, check_crc=False):
    rows, gaps, error = read_everything(root, check_crc)
    assert error is None
    return [row["commit_log_offset"] for row in rows], gaps


def change(factory, offset, data):
    path = factory.segment_path(offset)
    content = bytearray(path.read_bytes())
    at = offset % factory.segment_bytes
    content[at : at + len(data)] = data
    path.write_bytes(content)


@contextmanager
def lock_held(root):
    """Hold the store's lock as a broker does, in a process of its own."""
    command = [sys.executable, "-c", HOLDER, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.stdin.close()
        holder.wait()


@pytest.fixture
def store(tmp_path):
    """A store of three segments, the last one half full."""
    return small_store(tmp_path / "store", 60, segment_bytes=SEGMENT)


def test_zeros_behind_the_last_record(store):
    root = store.write()
    assert end_of(root) == (store.end_offset, ZEROS)


@pytest.mark.parametrize("spare", [1, 3])
def test_segments_made_ahead_hold_no_data(store, spare):
    assert end_of(store.write(spare_segments=spare)) == (store.end_offset, ZEROS)


def test_a_blank_record_at_the_end(store):
    end = store.end_offset
    store.roll()
    root = store.write(spare_segments=1)
    assert end_of(root) == (end, "a blank record closes the last segment")
    assert offsets_read(root)[1] == []


def test_a_segment_that_is_full_to_its_last_byte(tmp_path):
    store = StoreFactory(tmp_path / "store", segment_bytes=SEGMENT)
    store.add()
    body = b"x" * (store.left_in_segment - len(store.data) + len(b"body"))
    at = store.end_offset
    store.add_bytes(encode_at(at, START_MS + 10_000, body))
    assert len(store.data) == SEGMENT
    assert end_of(store.write()) == (SEGMENT, "the last segment is full")


def encode_at(offset, time_ms, body=b"body", topic=b"TopicA", **fields):
    return encode_message(
        topic=topic,
        body=body,
        properties_raw=b"",
        commit_log_offset=offset,
        queue_offset=0,
        queue_id=0,
        born_timestamp=time_ms,
        born_host=BORN_HOST,
        store_timestamp=time_ms,
        store_host=STORE_HOST,
        **fields,
    )


@pytest.mark.parametrize(("older_by", "reason"), [(1, OLD_CUT), (0, ZEROS), (-1, ZEROS)])
def test_an_old_cut_shows_by_an_older_record_behind_it(store, older_by, reason):
    end = store.end_offset
    last_time = store.records[-1].store_timestamp
    store.add_bytes(b"rest of a record that was cut")
    behind = store.end_offset
    store.add_bytes(encode_at(behind, last_time - older_by))
    root = store.write(abort=b"")
    assert end_of(root) == (end if reason == OLD_CUT else store.end_offset, reason)
    offsets, gaps = offsets_read(root)
    assert (behind in offsets) == (reason != OLD_CUT)
    assert len(gaps) == (reason != OLD_CUT)


@pytest.mark.parametrize(
    ("confirms_last", "abort", "reason"),
    [(True, None, CONFIRMED), (False, None, DAMAGED), (True, b"", DAMAGED)],
)
def test_a_cut_behind_the_confirmed_record(store, confirms_last, abort, reason):
    end, number = store.end_offset, -1 if confirms_last else -2
    store.add_bytes(b"\xffgarbage that recovery cut off")
    confirmed = store.records[number].commit_log_offset
    root = store.write(abort=abort, confirm_phy_offset=confirmed)
    assert end_of(root) == (end if reason == CONFIRMED else store.end_offset, reason)
    assert len(offsets_read(root)[1]) == (reason != CONFIRMED)


def test_newer_records_behind_a_cut_are_not_seen_when_it_is_confirmed(store):
    """A checkpoint of a clean stop is better evidence than the bytes."""
    end = store.end_offset
    store.add_bytes(b"\xffgarbage")
    behind = store.end_offset
    store.add_bytes(encode_at(behind, store.records[-1].store_timestamp + 5))
    confirmed = store.records[-1].commit_log_offset
    assert end_of(store.write(confirm_phy_offset=confirmed)) == (end, CONFIRMED)


@pytest.mark.skipif(sys.platform != "linux", reason="locks are asked for on Linux only")
@pytest.mark.parametrize("undispatched", [0, 2])
def test_a_live_broker_writes_behind_its_last_dispatched_record(store, undispatched):
    for _ in range(undispatched):
        store.add(dispatched=False)
    end = store.end_offset
    store.add_bytes(encode_at(end, START_MS)[:60])  # half of a record
    root = store.write(abort=b"123")
    assert end_of(root) == (end + 60 - trailing_zeros(store.data), DAMAGED)
    with lock_held(root):
        assert end_of(root) == (end, LIVE)
    assert end_of(root)[1] == DAMAGED


def trailing_zeros(data):
    return len(data) - len(bytes(data).rstrip(b"\0"))


@pytest.mark.skipif(sys.platform != "linux", reason="locks are asked for on Linux only")
def test_damage_before_the_last_dispatched_record_of_a_live_store_is_damage(store):
    root = store.write(abort=b"123")
    bad = store.records[-3]
    change(store, bad.commit_log_offset + 4, b"\0\0\0\0")
    with lock_held(root):
        assert end_of(root) == (store.end_offset, ZEROS)
        offsets, gaps = offsets_read(root)
    assert bad.commit_log_offset not in offsets
    assert [gap[:2] for gap in gaps] == [(bad.commit_log_offset, bad.total_size)]


@pytest.mark.skipif(sys.platform != "linux", reason="locks are asked for on Linux only")
def test_a_damaged_queue_of_a_live_store_hides_no_record(store):
    """The content of the queue is not known, so bytes that fail are not taken for the end."""
    root = store.write(abort=b"123")
    end = store.end_offset
    bad = store.records[-1]
    change(store, bad.commit_log_offset + 4, b"\0\0\0\0")
    for path in (root / "consumequeue").rglob("0" * 20):
        path.rename(path.with_name(f"{7:020d}"))
    with lock_held(root):
        assert end_of(root) == (end - trailing_zeros(store.data), DAMAGED)


def test_garbage_at_the_tail_is_one_gap(store):
    end = store.end_offset
    store.add_bytes(b"\xff" * 100)
    root = store.write()
    assert end_of(root) == (end + 100, DAMAGED)
    offsets, gaps = offsets_read(root)
    assert offsets == [r.commit_log_offset for r in store.records]
    assert [gap[:2] for gap in gaps] == [(end, 100)]


def test_a_zeroed_page_with_newer_records_behind_is_damage(store):
    root = store.write()
    last = [r for r in store.records if r.commit_log_offset >= 2 * SEGMENT]
    start, stop = last[1].commit_log_offset, last[4].commit_log_offset
    change(store, start, bytes(stop - start))
    assert end_of(root) == (store.end_offset, ZEROS)
    offsets, gaps = offsets_read(root)
    assert offsets == [
        r.commit_log_offset for r in store.records if not start <= r.commit_log_offset < stop
    ]
    assert [gap[:2] for gap in gaps] == [(start, stop - start)]


def test_a_body_with_a_wrong_crc_at_the_end_is_no_proof_of_anything(store):
    root = store.write(abort=b"")
    last = store.records[-1]
    body_at = store.end_offset - len(last.properties_raw) - 2 - len("TopicA") - 1 - 1
    assert last.body
    change(store, body_at, b"\xee")
    assert end_of(root) == (store.end_offset, DAMAGED)
    assert last.commit_log_offset in offsets_read(root)[0]
    assert last.commit_log_offset not in offsets_read(root, check_crc=True)[0]


@pytest.mark.parametrize("checkpoint", [None, b"", b"\xff" * 4096, b"\x7f" * 40, bytes(24)])
def test_a_damaged_or_missing_checkpoint_does_not_move_the_end(store, checkpoint):
    root = store.write()
    if checkpoint is None:
        (root / "checkpoint").unlink()
    else:
        (root / "checkpoint").write_bytes(checkpoint)
    assert end_of(root) == (store.end_offset, ZEROS)


def test_a_checkpoint_that_names_no_record_is_not_followed(store):
    end = store.end_offset
    store.add_bytes(b"\xffgarbage")
    for confirmed in (1, -5, 2 * SEGMENT + 3, 2**62, end):
        assert end_of(store.write(confirm_phy_offset=confirmed)) == (store.end_offset, DAMAGED)


@pytest.mark.parametrize("name", ["classic-4x", "classic-5x", "expired-5x", "multipath-5x"])
def test_stores_that_stopped_cleanly_end_where_rocketmq_says(name):
    found = golden(name)
    config = MessageStoreConfig.from_properties(found.config_properties)
    with StoreSnapshot(found.root, config) as view:
        assert view.end_offset == found.meta["max_phy_offset"]


def test_a_crashed_store_has_what_recovery_would_dispatch():
    found = golden("crashed-5x")
    with StoreSnapshot(found.root) as view:
        assert (view.end_offset, view.end_reason) == (found.meta["max_phy_offset"], ZEROS)


@pytest.mark.parametrize("name", ["crashed-5x", "torn-5x"])
def test_a_recovered_store_ends_where_recovery_cut(name):
    found = golden(name, recovered=True)
    offsets, gaps = offsets_read(found.root)
    assert offsets == [row["commit_log_offset"] for row in found.dump("messages")]
    assert gaps == []
    assert end_of(found.root)[0] == found.meta["max_phy_offset"]


def test_a_torn_store_keeps_what_lies_behind_its_damage():
    found = golden("torn-5x")
    torn = json.loads((found.directory / "config.json").read_text())["torn"]
    offsets, gaps = offsets_read(found.root)
    before = [row["commit_log_offset"] for row in found.dump("messages")]
    whole = [row["commit_log_offset"] for row in golden("crashed-5x").dump("messages")]
    assert offsets[: len(before)] == before
    assert offsets == [offset for offset in whole if offset != torn["torn_record_offset"]]
    assert [gap.commit_log_offset for gap in gaps] == [
        torn["torn_record_offset"],
        torn["garbage_offset"],
    ]


class NothingKnown:
    """Queues that are gone."""

    def states_of(self, frames):
        return np.full(len(frames), UNKNOWN, np.int8)


@dataclass
class NoEvidence:
    """A store of which only the log is left."""

    stopped_cleanly: bool = True
    is_slave: bool = False
    confirm_phy_offset: int | None = None
    logics_msg_timestamp: int | None = None
    physic_msg_timestamp: int | None = None
    never_recovered: bool = False

    def unit_states(self, offset, gap_bytes):
        return NothingKnown()

    def is_live(self):
        return False

    def indexed_offset(self):
        return None

    def last_dispatched(self):
        return -1, 0

    def uncommitted_offset(self):
        return None


class AllDispatched(NoEvidence):
    """A live store in which everything written before the query is dispatched."""

    stopped_cleanly = False

    def is_live(self):
        return True

    def last_dispatched(self):
        return 3 * SEGMENT, 3 * SEGMENT


@pytest.mark.parametrize("what", ["the blank", "a record"])
def test_a_broker_writes_where_the_log_ends_while_that_is_looked_at(store, monkeypatch, what):
    """It wrote and dispatched the next records after the walk, before the queues were read."""
    end = store.end_offset
    record = encode_at(end, START_MS + 10_000)
    data = encode_blank(store.left_in_segment) if what == "the blank" else record
    root = store.write()
    look = log_end.first_nonzero

    def write_before(source, start=0, stop=None):
        if start == end % SEGMENT:
            with store.segment_path(end).open("r+b") as file:
                file.seek(start)
                file.write(data)
        return look(source, start, stop)

    monkeypatch.setattr(log_end, "first_nonzero", write_before)
    found = ends(root, -1, AllDispatched())
    if what == "the blank":
        assert found.reason == "a blank record closes the last segment"
        assert found.end_offset == end
    else:
        assert found.end_offset == end + len(record)


def ends(root, proven_start, evidence=None):
    log = CommitLog(StoreDirectory(str(root)), MessageStoreConfig())
    found = find_log_end(log, evidence or NoEvidence(), proven_start)
    log.close()
    return found


def test_the_walk_begins_at_a_proven_record(store):
    """Damage before it, followed by an old record, would be taken for the end of the log."""
    last = [r for r in store.records if r.commit_log_offset >= 2 * SEGMENT]
    root = store.write()
    change(store, last[2].commit_log_offset + 4, b"\0\0\0\0")
    for old in last[3:5]:
        header = HEADERS[len(old.born_host) > 8, False]
        change(store, old.commit_log_offset + header.at("store_timestamp"), bytes(8))
    cut = ends(root, -1)
    assert (cut.end_offset, cut.reason) == (last[2].commit_log_offset, OLD_CUT)
    proven = ends(root, last[5].commit_log_offset)
    assert proven.end_offset == store.end_offset
    assert proven.proven_start == store.records[-1].commit_log_offset
    for no_record in (last[5].commit_log_offset + 1, 0, 2**62, last[2].commit_log_offset):
        assert ends(root, no_record) == cut


def test_a_second_view_starts_at_what_the_first_proved(store):
    root = store.write()
    assert end_of(root)[0] == store.end_offset
    before = store.end_offset
    store.add()
    store.write()
    assert end_of(root)[0] == store.end_offset > before


def test_another_store_at_the_same_place_is_walked_anew(store):
    root = store.write()
    assert end_of(root)[0] == store.end_offset
    other = small_store(root, 58, segment_bytes=SEGMENT, step_ms=7)
    other.write()
    assert end_of(root)[0] == other.end_offset


def test_a_recovery_that_cut_before_the_proven_record_is_seen(store):
    """The proven record's bytes remain after the cut; the checkpoint shows the recovery."""
    root = store.write()
    assert end_of(root)[0] == store.end_offset
    change(store, store.records[-3].commit_log_offset + 4, b"\0\0\0\0")
    confirmed = store.records[-4].commit_log_offset
    data = bytearray((root / "checkpoint").read_bytes())
    data[8:16] = store.records[-4].store_timestamp.to_bytes(8, "big")
    data[32:40] = confirmed.to_bytes(8, "big")
    (root / "checkpoint").write_bytes(data)
    assert end_of(root) == (store.records[-3].commit_log_offset, CONFIRMED)


def test_an_empty_log(tmp_path):
    store = StoreFactory(tmp_path / "store", segment_bytes=SEGMENT)
    root = store.write()
    assert end_of(root) == (0, "the log holds no data")
    assert offsets_read(root) == ([], [])
    store.segment_path().unlink()
    assert end_of(root) == (0, "the log holds no data")


@pytest.mark.parametrize("first", [SEGMENT, 10 * SEGMENT])
def test_a_log_whose_beginning_expired(tmp_path, first):
    store = small_store(tmp_path / "store", 40, segment_bytes=SEGMENT, first_offset=first)
    root = store.write()
    assert end_of(root) == (store.end_offset, ZEROS)
    assert offsets_read(root)[0] == [r.commit_log_offset for r in store.records]
