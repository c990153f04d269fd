# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from store_core.layout import BATCH_CQ_UNIT, CQ_UNIT
from store_core.log.commit_log import scan_frames
from store_core.log.live_log import PinnedLog
from store_core.log.log_scan import refuse_gap
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch_request import DispatchDecoder, concat_requests
from store_core.queue.unit_placement import first_torn_batch_unit, first_torn_unit
from store_core.recovery.queue_repair import unproved_records
from tests.store_core.live_store import LiveStore

TAGS = ["TagA", "", "TagB", "Aa", "BB", "", "x" * 40, "é"]
"""Also those without a hash."""


class Store:
    """A store of three queues that was left without a stop; ``units`` are their files' bytes."""

    def __init__(self, root):
        self.root = root
        live = LiveStore(root, mapped_file_size_consume_queue=20 * 40)
        for number in range(90):
            live.put(queue_id=number % 3, tags=TAGS[number % len(TAGS)], body=b"b" * (number % 7))
        live.dispatch()
        with PinnedLog(live.log, str(root), whole=True) as log:
            self.frames = list(scan_frames(log, 0, log.end_offset, on_gap=refuse_gap))
            decoder = DispatchDecoder(live.config.delay_levels_ms)
            self.whole = concat_requests([decoder.decode(frames) for frames in self.frames])
            self.outline = concat_requests([decoder.outline(frames) for frames in self.frames])
        live.close()
        self.config, self.asked = live.config, []

    def file(self, queue_id):
        return self.root / "consumequeue/TopicA" / str(queue_id) / "00000000000000000000"

    def unproved(self, outline=None):
        queues = ConsumeQueueStore(str(self.root), self.config)
        queues.load()
        queues.recover(trusted=False)
        return unproved_records(queues, self.outline if outline is None else outline, self.decode)

    def decode(self, starts):
        self.asked += starts.tolist()
        return self.whole.take(np.isin(self.whole.commit_log_offset, starts))

    def records_of(self, *queue_ids):
        return self.whole.commit_log_offset[np.isin(self.whole.queue_id, queue_ids)].tolist()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def test_an_outline_is_what_needs_no_properties(store):
    for field in ("topic_code", "queue_id", "queue_offset", "commit_log_offset", "message_size"):
        assert getattr(store.outline, field).tolist() == getattr(store.whole, field).tolist()
    assert store.outline.store_timestamp.tolist() == store.whole.store_timestamp.tolist()
    assert not store.outline.tags_code.any()


def test_whole_queues_are_proved_by_few_properties(store):
    assert store.unproved().tolist() == []
    ends_in_zero = store.whole.tags_code & 0xFF == 0
    assert store.asked == store.whole.commit_log_offset[ends_in_zero].tolist()
    assert 0 < len(store.asked) < len(store.whole) / 2


def test_some_of_the_records(store):
    assert store.unproved(store.outline.take(slice(40, 61))).tolist() == []


@pytest.mark.parametrize("row", [0, 11, 29])
def test_any_end_of_a_unit_that_was_lost(store, row):
    path, size = store.file(1), CQ_UNIT.size
    data = path.read_bytes()
    for kept in range(size):
        at = row * size + kept
        torn = data[:at] + bytes(size - kept) + data[(row + 1) * size :]
        path.write_bytes(torn)
        assert store.unproved().tolist() == (store.records_of(1) if torn != data else []), kept


@pytest.mark.parametrize("row", [5, 29])
def test_any_begin_of_a_unit_that_was_lost(store, row):
    path, size = store.file(2), CQ_UNIT.size
    data = path.read_bytes()
    for lost in range(1, size + 1):
        at = row * size
        torn = data[:at] + bytes(lost) + data[at + lost :]
        path.write_bytes(torn)
        expected = store.records_of(2) if torn[: at + 12] != data[: at + 12] else []
        # A code that lost only its first bytes goes unnoticed: those of small numbers are zeros.
        if torn == data or expected:
            assert store.unproved().tolist() == expected, lost


def test_queues_that_are_not_there_and_units_that_are_missing(store):
    store.file(0).unlink()
    path = store.file(2)
    path.write_bytes(path.read_bytes()[: 29 * CQ_UNIT.size].ljust(20 * 40, b"\0"))
    assert store.unproved().tolist() == store.records_of(0, 2)


def test_units_of_other_records(store):
    first, second = store.file(0), store.file(1)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    assert store.unproved().tolist() == store.records_of(0, 1)


def test_a_queue_without_units_has_none_that_is_torn(store):
    for first_torn, layout in ((first_torn_unit, CQ_UNIT), (first_torn_batch_unit, BATCH_CQ_UNIT)):
        assert first_torn(np.empty(0, layout.dtype), store.whole) is None
