# SPDX-License-Identifier: Apache-2.0
"""Consume queues of the golden stores, pulls and times, against RocketMQ's answers."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from tests.golden_store import CLUSTER_NAMES, STORE_NAMES, golden
from tests.store_core.queue.queue_writers import bitmaps_of, ext_reader
from tests.store_core.snapshot.golden_snapshot import open_golden

FIVE_X = [name for name in STORE_NAMES if name != "classic-4x"]


def _ext_units(snapshot, line, units):
    path = snapshot.directory.resolve("consumequeue_ext", line["topic"], str(line["queue_id"]))
    size = snapshot.config.mapped_file_size_consume_queue_ext
    addresses = np.ascontiguousarray(units["tags_code"])
    read = ext_reader(snapshot.directory, path, size)
    ext, found = read(addresses), bitmaps_of(read, addresses)
    bitmaps = [None if b is None else base64.b64encode(b).decode() for b in found]
    rows = zip(ext.found.tolist(), ext.tags_code.tolist(), ext.store_timestamp.tolist(), bitmaps)
    return [[*row] if found else None for found, *row in rows]


@pytest.mark.parametrize("name", STORE_NAMES)
def test_units(name):
    snapshot = open_golden(name)
    for line in golden(name).dump("consume_queue"):
        topic, queue_id = line["topic"], line["queue_id"]
        held = (line["min_offset"], line["max_offset"])
        assert snapshot.get_min_offset_in_queue(topic, queue_id) == held[0], line
        assert snapshot.get_max_offset_in_queue(topic, queue_id) == held[1], line
        if line["type"] == "BatchCQ":
            units = snapshot.batch_units(topic, queue_id)
            units = units[units["base_queue_offset"] >= held[0]]
            assert [list(unit)[:7] for unit in units.tolist()] == line["batch_units"]
            continue
        units = snapshot.consume_queue(topic, queue_id).read_units(*held)
        assert [list(unit) for unit in units.tolist()] == line["units"]
        if "ext_units" in line:
            assert _ext_units(snapshot, line, units) == line["ext_units"]


def test_upper_offset_by_time_of_batch_queues():
    # RocketMQ's own answers are the unit after, or 0, if no unit has exactly that time.
    snapshot = open_golden("batch-5x")
    for topic, queue_id in snapshot.batch_queue_paths:
        units = snapshot.batch_units(topic, queue_id)
        times, bases = units["store_timestamp"].tolist(), units["base_queue_offset"].tolist()
        for time in {t + d for t in times for d in (-1, 0, 1)}:
            older = [base for base, unit_time in zip(bases, times) if unit_time <= time]
            found = snapshot.get_offset_in_queue_by_time(topic, queue_id, time, "upper")
            assert found == (older[-1] if older else 0)


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_offsets_of_a_cluster(name):
    snapshot = open_golden(name)
    queues = {
        (topic["topic"], queue["queue_id"]): queue
        for topic in golden(name).document("topic_stats")
        for queue in topic["queues"]
    }
    grown = set()
    for (topic, queue_id), queue in queues.items():
        assert snapshot.get_min_offset_in_queue(topic, queue_id) == queue["min_offset"]
        max_offset = snapshot.get_max_offset_in_queue(topic, queue_id)
        assert max_offset >= queue["max_offset"]  # taken before the last sends
        if max_offset > queue["max_offset"]:
            grown.add((topic, queue_id))
        if queue["max_offset"]:
            last = (topic, queue_id, queue["max_offset"] - 1)
            assert snapshot.get_message_store_timestamp(*last) == queue["last_update_timestamp"]
    assert len(grown) < len(queues) / 4


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-5x-ext"])
def test_search_offset_of_a_cluster(name):
    snapshot = open_golden(name)
    max_offsets = {
        (topic["topic"], queue["queue_id"]): queue["max_offset"]
        for topic in golden(name).document("topic_stats")
        for queue in topic["queues"]
    }
    for line in golden(name).dump("search_offset"):
        queue = (line["topic"], line["queue_id"])
        assert snapshot.get_earliest_message_time(*queue) == line["earliest_store_timestamp"]
        found = snapshot.get_offset_in_queue_by_time(*queue, line["timestamp"])
        assert min(found, max_offsets[queue]) == line["queue_offset"], line


def test_search_offset_of_a_4x_cluster():
    # 4.x returns the nearer neighbour, so only times of messages can be compared.
    snapshot = open_golden("cluster-4x")
    compared = 0
    for line in golden("cluster-4x").dump("search_offset"):
        queue, time = (line["topic"], line["queue_id"]), line["timestamp"]
        assert snapshot.get_earliest_message_time(*queue) == line["earliest_store_timestamp"]
        found = snapshot.get_offset_in_queue_by_time(*queue, time)
        if snapshot.get_message_store_timestamp(*queue, found) == time:
            compared += 1
            assert snapshot.get_message_store_timestamp(*queue, line["queue_offset"]) == time
    assert compared > 50
