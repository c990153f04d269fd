# SPDX-License-Identifier: Apache-2.0
"""A stream whose store loses messages, read or not read yet: no loss is silent."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from pathlib import Path

import pytest

from rmqsource.errors import StreamDataLossError
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from rmqsource.stream import followed_store
from store_core.errors import StoreNotFoundError
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.rmqsource.stream.growing_store import GrowingStore, bodies
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery, follow, where

pytestmark = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS,
    reason="before Spark 4.2 a source is not told where a batch starts",
)
BODY = ("body",)
LOSSY = {"failOnDataLoss": "false"}


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        yield store


def refused(checkpoint: Checkpoint, root: Path, *words: str) -> None:
    """Check that a query is refused with all the words, delivers nothing, and stays refused."""
    before = list(checkpoint.rows)
    for _ in range(2):
        with pytest.raises(StreamDataLossError) as failure:
            follow(checkpoint, root, BODY)
        for word in (str(root), "failOnDataLoss", *words):
            assert word in str(failure.value)
    assert checkpoint.rows == before


def offset_of(checkpoint: Checkpoint) -> int:
    (store,) = json.loads(checkpoint.offsets[-1])["stores"].values()
    return store["offset"]


def test_segments_that_expire_before_they_are_read(growing, caplog):
    checkpoint = Checkpoint()
    growing.put(10)
    follow(checkpoint, growing.root, BODY)
    read = offset_of(checkpoint)
    growing.put(200)
    growing.expire(3)
    refused(checkpoint, growing.root, f"bytes {read} to 12288 of the log expired")
    with caplog.at_level(logging.WARNING):
        rows = follow(checkpoint, growing.root, BODY, **LOSSY)
    assert f"bytes {read} to 12288" in caplog.text
    left = growing.put_bodies[-len(rows) + 10 :]
    assert bodies(rows) == growing.put_bodies[:10] + left
    assert len(left) < 200
    # The checkpoint has it too.
    resumed = [
        json.loads(text)["stores"][str(growing.root)].get("begin") for text in checkpoint.offsets
    ]
    assert {"offset": 12288, "why": "resumed"} in resumed


def test_segments_that_expire_after_they_were_read_are_no_loss(growing):
    checkpoint = Checkpoint()
    growing.put(200)
    follow(checkpoint, growing.root, BODY)
    growing.expire(len(growing.segments()) - 1)
    growing.put(5)
    assert bodies(follow(checkpoint, growing.root, BODY)) == growing.put_bodies


def test_a_log_that_was_cut_after_it_was_read(growing, caplog):
    """A crashed broker comes back without its last messages, and writes others in their place."""
    checkpoint = Checkpoint()
    growing.put(10)
    follow(checkpoint, growing.root, BODY)
    saved = growing.root.with_name("saved")
    growing.close()
    shutil.copytree(growing.root, saved)
    growing.open()
    growing.put(6)
    follow(checkpoint, growing.root, BODY)
    read = offset_of(checkpoint)
    growing.close()
    shutil.rmtree(growing.root)
    saved.rename(growing.root)
    growing.open()
    refused(checkpoint, growing.root, f"up to offset {read}", "its log ends at", "the log was cut")
    del growing.put_bodies[10:]
    growing.put(7, size=40)
    refused(checkpoint, growing.root, "there are other records now", "the log was cut")
    with caplog.at_level(logging.WARNING):
        assert len(follow(checkpoint, growing.root, BODY, **LOSSY)) == 16
    assert "the log was cut" in caplog.text
    growing.put(2)
    rows = follow(checkpoint, growing.root, BODY)  # it is whole again
    assert bodies(rows)[16:] == growing.put_bodies[-2:]


def test_a_store_that_was_made_anew(growing, caplog):
    checkpoint = Checkpoint()
    growing.put(30)
    follow(checkpoint, growing.root, BODY)
    first = list(growing.put_bodies)
    growing.make_anew()
    growing.put_bodies.clear()
    growing.put(3, size=30)
    refused(checkpoint, growing.root, "its log ends at", "this is another log")
    growing.put(80, size=30)
    refused(checkpoint, growing.root, "this is another log")
    with caplog.at_level(logging.WARNING):
        rows = follow(checkpoint, growing.root, BODY, **LOSSY)
    assert "another log" in caplog.text
    assert bodies(rows) == first + growing.put_bodies
    growing.put(2)
    assert bodies(follow(checkpoint, growing.root, BODY)) == first + growing.put_bodies


def test_a_store_that_is_gone_and_comes_back(growing, caplog):
    checkpoint = Checkpoint()
    growing.put(5)
    follow(checkpoint, growing.root, BODY)
    away = growing.root.with_name("away")
    query = SimulatedQuery(checkpoint, {**where(growing.root)}, BODY)
    lossy = SimulatedQuery(checkpoint, {**where(growing.root), **LOSSY}, BODY)
    growing.root.rename(away)
    with pytest.raises(StreamDataLossError, match=r"does not exist.*up to offset"):
        query.run_once()
    with pytest.raises(StoreNotFoundError):
        follow(checkpoint, growing.root, BODY)
    with caplog.at_level(logging.WARNING):
        assert not lossy.run_once()
        assert not lossy.run_once()
    assert caplog.text.count("does not exist") == 1
    away.rename(growing.root)
    growing.put(3)
    lossy.all_available()
    assert bodies(checkpoint.rows) == growing.put_bodies


def test_nothing_is_reported_of_a_store_that_went_with_messages_unread(tmp_path):
    with GrowingStore(tmp_path / "a") as one, GrowingStore(tmp_path / "b") as other:
        one.put(30)
        other.put(30)
        options = {**where([one.root, other.root]), "maxOffsetsPerTrigger": 20}
        query = SimulatedQuery(Checkpoint(), {**options, **LOSSY}, BODY)
        query.run_once()
        away = tmp_path / "away"
        other.root.rename(away)
        query.run_once()
        reported = [json.loads(progress["latestOffset"])["stores"] for progress in query.progress]
        assert [set(stores) for stores in reported] == [
            {str(one.root), str(other.root)},
            {str(one.root)},
        ]
        away.rename(other.root)
        query.all_available()
        assert len(query.checkpoint.rows) == 60


def test_one_of_several_stores_is_gone(tmp_path):
    checkpoint = Checkpoint()
    with GrowingStore(tmp_path / "a") as one, GrowingStore(tmp_path / "b") as other:
        roots = [one.root, other.root]
        one.put(3)
        other.put(4)
        follow(checkpoint, roots, BODY)
        other.root.rename(tmp_path / "away")
        one.put(2)
        rows = follow(checkpoint, roots, BODY, **LOSSY)
        assert bodies(rows[7:]) == one.put_bodies[3:]
        (tmp_path / "away").rename(other.root)
        other.put(1)
        assert bodies(follow(checkpoint, roots, BODY)[9:]) == other.put_bodies[4:]


def test_a_store_that_is_no_longer_named(tmp_path):
    checkpoint = Checkpoint()
    with GrowingStore(tmp_path / "a") as one, GrowingStore(tmp_path / "b") as other:
        one.put(3)
        other.put(4)
        follow(checkpoint, [one.root, other.root], BODY)
        one.put(1)
        other.put(1)
        with pytest.raises(StreamDataLossError, match="no longer names"):
            follow(checkpoint, one.root, BODY)
        assert len(follow(checkpoint, one.root, BODY, **LOSSY)) == 8
        assert len(follow(checkpoint, [one.root, other.root], BODY)) == 9


def test_a_batch_that_is_repeated_after_its_segments_expired(growing):
    checkpoint = Checkpoint()
    growing.put(200)
    query = SimulatedQuery(checkpoint, where(growing.root), BODY, lambda *_: True)
    with pytest.raises(Exception, match="offsets logged"):
        query.run_once()
    growing.expire(2)
    refused(checkpoint, growing.root, "bytes 0 to 8192 of the log, which a batch needs, are gone")
    assert len(follow(checkpoint, growing.root, BODY, **LOSSY)) < 200


def test_a_batch_that_is_repeated_in_another_log(growing):
    checkpoint = Checkpoint()
    growing.put(20)
    query = SimulatedQuery(checkpoint, where(growing.root), BODY, lambda *_: True)
    with pytest.raises(Exception, match="offsets logged"):
        query.run_once()
    growing.make_anew()
    growing.put(60, size=31)
    refused(checkpoint, growing.root, "a batch needs offsets 0 to")


def test_a_first_offset_that_is_not_there(growing):
    growing.put(20)
    starts = {"startingOffsets": '{"Topic0":{"0":99}}'}
    with pytest.raises(Exception, match="queue offsets 5 to 98 of topic 'Topic0' queue 0"):
        follow(Checkpoint(), growing.root, BODY, **starts)
    assert len(follow(Checkpoint(), growing.root, BODY, **starts, **LOSSY)) == 15


def test_an_empty_store_that_begins_in_the_middle_is_no_loss(growing):
    """As with a slave whose first segment is its master's last one."""
    checkpoint = Checkpoint()
    with GrowingStore(growing.root.with_name("master")) as master:
        follow(checkpoint, growing.root, BODY)
        master.put(100)
        growing.close()
        shutil.rmtree(growing.root)
        shutil.copytree(master.root, growing.root)
        growing.expire(2)
        rows = follow(checkpoint, growing.root, BODY)
        assert bodies(rows) == master.put_bodies[-len(rows) :]
        assert 0 < len(rows) < 100
        shutil.rmtree(growing.root)
    growing.open()


def test_a_store_that_is_named_before_it_is_there(growing, caplog):
    checkpoint = Checkpoint()
    late = growing.root.with_name("late")
    roots = [growing.root, late]
    growing.put(3)
    with pytest.raises(StoreNotFoundError, match="late: does not exist"):
        follow(checkpoint, roots, BODY)
    with caplog.at_level(logging.WARNING):
        assert len(follow(checkpoint, roots, BODY, **LOSSY)) == 3
    assert "late: does not exist" in caplog.text
    with GrowingStore(late) as other:
        other.put(2)
        rows = follow(checkpoint, roots, BODY, **LOSSY)
        assert bodies(rows) == growing.put_bodies + other.put_bodies


def test_a_glob_that_matches_a_store_before_it_is_whole(growing, caplog):
    checkpoint = Checkpoint()
    pattern = str(growing.root.parent / "*")
    growing.put(3)
    query = SimulatedQuery(checkpoint, where(pattern), BODY)
    query.run_once()
    other = growing.root.with_name("store-2")
    other.mkdir()
    with caplog.at_level(logging.WARNING):
        assert not query.run_once()
        assert not query.run_once()
    assert caplog.text.count("no RocketMQ store") == 1
    with GrowingStore(other) as second:
        second.put(2)
        query.all_available()
        assert bodies(checkpoint.rows) == growing.put_bodies + second.put_bodies


def test_a_segment_that_is_missing_where_a_batch_begins(growing, caplog):
    """Inside a batch ``mode`` decides; between two batches only this check can see the gap."""
    checkpoint = Checkpoint()
    growing.put(200)
    query = SimulatedQuery(checkpoint, {**where(growing.root), "maxBytesPerTrigger": 4096}, BODY)
    while offset_of(checkpoint) < 8192 if checkpoint.offsets else True:
        query.run_once()
    assert offset_of(checkpoint) < 12288
    growing.segments()[offset_of(checkpoint) // 4096].unlink()
    with pytest.raises(StreamDataLossError, match="the segment that held offset"):
        follow(checkpoint, growing.root, BODY)
    with caplog.at_level(logging.WARNING):
        rows = follow(checkpoint, growing.root, BODY, **LOSSY)
    assert "the segment that held offset" in caplog.text
    assert bodies(rows)[-1] == growing.put_bodies[-1]


def test_a_store_that_is_gone_when_a_query_begins_that_ends_with_what_is_there(growing):
    checkpoint = Checkpoint()
    growing.put(3)
    follow(checkpoint, growing.root, BODY)
    growing.put(3)
    query = SimulatedQuery(checkpoint, where(growing.root), BODY)
    away = growing.root.with_name("away")
    growing.root.rename(away)
    with pytest.raises(StreamDataLossError, match="does not exist"):
        query.available_now()
    away.rename(growing.root)
    SimulatedQuery(checkpoint, where(growing.root), BODY).available_now()
    assert bodies(checkpoint.rows) == growing.put_bodies


def test_a_repeated_batch_has_what_is_left_of_a_log_that_was_cut(growing, caplog):
    checkpoint = Checkpoint()
    growing.put(20)
    query = SimulatedQuery(checkpoint, where(growing.root), BODY, lambda *_: True)
    with pytest.raises(Exception, match="offsets logged"):
        query.run_once()
    growing.make_anew()
    growing.put_bodies.clear()
    growing.put(4)
    with caplog.at_level(logging.WARNING):
        rows = follow(checkpoint, growing.root, BODY, **LOSSY)
    assert "a batch needs offsets 0 to" in caplog.text
    assert bodies(rows)[:4] == growing.put_bodies


def test_segments_that_expire_one_after_the_other_while_the_store_is_looked_at(
    growing, monkeypatch
):
    """RocketMQ can delete a segment each millisecond, always the one that is read next."""
    growing.put(600)
    checkpoint = Checkpoint()
    limits = {**LOSSY, "maxOffsetsPerTrigger": 1}
    SimulatedQuery(checkpoint, {**where(growing.root), **limits}, BODY).run_once()
    growing.close()
    true_open, left = followed_store.open_snapshot, len(growing.segments()) - 2

    def expiring(path, config, end_offset):
        nonlocal left
        snapshot = true_open(path, config, end_offset)
        if left:
            left -= 1
            growing.expire(1)
        return snapshot

    monkeypatch.setattr(followed_store, "open_snapshot", expiring)
    rows = follow(checkpoint, growing.root, BODY, **LOSSY)
    assert left == 0
    assert bodies(rows)[-1] == growing.put_bodies[-1]
    growing.open()


@pytest.mark.parametrize("read_up_to", ["dispatched", "written", "flushed"])
def test_half_a_record_that_a_kill_left_is_waited_for(tmp_path, read_up_to):
    """No batch includes it: the next process to open the store cuts it off, and overwrites it."""
    copy, checkpoint = tmp_path / "copy", Checkpoint()
    with GrowingStore(tmp_path / "store", segment_bytes=1 << 16) as growing:
        growing.put(10)
        end = growing.store.max_phy_offset
        growing.put(1, size=5000)
        growing.flush()
        shutil.copytree(growing.root, copy)  # with `abort`, and no process has it open
        expected = growing.put_bodies[:10]
    with (copy / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(end + 3000)
        log.write(bytes(2400))
    for path in copy.glob("consumequeue/*/*/*"):
        if int.from_bytes(path.read_bytes()[40:48], "big") == end:  # the third unit of its queue
            path.write_bytes(path.read_bytes()[:40] + bytes(path.stat().st_size - 40))
    rows = follow(checkpoint, copy, BODY, readUpTo=read_up_to)
    assert bodies(rows) == expected[: len(rows)]
    assert len(rows) == 10 or read_up_to == "flushed"  # the newest store time is not proved
    with GrowingStore(copy, segment_bytes=1 << 16, first_number=11) as growing:
        growing.put(3, size=200)
        more = growing.put_bodies
    assert bodies(follow(checkpoint, copy, BODY, readUpTo=read_up_to)) == expected + more


def _without_end(growing: GrowingStore) -> None:
    """Stop the store cleanly, and delete the last segments of its log."""
    growing.put(200)
    growing.close()
    for segment in growing.segments()[-2:]:
        segment.unlink()


@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("lenient", [LOSSY, {"mode": "PERMISSIVE"}])
def test_a_stopped_store_whose_end_is_lost(growing, caplog, has_read, lenient):
    checkpoint = Checkpoint()
    if has_read:
        growing.put(10)
        follow(checkpoint, growing.root, BODY)
    _without_end(growing)
    refused(checkpoint, growing.root, "the log ends at offset", "after it are lost")
    with caplog.at_level(logging.WARNING):
        rows = follow(checkpoint, growing.root, BODY, **lenient)
    assert caplog.text.count("after it are lost") == 1
    assert bodies(rows) == growing.put_bodies[: len(rows)]
    assert 0 < len(rows) < len(growing.put_bodies)


def test_a_lost_end_is_no_matter_while_a_broker_has_the_store_open(growing):
    _without_end(growing)
    (growing.root / "abort").touch()
    rows = follow(Checkpoint(), growing.root, BODY)
    assert 0 < len(rows) < 200


def test_a_store_that_moves_on_between_two_looks_has_lost_nothing(growing, monkeypatch):
    growing.put(50)
    growing.close()
    looks = itertools.chain(["lost"], itertools.repeat(None))
    monkeypatch.setattr(StoreSnapshot, "evident_lost_end", property(lambda _: next(looks)))
    assert bodies(follow(Checkpoint(), growing.root, BODY)) == growing.put_bodies
