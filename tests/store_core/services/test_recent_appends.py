# SPDX-License-Identifier: Apache-2.0
"""Batches that are dispatched from their columns leave the same queues and index as the log."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import StoreWriteError
from store_core.log import recent_appends as module
from store_core.log.recent_appends import AppendedColumns, RecentAppends
from store_core.native.dispatch_columns import DispatchColumns
from tests.both_paths import PATHS, needs_kernel, running
from tests.examples import examples
from tests.store_core.services.growing_log import Clock
from tests.store_core.whole_store import contents

SIZES = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 20 * 16,
    "max_hash_slot_num": 7,
    "max_index_num": 20,
}
PROPERTIES = [
    b"", b"TAGS\1a\2", b"UNIQ_KEY\1u\2KEYS\1k l\2TAGS\1b\2", b"KEYS\1\xc3\xbc\2", b"TAGS\1\xff\2",
    b"KEYS\1k", b"DELAY\1" b"2\2TAGS\1c\2", b"INNER_MULTI_DISPATCH\1%LMQ%x\2",
]  # fmt: skip
rows = st.tuples(
    st.sampled_from(["T", "ü", "%LMQ%x"]),
    st.integers(0, 1),
    st.sampled_from(PROPERTIES),
    st.sampled_from([0, 0, 0, 4, 8, 12]),
    st.sampled_from([bytes(8), bytes(20)]),
)
batches = st.lists(rows, min_size=1, max_size=40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), batches),
        st.tuples(st.sampled_from(["put", "dispatch", "fail", "restart"]), st.none()),
    ),
    max_size=12,
)


def batch_of(given):
    topics, queue_ids, properties, flags, hosts = zip(*given)
    return pa.record_batch(
        {
            "topic": pa.array(topics),
            "queue_id": pa.array(queue_ids, pa.int64()),
            "body": pa.array([b"b" * 40] * len(given)),
            "properties_raw": pa.array(properties),
            "sys_flag": pa.array(flags, pa.int32()),
            "born_host": pa.array(hosts),
        }
    )


class Driven:
    """A store whose dispatch is called by hand."""

    def __init__(self, root, **config):
        self._config = MessageStoreConfig(
            store_path_root_dir=str(root), enable_lmq=True, enable_multi_dispatch=True, **config
        )
        self.clock, self.dispatched, self.known = Clock(), 0, 0
        self.open()

    def open(self):
        self.store = MessageStore(self._config, clock=self.clock)
        self.store.load()
        self.store.services.is_started = True
        self.reput = self.store.services.reput

    def batch(self, given):
        self.clock.now += 1500
        result = self.store.append_batch(batch_of(given))
        assert result.status.name == "PUT_OK", result.reason

    def put(self, _):
        self.clock.now += 700
        message = Message("T", b"single", tags="a", keys=["k"])
        assert self.store.put_message(message).status.name == "PUT_OK"

    def dispatch(self, _):
        with mock.patch.object(
            AppendedColumns, "frames", autospec=True, side_effect=AppendedColumns.frames
        ) as frames:
            self.reput.run_once()
        self.known += frames.call_count

    def fail(self, _):
        """Dispatch to the queues, but not to the index."""
        error = StoreWriteError("full", "index")
        index = self.store.services.files.index
        with mock.patch.object(index, "append", side_effect=error), suppress(StoreWriteError):
            self.reput.run_once()
        self.store.flags.clear(0b1111)

    def restart(self, _):
        self.close()
        self.open()

    def close(self):
        self.reput.finish()
        assert self.store.dispatch_behind_bytes == 0
        self.store.shutdown()


def with_numbered_index(files):
    """Return files but the checkpoint; index files are named for when their round came."""
    index = sorted(name for name in files if name.startswith("index/"))
    names = {name: f"index/{number}" for number, name in enumerate(index)}
    return {names.get(n, n): found for n, found in files.items() if "checkpoint" not in n}


@needs_kernel
@settings(max_examples=examples(150), deadline=None)
@given(steps, st.sampled_from([1, 3, 1 << 16]), st.sampled_from([150, 1 << 21]), st.booleans())
def test_queues_and_index_are_the_same(tmp_path_factory, done, chunk, most, crc):
    found = []
    for kernel in PATHS:
        root = tmp_path_factory.mktemp("store")
        with (
            running(kernel),
            mock.patch("store_core.put.put_record_batch._CHUNK_ROWS", chunk),
            mock.patch.object(module, "_MOST_VALUES", most),
        ):
            driven = Driven(root, enabled_append_prop_crc=crc, **SIZES)
            for name, given in done:
                getattr(driven, name)(given)
            driven.close()
        found.append(with_numbered_index(contents(root)))
    assert found[0] == found[1]


@needs_kernel
def test_a_batch_is_not_read_again(tmp_path):
    driven = Driven(tmp_path)
    row = ("T", 0, b"UNIQ_KEY\1u\2KEYS\1k l\2TAGS\1b\2", 0, bytes(8))
    driven.batch([row] * 5)
    driven.batch([row] * 4)
    with mock.patch("store_core.codec.record_frames.RecordFrames._place_natively") as read:
        driven.dispatch(None)
    assert (driven.known, read.call_count, driven.store.dispatch_behind_bytes) == (1, 0, 0)
    driven.put(None)
    driven.batch([row])
    driven.dispatch(None)
    assert driven.known == 1  # the single message, from the log, up to the batch
    driven.dispatch(None)
    assert (driven.known, driven.store.dispatch_behind_bytes) == (2, 0)
    assert driven.store.services.files.queues.find_simple("T", 0).max_offset == 11
    driven.close()


def part_of(start, sizes, topics=(b"T",)):
    sizes = np.array(sizes, np.int32)
    starts = start + np.cumsum(sizes) - sizes
    count = len(sizes)
    dispatched = DispatchColumns(
        np.zeros(count, np.int32) + len(topics) - 1, list(topics), sizes + 1,
        np.zeros(count, np.uint8), np.repeat(sizes, 2), np.repeat(np.arange(count), 2), sizes > 0,
    )  # fmt: skip
    fields = {"commit_log_offset": starts.astype(np.int64), "total_size": sizes}
    return AppendedColumns(fields, dispatched)


def listed(part):
    values = [part.fields[name].tolist() for name in ("commit_log_offset", "total_size")]
    return values, [v if isinstance(v, list) else v.tolist() for v in part.dispatched]


def test_appends_that_follow_each_other_are_taken_together():
    recent = RecentAppends()
    assert (recent.take(0, 99, 9), recent.next_start(0, 99)) == (None, 99)
    for part in (part_of(30, [5]), part_of(10, [4, 6], [b"T", b"U"]), part_of(20, [3, 7])):
        recent.add(part)
    assert (recent.next_start(10, 99), recent.next_start(30, 99)) == (20, 99)
    taken = recent.take(10, 34, 99)  # the third one ends at 35
    assert (taken.start, taken.end, len(taken)) == (10, 30, 4)
    assert listed(taken) == (
        [[10, 14, 20, 23], [4, 6, 3, 7]],
        [[1, 1, 2, 2], [b"T", b"U", b"T"], [5, 7, 4, 8], [0] * 4, [4, 4, 6, 6, 3, 3, 7, 7],
         [0, 0, 1, 1, 2, 2, 3, 3], [True] * 4],
    )  # fmt: skip
    assert recent.take(30, 35, 0) is None
    assert listed(recent.take(30, 35, 1)) == listed(part_of(30, [5]))
    assert recent.next_start(0, 99) == 99


def test_appends_before_the_place_are_forgotten_and_too_many_not_kept():
    recent = RecentAppends()
    recent.add(part_of(0, [9]))
    assert recent.take(5, 99, 9) is None
    assert recent.take(0, 99, 9) is None
    with mock.patch.object(module, "_MOST_VALUES", 2 * part_of(0, [10]).values):
        for start in (10, 20, 30):
            recent.add(part_of(start, [10]))
        assert recent.take(10, 30, 9).end == 30
        recent.add(part_of(30, [10]))  # there is room again
    assert recent.take(30, 99, 9).end == 40


@needs_kernel
@pytest.mark.parametrize("rows", [1, 40])
def test_the_memory_of_small_appends_counts(tmp_path, rows):
    driven = Driven(tmp_path)
    some = [(f"T{k}", 0, b"KEYS\1k\2", 0, bytes(8)) for k in range(rows)]
    driven.batch(some)
    driven.dispatch(None)
    recent = driven.store.services._recent
    tracemalloc.start()
    for _ in range(100):
        driven.batch(some)
    held = tracemalloc.get_traced_memory()[0]
    values = sum(part.values for part in recent._parts.values())
    recent.take(1 << 40, 1 << 40, 1)
    freed = held - tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert freed < 60 * values
    driven.close()


@needs_kernel
def test_the_many_topics_of_a_batch_are_not_kept_for_each_small_chunk(tmp_path):
    driven = Driven(tmp_path)
    some = [(f"T{k}", 0, b"", 0, bytes(8)) for k in range(9)]
    with mock.patch("store_core.put.put_record_batch._CHUNK_ROWS", 3):
        driven.batch(some)
    assert not driven.store.services._recent._parts
    driven.close()


def test_rows_of_dispatch_columns():
    columns = part_of(0, [4, 6, 7]).dispatched
    some = columns.rows(1, 3)
    assert (some.tags_code.tolist(), some.entry_hash.tolist()) == ([7, 8], [6, 6, 7, 7])
    assert some.entry_row.tolist() == [0, 0, 1, 1]
