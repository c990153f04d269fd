# SPDX-License-Identifier: Apache-2.0
"""Promises of every `ReadableStore` and its queries, over all golden stores.

One set of tests for both: a store opened as a snapshot, and one loaded for writing.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from store_core import MessageStore, MessageStoreConfig, StoreSnapshot, TagFilter
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import refuse_gap
from store_core.read.pinned_store import PinnedStore
from tests.golden_store import RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.messages import config_of, make_message
from tests.store_core.snapshot.golden_snapshot import keys_by_topic

FIVE_X = [name for name in STORE_NAMES if name != "classic-4x"]


class Opened(NamedTuple):
    """An open golden store: its reader, its queries, and its expected content."""

    store: object
    queries: object
    golden: object

    def dump(self, name):
        return list(self.golden.dump(name)) if name in self.golden.dump_names else []

    def messages(self):
        return [line for line in self.dump("messages") if not line.get("blank")]

    def queue_lines(self, kind):
        return {
            (line["topic"], line["queue_id"]): line
            for line in self.dump("consume_queue")
            if line["type"] == kind
        }


def units_of(queue):
    """Return (queue offset, place, size, tags code) of all units, file by file."""
    found, at = [], queue.min_offset
    while at < queue.max_offset:
        run = queue.units_from(at, 1000)
        found += [
            (offset, place, size, code)
            for (offset, _, place, size), code in zip(run.rows(), run.tags_code.tolist())
        ]
        at = run.queue_offset[-1] + run.batch_size[-1]
    return found


def places(messages):
    """Return the places of the records of messages; messages of an inner batch share one place."""
    return [place for place, _ in itertools.groupby(m.commit_log_offset for m in messages)]


@pytest.fixture(scope="class", params=STORE_NAMES)
def opened(request, tmp_path_factory):
    with request.cls.open_golden(request.param, tmp_path_factory.mktemp("opened")) as found:
        yield found


class ReadableStoreContract(ABC):
    """Subclasses define how a store is opened."""

    @staticmethod
    @contextmanager
    @abstractmethod
    def open_golden(name, directory):
        """Yield a golden store, `Opened`."""

    @staticmethod
    @contextmanager
    @abstractmethod
    def open_beside(store):
        """Yield the reader of a store that a ``MessageStore`` of this process writes."""

    def test_the_log_begins_and_ends_where_it_does(self, opened):
        meta = opened.golden.meta
        assert opened.store.min_phy_offset == opened.store.log.min_offset == meta["min_phy_offset"]
        assert opened.store.end_offset == meta["max_phy_offset"]
        assert opened.queries.min_phy_offset == meta["min_phy_offset"]
        assert opened.queries.max_phy_offset == meta["max_phy_offset"]

    def test_a_scan_of_the_log_gives_all_records(self, opened):
        start, end = max(opened.store.min_phy_offset, 0), opened.store.end_offset
        found = []
        for frames in scan_frames(opened.store.log, start, end, on_gap=refuse_gap):
            found += frames.column("commit_log_offset").tolist()
        assert found == [line["commit_log_offset"] for line in opened.messages()]

    def test_records_by_their_places(self, opened):
        store, reader = opened.store, opened.store.reader
        for line in opened.messages():
            at = line["commit_log_offset"]
            assert reader.find(at).store_timestamp == line["store_timestamp"]
            assert store.store_timestamp_at(at) == line["store_timestamp"]
            assert store.log.is_record(at, store.end_offset)
            assert reader.find(at + 1) is None
            assert store.store_timestamp_at(at + 1) is None
            assert reader.holds(at, line["store_size"])
        assert not reader.holds(store.end_offset - 1, 2)
        for nowhere in (-1, store.end_offset, 2**62):
            assert reader.find(nowhere) is None
            assert not store.log.is_record(nowhere, store.end_offset)

    def test_queues_by_kind(self, opened):
        assert {*opened.store.queue_paths} == opened.queue_lines("SimpleCQ").keys()
        assert {*opened.store.batch_queue_paths} == opened.queue_lines("BatchCQ").keys()

    def test_ranges_of_queues(self, opened):
        for line in opened.dump("consume_queue"):
            where = (line["topic"], line["queue_id"])
            queue, held = opened.store.queue(*where), (line["min_offset"], line["max_offset"])
            assert (queue.min_offset, queue.max_offset) == held
            assert opened.queries.get_min_offset_in_queue(*where) == held[0]
            assert opened.queries.get_max_offset_in_queue(*where) == held[1]
        assert opened.store.queue("no such topic", 0) is None
        assert opened.queries.get_min_offset_in_queue("no such topic", 0) == 0
        assert opened.queries.get_max_offset_in_queue("no such topic", 0) == 0
        assert opened.queries.get_message_store_timestamp("no such topic", 0, 0) == -1

    def test_units_of_consume_queues(self, opened):
        for where, line in opened.queue_lines("SimpleCQ").items():
            units = units_of(opened.store.queue(*where))
            expected = [list(unit) for unit in line["units"]]
            for unit, ext in zip(expected, line.get("ext_units", ())):
                unit[2] = unit[2] if ext is None else ext[0]
            assert [list(unit[1:]) for unit in units] == expected
            assert [unit[0] for unit in units] == [*range(line["min_offset"], line["max_offset"])]

    def test_units_of_batch_queues(self, opened):
        for where, line in opened.queue_lines("BatchCQ").items():
            queue = opened.store.queue(*where)
            units = queue.units[queue.units["base_queue_offset"] >= line["min_offset"]]
            assert [list(unit)[:7] for unit in units.tolist()] == line["batch_units"]

    def test_pulls(self, opened):
        for line in opened.dump("get_message"):
            expression = line["tag_expression"]
            result = opened.queries.get_message(
                "group",
                line["topic"],
                line["queue_id"],
                line["offset"],
                line["max_num"],
                None if expression is None else TagFilter(expression),
            )
            assert {
                "status": result.status.value,
                "next_begin_offset": result.next_begin_offset,
                "min_offset": result.min_offset,
                "max_offset": result.max_offset,
                "buffer_total_size": result.buffer_total_size,
                "commit_log_offsets": places(result.messages),
            } == {key: line[key] for key in list(line)[5:]}, line

    def test_offsets_by_time(self, opened):
        if opened.golden.name not in FIVE_X:  # 4.x brokers answer differently
            return
        batches = {*opened.store.batch_queue_paths}
        for line in opened.dump("offset_by_time"):
            where = (line["topic"], line["queue_id"], line["timestamp"])
            found = opened.queries.get_offset_in_queue_by_time(*where)
            assert found == line["lower"] == line["default"], line
            if where[:2] not in batches:
                found = opened.queries.get_offset_in_queue_by_time(*where, "upper")
                assert found == line["upper"], line

    def test_queries_by_key(self, opened):
        if opened.golden.name == "crashed-551" and opened.queries is not opened.store:
            return  # its recovery left a hole in the index, which loading begins to fill
        for line in opened.dump("index_query"):
            query = (line["topic"], line["key"], line["max_num"], line["begin"], line["end"])
            result = opened.queries.query_message(*query)
            offsets = [message.commit_log_offset for message in result.messages]
            if line["topic"] == "BatchTopic":  # one place has several messages
                offsets = places(result.messages)
            assert offsets == line["message_offsets"], line
            newest = (result.index_last_update_timestamp, result.index_last_update_phy_offset)
            last = (line["index_last_update_timestamp"], line["index_last_update_phy_offset"])
            assert newest == last, line

    def test_exact_searches_by_key(self, opened):
        for topic, keys in keys_by_topic(opened.golden.name).items():
            chosen = sorted(keys, key=lambda key: (-len(keys[key]), key))[:8]
            for key in chosen:
                found = opened.queries.find_messages(topic, [key])
                assert [message.commit_log_offset for message in found] == keys[key]
            pairs = opened.queries.find_offsets(topic, [*chosen, "no such key"])
            for number, key in enumerate(chosen):
                offsets = pairs.commit_log_offset[pairs.key_index == number]
                assert offsets.tolist() == sorted({*keys[key]})
            assert pairs.key_index.max(initial=-1) < len(chosen)

    def test_single_messages(self, opened):
        for line in opened.messages()[::7]:
            found = opened.queries.look_message_by_offset(line["commit_log_offset"])
            assert (found.message_id, found.topic) == (line["msg_id"], line["topic"])
            assert opened.queries.look_message_by_id(line["msg_id"]) == found
            assert opened.queries.look_message_by_offset(line["commit_log_offset"] + 1) is None

    def test_what_comes_later_is_not_seen(self, tmp_path):
        def put(store, numbers):
            for number in numbers:
                assert store.put_message(make_message(number)).status.name == "PUT_OK"
            dispatch_all(store)
            store.flush()

        with without_threads(), MessageStore(config_of(tmp_path / "store")) as written:
            put(written, range(20))
            keys = [*written._opened().files.queues.queues()]
            with self.open_beside(written) as store:
                before = {key: units_of(store.queue(*key)) for key in keys}
                end = store.end_offset
                assert end == written.max_phy_offset
                put(written, range(20, 40))
                assert store.end_offset == end < written.max_phy_offset
                assert store.reader.find(end) is None
                frames = [*scan_frames(store.log, 0, 2**40, end, on_gap=lambda _: None)]
                assert sum(map(len, frames)) == 20
                assert sum(map(len, before.values())) == 20
                places = np.concatenate([f.column("commit_log_offset") for f in frames])
                seen = [unit[1] for units in before.values() for unit in units]
                assert sorted(seen) == places.tolist()
                with self.open_beside(written) as later:
                    assert later.end_offset == written.max_phy_offset > end


class TestStoreSnapshot(ReadableStoreContract):
    """A snapshot of files."""

    @staticmethod
    @contextmanager
    def open_golden(name, directory):
        store = golden(name, name in RECOVERED_NAMES)
        config = MessageStoreConfig.from_properties(store.config_properties)
        with StoreSnapshot(store.root, config) as snapshot:
            yield Opened(snapshot, snapshot, store)

    @staticmethod
    @contextmanager
    def open_beside(store):
        with StoreSnapshot(store.config.store_path_root_dir, store.config) as snapshot:
            yield snapshot


class TestPinnedStore(ReadableStoreContract):
    """A store that this process has loaded."""

    @staticmethod
    @contextmanager
    def open_golden(name, directory):
        source = golden(name, name in RECOVERED_NAMES)
        config = MessageStoreConfig.from_properties(source.config_properties)
        types = source.config.get("topic_queue_types", {})
        store = MessageStore(
            replace(config, store_path_root_dir=str(source.copy_to(directory))),
            is_batch_topic=lambda topic: types.get(topic) == "BatchCQ",
        )
        store.load()
        try:
            with store._reading(whole=True) as pinned:
                assert isinstance(pinned, PinnedStore)
                yield Opened(pinned, store, source)
        finally:
            store.shutdown()

    @staticmethod
    @contextmanager
    def open_beside(store):
        with store._reading() as pinned:
            yield pinned
