# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as sf

import rmqsource
from store_core import StoreSnapshot
from store_core.tools.check.finding_kinds import Severity
from store_core.tools.check.store_check import check_store
from store_core.topics import topic_kind
from tests.golden_store import GOLDEN_DIR, GOLDEN_NAMES, golden, unpack

KEPT = (
    *("topic", "queue_id", "tags", "keys", "unique_key", "properties", "body", "flag"),
    *("born_timestamp", "born_host", "reconsume_times"),
)


@pytest.fixture
def copied(spark, tmp_path):
    from rmqsource.transfer.copy_store import copy_store

    rmqsource.register(spark)

    def copy(store, **sink_options):
        options = {"path": str(store.root), **store.options}
        return copy_store(spark, options, str(tmp_path / "copy"), sink_options)

    return copy


@pytest.mark.parametrize("name", sorted({*GOLDEN_NAMES} - {"empty-5x"}))
def test_copied_messages_are_equal(read, copied, tmp_path, name):
    store = golden(name, recovered=name == "torn-5x")
    done = copied(store, compatibility="5", mappedFileSizeCommitLog="1m")
    messages = read(store.root, **store.options)
    topics = [row.topic for row in messages.select("topic").distinct().collect()]
    normal = [topic for topic in topics if topic_kind(topic) == "normal"]
    left = messages.where(messages["topic"].isin(normal)).select(*KEPT)
    # The CRC of one record is not valid in another.
    own = sf.map_filter("properties", lambda name, _: name != "__CRC32#")
    left = left.withColumn("properties", own)
    again = read(tmp_path / "copy").select(*KEPT)
    assert (done.commit.messages, done.skipped) == (left.count(), messages.count() - left.count())
    order = [name for name in KEPT if name != "properties"]  # a map has no order
    assert_df_equality(left.orderBy(*order), again.orderBy(*order), ignore_nullable=True)
    if name == "batch-5x":  # its light queues require the broker's configuration
        return
    with StoreSnapshot(str(tmp_path / "copy")) as snapshot:
        found = check_store(snapshot).findings
    assert [str(one) for one in found if one.severity is not Severity.INFORMATION] == []


def test_copied_delayed_messages_count_as_delivered(copied, tmp_path):
    done = copied(golden("cluster-5x"), systemTopics="true", compatibility="5")
    delayed = {q.queue_id + 1: q.messages for q in done.commit.queues if "SCHEDULE" in q.topic}
    offsets = json.loads((tmp_path / "copy" / "config" / "delayOffset.json").read_text())
    assert delayed
    assert {int(k): v for k, v in offsets["offsetTable"].items()} == delayed
    assert done.skipped == 0


def test_nothing_that_matches_copies_nothing(spark, tmp_path):
    from rmqsource.transfer.copy_store import copy_store

    rmqsource.register(spark)
    store = golden("classic-5x")
    options = {"path": str(store.root), "topic": "NoSuchTopic", **store.options}
    assert copy_store(spark, options, str(tmp_path / "copy"), {}).commit is None
    assert not (tmp_path / "copy" / "commitlog").exists()


@pytest.mark.parametrize("with_system", [False, True])
def test_timer_messages_come_with_system_topics_and_the_wheel_never(spark, tmp_path, with_system):
    """A broker on the copy begins at the first timer message: nothing refers to places in a log."""
    from rmqsource.transfer.copy_store import copy_store

    rmqsource.register(spark)
    unpack(GOLDEN_DIR / "timers" / "stopped-5x" / "store.tar.gz", tmp_path)
    root, copy = tmp_path / "store", tmp_path / "copy"
    options = {"compatibility": "5", "systemTopics": str(with_system).lower()}
    copy_store(spark, {"path": str(root)}, str(copy), options)
    with StoreSnapshot(root) as old, StoreSnapshot(copy) as new:
        waiting = old.get_max_offset_in_queue("rmq_sys_wheel_timer", 0)
        copied = new.get_max_offset_in_queue("rmq_sys_wheel_timer", 0)
    assert waiting > 0
    assert copied == (waiting if with_system else 0)
    assert not [path for path in copy.rglob("timer*")]


def test_a_target_that_is_a_file_uri(spark, tmp_path, monkeypatch):
    from rmqsource.transfer.copy_store import copy_store

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rmqsource.register(spark)
    store = golden("classic-5x")
    options = {"path": str(store.root), **store.options}
    done = copy_store(spark, options, f"file://{tmp_path}/the%20copy", {"compatibility": "5"})
    with StoreSnapshot(str(tmp_path / "the copy")) as snapshot:
        assert snapshot.end_offset == done.commit.end_offset > 0
    assert list((tmp_path / "here").iterdir()) == []
