# SPDX-License-Identifier: Apache-2.0
"""A store changes or expires between any two accesses to its files: no answer is incomplete.

The accesses of one answer are counted. Then the answer is computed once for each access, and at
that access the store changes: all steps together, or one step with each access from there on.
"""

from __future__ import annotations

import itertools
import shutil
from contextlib import contextmanager, suppress

import numpy as np
import pyarrow as pa
import pytest

from rmqsource.errors import DataLossError
from rmqsource.metadata import read_metadata
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_columns import plan_read
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files import store_directory
from store_core.files.byte_source import LocalByteSource
from store_core.log.commit_log import scan_frames
from store_core.log.live_log import PinnedLog
from store_core.log.log_scan import refuse_gap
from store_core.read import dispatch_proof
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.store_state import locked_here, unlocked_here
from tests.rmqsource.reading import name_queues, parsed, read_places
from tests.store_core.live_store import SIZES, LiveStore

OPTIONS = {"maxHashSlotNum": 8, "maxIndexNum": 24, "mappedFileSizeCommitLog": 1024}
CONFIG = MessageStoreConfig(max_hash_slot_num=8, max_index_num=24, mapped_file_size_commit_log=1024)


def content(root):
    """Return the files of a store."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def change(root, before, after):
    """Change the files of one state to those of another as a writer does: in place."""
    for name in before.keys() - after.keys():
        (root / name).unlink()
    for name, data in after.items():
        if before.get(name) != data:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if name in before else "wb") as file:
                file.write(data)


class Story:
    """States of a store, one after the other, and the content of the log in each.

    ``logs`` are lists of (offset, topic, key); ``dispatched`` is how many messages of the first
    state were dispatched.
    """

    def __init__(self, root, *, by_record, index=True, expires=False):
        self.store = LiveStore(root, **{**SIZES, **_SIZES})
        self.index, self.states, self.logs = index, [], []
        topics = itertools.cycle([("A", 0), ("Big", 0), ("B", 0), ("A", 1), ("Big", 0)])
        for number in range(24):
            self._put(number, *next(topics))
        self._dispatch_by_record()
        self.dispatched = len(self.store.records)
        self.min_offset = self.store.log.min_offset
        for number in range(24, 32):
            self._put(number, *next(topics))
        self.take()
        if by_record:
            for _ in self._records():
                self.take()
        else:
            self._dispatch_by_queue()
        for number in range(32, 36):
            self._put(number, *next(topics))
            self.take()
        self._dispatch_by_record()
        self.take()
        if expires:
            for _ in range(3):
                self._expire()
        self.min_offset = self.store.log.min_offset
        self.store.close()

    def take(self):
        """Record the present state of the store."""
        self.states.append(content(self.store.root))
        self.logs.append([(at, topic, key) for at, topic, _, _, key in self.store.records])

    def _put(self, number, topic, queue_id):
        body = b"x" * (250 if topic == "Big" else 10)
        self.store.put(topic, body, queue_id, keys=f"k{number}")

    def _dispatch_by_record(self):
        for _ in self._records():
            pass

    def _records(self):
        """Dispatch as RocketMQ does; stop after each step."""
        store = self.store
        with PinnedLog(store.log, str(store.root), whole=True) as log:
            for frames in scan_frames(log, store.dispatched_to, log.end_offset, on_gap=refuse_gap):
                for row in range(len(frames)):
                    one = frames.take(np.array([row]))
                    store.queues.put(store._decoder.decode(one).queued())
                    yield
                    if self.index:
                        store.index.dispatch(one)
                        yield
            store.dispatched_to = log.end_offset

    def _dispatch_by_queue(self):
        """Dispatch one round as `MessageStore` does."""
        store = self.store
        with PinnedLog(store.log, str(store.root), whole=True) as log:
            parts = list(scan_frames(log, store.dispatched_to, log.end_offset, on_gap=refuse_gap))
            for frames in parts:
                requests = store._decoder.decode(frames).queued()
                for key, rows in reversed(store.queues.by_queue(requests)):
                    store.queues.put_queue(key, rows)
                    self.take()
                if self.index:
                    store.index.dispatch(frames)
                    self.take()
            store.dispatched_to = log.end_offset

    def _expire(self):
        store = self.store
        store.log.delete_expired_files(0, 0, immediately=True, batch_max=1)
        self.take()
        store.queues.delete_expired(store.log.min_offset)
        self.take()
        store.index.delete_expired(store.log.min_offset)
        self.take()


STEP = 17
_SIZES = {
    "mapped_file_size_commit_log": 1024,
    "mapped_file_size_consume_queue": 20 * 4,
    "max_index_num": 24,
}


class Scheduler:
    """Advances a store at one access to files; ``count`` counts the accesses."""

    def __init__(self, story, root, at, *, one_by_one):
        self.story, self.root, self.at, self.one_by_one = story, root, at, one_by_one
        self.count = self.state = 0

    def access(self):
        if self.at is not None and self.count >= self.at:
            last = len(self.story.states) - 1
            if self.one_by_one:
                self.to(min(self.state + 1, last))
            else:
                self.to(last)
        self.count += 1

    def to(self, state):
        if state != self.state:
            change(self.root, self.story.states[self.state], self.story.states[state])
            self.state = state


@contextmanager
def running(story, tmp_path, at, *, one_by_one=False):
    """Yield a live store in the story's first state, and the scheduler that advances it."""
    root = tmp_path / "store"
    shutil.rmtree(root, ignore_errors=True)
    change(root, {}, story.states[0])
    name_queues(root)
    (root / "abort").write_bytes(b"1")
    (root / "lock").write_bytes(b"lock")
    found = (root / "lock").stat()
    locked_here((found.st_dev, found.st_ino))
    scheduler = Scheduler(story, root, at, one_by_one=one_by_one)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [
            *((LocalByteSource, name) for name in ("__init__", "read_at", "view", "_gather")),
            *((store_directory._LocalFiles, name) for name in ("list", "stat")),
            (store_directory, "_scanned_entry"),
        ]:
            _count(patch, owner, name, scheduler)
        try:
            yield root, scheduler
        finally:
            unlocked_here((found.st_dev, found.st_ino))


def _count(patch, owner, name, scheduler):
    real = getattr(owner, name)

    def counted(*args, **kwargs):
        scheduler.access()
        return real(*args, **kwargs)

    patch.setattr(owner, name, counted)


def asked_with_every_interleaving(story, tmp_path, ask):
    """Yield the answer for each access at which the store goes on.

    Here every ``STEP``-th access is tested; tests/soak tests every one.
    """
    with running(story, tmp_path, None) as (root, scheduler):
        ask(root)
        accesses = scheduler.count
    for at in range(0, accesses, STEP):
        for one_by_one in (False, True):
            with running(story, tmp_path, at, one_by_one=one_by_one) as (root, _):
                yield ask(root)


def _planned(root, **options):
    source = parsed(root, **OPTIONS, **options)
    return plan_read(source, from_options(source))


def _places(root, plans, **options):
    return {offset for offset, _ in read_places(root, plans=plans, **OPTIONS, **options)}


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Return a function that makes a story, each kind once."""
    made = {}

    def story(**kinds):
        key = tuple(sorted(kinds.items()))
        if key not in made:
            made[key] = Story(tmp_path_factory.mktemp("story") / "store", **kinds)
        return made[key]

    return story


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("by_record", [True, False])
def test_messages_of_a_topic_are_not_lost(stories, tmp_path, monkeypatch, by_record, index):
    """Whichever queues were read before the broker went on, and whichever after."""
    story = stories(by_record=by_record, index=index)
    monkeypatch.setattr(dispatch_proof, "_NEAR_BYTES", 0)
    monkeypatch.setattr(dispatch_proof, "ROUND_BYTES", 0 if by_record else 4096)
    wanted = {at for at, topic, _ in story.logs[0] if topic == "A"}
    possible = {at for at, topic, _ in story.logs[-1] if topic == "A"}
    ways = set()

    def ask(root):
        plans = _planned(root, topic="A")
        ways.update(plan.access_path for plan in plans)
        return _places(root, plans, topic="A")

    for found in asked_with_every_interleaving(story, tmp_path, ask):
        assert wanted <= found <= possible
    assert "consumequeue" in ways or not by_record


def test_keys_are_not_lost(stories, tmp_path):
    story = stories(by_record=True, index=True)
    keys = {key: at for at, topic, key in story.logs[0] if topic == "A"}
    ordered = sorted(keys)
    wanted = [(number, keys[key]) for number, key in enumerate(ordered)]

    def ask(root):
        with StoreSnapshot(root, CONFIG) as snapshot:
            offsets = snapshot.find_offsets("A", ordered)
            messages = snapshot.find_messages("A", ordered)
            return (
                list(zip(offsets.key_index.tolist(), offsets.commit_log_offset.tolist())),
                [message.commit_log_offset for message in messages],
            )

    for offsets, messages in asked_with_every_interleaving(story, tmp_path, ask):
        assert offsets == wanted
        assert messages == sorted(keys.values())


def test_keys_are_not_lost_by_the_source(stories, tmp_path):
    story = stories(by_record=True, index=True)
    keys = {key: at for at, topic, key in story.logs[0] if topic == "A"}
    options = {"topic": "A", "keys": ",".join(sorted(keys))}

    def ask(root):
        return _places(root, _planned(root, access="auto", **options), **options)

    for found in asked_with_every_interleaving(story, tmp_path, ask):
        assert found == set(keys.values())


def _table(root, table, **options):
    source = parsed(root, table=table, **OPTIONS, **options)
    rows = []
    for snapshot in open_snapshots(source):
        with snapshot:
            for batch in read_metadata(table, snapshot, source):
                rows += pa.table(batch).to_pylist()
    return rows


def _dispatched(story):
    """Return offsets by topic that are in the first state's queues and in the last state's log."""
    found = {}
    for at, topic, _ in story.logs[0][: story.dispatched]:
        if at >= story.min_offset:
            found.setdefault(topic, set()).add(at)
    return found


@pytest.mark.parametrize("table", ["queues", "topics", "consume_queue", "index"])
@pytest.mark.parametrize("expires", [False, True])
def test_tables_hold_what_was_dispatched(stories, tmp_path, table, expires):
    """No error is raised if files expire: they are listed again."""
    story = stories(by_record=True, expires=expires)
    held = _dispatched(story)
    for mode in ("FAILFAST", "PERMISSIVE"):
        asked = asked_with_every_interleaving(
            story,
            tmp_path,
            lambda root, mode=mode: _table(root, table, mode=mode),
        )
        for rows in asked:
            if table in {"consume_queue", "index"}:
                found = [row["commit_log_offset"] for row in rows]
                assert len(set(found)) == len(found)
                assert set().union(*held.values()) <= set(found)
            else:
                counts = {}
                for row in rows:
                    counts[row["topic"]] = counts.get(row["topic"], 0) + row["messages"]
                assert all(counts[topic] >= len(places) for topic, places in held.items())


@pytest.mark.parametrize("table", ["segments", "consumer_offsets", "delayed", "transactions"])
def test_tables_of_a_store_that_expires(stories, tmp_path, table):
    story = stories(by_record=True, expires=True)
    for _ in asked_with_every_interleaving(
        story,
        tmp_path,
        lambda root: _table(root, table),
    ):
        pass


@pytest.mark.parametrize("options", [{"topic": "A"}, {"startingTimestamp": 5}, {}], ids=str)
@pytest.mark.parametrize("fails", [True, False])
def test_plans_of_a_store_that_expires(stories, tmp_path, options, fails):
    story = stories(by_record=True, expires=True)
    topics = {"A"} if "topic" in options else {"A", "B", "Big"}
    wanted = {at for at, topic, _ in story.logs[0] if topic in topics and at >= story.min_offset}
    read = {**options, "failOnDataLoss": fails}

    def ask(root):
        plans = _planned(root, **read)
        with suppress(DataLossError):
            return True, _places(root, plans, **read)
        left = {int(path.name) for path in (root / "commitlog").iterdir()}
        parts = (part for plan in plans for split in plan.splits for part in split.parts)
        return {part.from_offset for part in parts} <= left, None

    for is_whole, found in asked_with_every_interleaving(story, tmp_path, ask):
        if found is None:
            assert fails
            assert not is_whole
        else:
            assert wanted <= found


def test_a_segment_that_goes_between_planning_and_reading(stories, tmp_path):
    story = stories(by_record=True, expires=True)
    with running(story, tmp_path, None) as (root, scheduler):
        plans = _planned(root)
        scheduler.to(len(story.states) - 1)
        with pytest.raises(DataLossError, match="was deleted between planning and reading"):
            _places(root, plans)
        found = _places(root, plans, failOnDataLoss=False)
        assert found == {at for at, _, _ in story.logs[0] if at >= story.min_offset}


def test_a_listing_that_lacks_a_file_in_between_is_taken_again(tmp_path, monkeypatch):
    """Files are deleted oldest first while a directory is listed in some other order."""
    from store_core.files.segment_list import list_segments
    from store_core.files.store_directory import FileEntry

    def listing(*numbers):
        return [FileEntry(f"{n * 10:020d}", f"/log/{n}", 10, False, 0) for n in numbers]

    listings = iter([listing(0, 2, 3), listing(1, 3), listing(2, 3)])
    found = list_segments(lambda: next(listings), file_size=10, option="size")
    assert [segment.from_offset for segment in found] == [20, 30]
    lost = list_segments(lambda: listing(0, 2, 3), file_size=10, option="size")
    assert lost.has_holes
