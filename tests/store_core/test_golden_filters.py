# SPDX-License-Identifier: Apache-2.0
"""Filters of real consumers: pulls return what a broker delivered to them."""

from __future__ import annotations

import warnings

import pytest

from store_core import GetMessageStatus, SqlFilter, TagFilter
from store_core.config.consumer_filter_file import load_consumer_filters
from store_core.errors import IgnoredInputWarning
from store_core.files.store_directory import StoreDirectory
from store_core.filter.bloom_filter import BloomFilter
from store_core.filter.consumer_filter_manager import ConsumerFilterManager
from store_core.filter.filter_bitmaps import FilterBitmaps
from store_core.tools.repair.rebuild_consume_queue import RebuildOptions, rebuild_consume_queues
from tests.golden_store import CLUSTER_NAMES, golden, tree_state
from tests.store_core.snapshot.golden_snapshot import open_golden
from tests.store_core.test_message_store_golden import files_below

SQL_NAMES = tuple(f"sql{number}" for number in range(1, 8))
TAGS = {"tag": "TagA || TagC", "tagumlaut": "tag-ü", "tagcollide": "Aa"}
QUEUES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def sql_filter(store, name):
    dialect = 4 if store.name == "cluster-4x" else 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredInputWarning)
        return SqlFilter(store.config["sql_expressions"][name], dialect)


def group_of(store, name):
    return f"cg_{store.config['topics']['normal']}_{name}"


def pulled(reads, group, topic, message_filter):
    """Pull all messages of a topic, each queue from its beginning to its end."""
    found = []
    for queue_id in range(8):
        at = 0
        while True:
            result = reads.get_message(group, topic, queue_id, at, 32, message_filter)
            if result.status in {
                GetMessageStatus.OFFSET_OVERFLOW_ONE,
                GetMessageStatus.NO_MESSAGE_IN_QUEUE,
            }:
                break
            matched = bool(result.messages)
            assert result.status is (
                GetMessageStatus.FOUND if matched else GetMessageStatus.NO_MATCHED_MESSAGE
            )
            assert result.next_begin_offset > at
            found += result.messages
            at = result.next_begin_offset
    return found


def delivered(store, name):
    rows = [row for row in store.dump("received") if row["group"] == group_of(store, name)]
    return sorted((row["queue_id"], row["queue_offset"], row["msg_id"]) for row in rows)


def places(messages):
    return sorted((m.queue_id, m.queue_offset, m.unique_key) for m in messages)


@pytest.mark.parametrize("name", SQL_NAMES)
@pytest.mark.parametrize("store_name", CLUSTER_NAMES)
def test_a_sql_filter_delivers_what_the_broker_did(store_name, name):
    store, snapshot = golden(store_name), open_golden(store_name)
    topic = store.config["topics"]["filter"]
    found = pulled(snapshot, group_of(store, name), topic, sql_filter(store, name))
    assert places(found) == delivered(store, name)
    assert bool(found) == (name != "sql7" and (store_name, name) != ("cluster-4x", "sql6"))


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("store_name", CLUSTER_NAMES)
def test_a_tag_filter_delivers_what_the_broker_did(store_name, name):
    store, wanted = golden(store_name), TagFilter(TAGS[name])
    topic = store.config["topics"]["filter"]
    passed = pulled(open_golden(store_name), group_of(store, name), topic, wanted)
    found = [message for message in passed if wanted.matches_tag(message.tags)]
    assert places(found) == delivered(store, name)
    assert (len(passed) > len(found)) == (name == "tagcollide")  # Aa and BB have one hash


def registered_then(store):
    """The filters of a store, and a function for the bitmaps that its broker wrote.

    All groups registered between the first and the second half of the messages.
    """
    filters = load_consumer_filters(StoreDirectory(str(store.root)))
    manager = ConsumerFilterManager(BloomFilter(), lambda: 0)
    assert manager.load(filters)
    bitmaps = FilterBitmaps(manager)

    def known_then(columns):
        found = bitmaps(columns)
        if found is not None:
            born = max(data.born_timestamp for data in filters)
            found[columns.frames.column("store_timestamp") <= born] = None
        return found

    return known_then


def test_extension_units_are_those_of_the_broker(tmp_path):
    store, snapshot = golden("cluster-5x-ext"), open_golden("cluster-5x-ext")
    before = tree_state(store.root)
    options = RebuildOptions(filter_bitmaps=registered_then(store))
    rebuild_consume_queues(snapshot, str(tmp_path), options)
    assert files_below(tmp_path, *QUEUES) == files_below(store.root, *QUEUES)
    assert tree_state(store.root) == before
