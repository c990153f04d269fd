# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import rmqsource
from rmqsource.options.source_options import parse_options
from rmqsource.scan.read_columns import read_columns
from rmqsource.sink import committing, task
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.committing import commit_parts, discard, refuse_open_store
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.local_host import local_address
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from rmqsource.spark.store_format import RocketMQStoreDataSource
from rmqsource.transfer.copy_store import commits_begun
from store_core import MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.errors import StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.staged_commit.staging import open_intents
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import StoreState
from store_core.tools.check.store_check import check_store
from tests.golden_store import tree_state
from tests.rmqsource.sink.support import TYPES, batch_of

SIZES = {
    "mappedFileSizeCommitLog": "8192",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def plan_for(root, names=("topic", "body"), **options):
    given = {"path": str(root), **SIZES, **{k: str(v) for k, v in options.items()}}
    parsed = parse_sink_options(given)
    fields = [(name, TYPES[name][0]) for name in names]
    return plan_write(parsed, resolve_sink_columns(fields, default_topic=parsed.topic))


def rows(first, count, topic="A"):
    return batch_of(topic=[topic] * count, body=[b"%d" % i for i in range(first, first + count)])


def write(root, batches, *, application=None, version=None, **options):
    plan = plan_for(root, **options)
    parts = [stage_part([batch], plan, number) for number, batch in enumerate(batches)]
    return commit_parts(
        plan, pickle.loads(pickle.dumps(parts)), application=application, version=version
    )


def bodies(root):
    with StoreSnapshot(root) as snapshot:
        assert [str(finding) for finding in check_store(snapshot).findings] == []
        found = []
        for topic, queue_id in snapshot.queue_paths:
            end = snapshot.get_max_offset_in_queue(topic, queue_id)
            at = 0
            while at < end:
                got = snapshot.get_message("g", topic, queue_id, at, 32)
                found += [m.body for m in got.messages]
                at = got.next_begin_offset
        return sorted(found, key=int)


def numbers(*ranges):
    return [b"%d" % i for r in ranges for i in r]


def test_a_new_store_is_complete(tmp_path):
    done = write(tmp_path / "s", [rows(0, 30), rows(30, 10, "B")])
    assert bodies(tmp_path / "s") == numbers(range(40))
    names = {path.name for path in (tmp_path / "s").iterdir()}
    assert {"commitlog", "consumequeue", "index", "config", "checkpoint", "lock"} <= names
    assert "abort" not in names
    topics = json.loads((tmp_path / "s" / "config" / "topics.json").read_text())
    assert topics["topicConfigTable"]["B"]["writeQueueNums"] == 4
    delays = json.loads((tmp_path / "s" / "config" / "delayOffset.json").read_text())
    assert delays["offsetTable"] == {}
    assert rmqsource.last_commit(str(tmp_path / "s")) == done
    assert (done.messages, done.dropped) == (40, {})
    assert list((tmp_path / "s" / "_staging").iterdir()) == [tmp_path / "s/_staging/turn.lock"]


def test_new_messages_name_the_broker_that_has_the_store(tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("brokerIP1=10.1.2.3\nlistenPort=20911")
    write(tmp_path / "s", [rows(0, 30)], config=config)
    write(tmp_path / "s", [rows(30, 60)])
    assert store_hosts(tmp_path / "s") == {"10.1.2.3:20911"}
    config.write_text("brokerIP1=2001:db8::7")
    write(tmp_path / "s", [rows(90, 60)], config=config)
    write(tmp_path / "s", [rows(150, 1)])
    assert store_hosts(tmp_path / "s") == {"10.1.2.3:20911", "[2001:db8:0:0:0:0:0:7]:10911"}
    config.write_text("brokerIP1=[2001:db8::8]")
    write(tmp_path / "bracketed", [rows(0, 1)], config=config)
    assert store_hosts(tmp_path / "bracketed") == {"[2001:db8:0:0:0:0:0:8]:10911"}
    config.write_text("brokerIP1=localhost")
    write(tmp_path / "named", [rows(0, 1)], config=config)
    assert store_hosts(tmp_path / "named") == {"127.0.0.1:10911"}
    config.write_text("brokerIP1=no.such.host.invalid")
    write(tmp_path / "bracketed", [rows(1, 1)], config=config)
    assert store_hosts(tmp_path / "bracketed") == {"[2001:db8:0:0:0:0:0:8]:10911"}
    write(tmp_path / "new", [rows(0, 1)])
    assert store_hosts(tmp_path / "new") == {f"{socket.inet_ntoa(local_address())}:10911"}


def store_hosts(root):
    parts = read_columns(parse_options({"path": str(root)}), ("store_host",))
    return {host for part in parts for host in part["store_host"].to_pylist()}


def test_parts_follow_each_other_by_partition_whatever_order_they_come_in(tmp_path):
    plan = plan_for(tmp_path, queues=1)
    parts = [stage_part([rows(5 * n, 5)], plan, n) for n in (2, 0, 1)]
    commit_parts(plan, parts)
    with StoreSnapshot(tmp_path) as snapshot:
        got = snapshot.get_message("g", "A", 0, 0, 32)
        assert [m.body for m in got.messages] == numbers(range(15))


def test_an_attempt_whose_message_did_not_come_does_not_count(tmp_path):
    plan = plan_for(tmp_path)
    stage_part([rows(0, 30)], plan, 0)
    commit_parts(plan, [stage_part([rows(0, 30)], plan, 0)])
    assert bodies(tmp_path) == numbers(range(30))
    assert open_intents(StoreDirectory(str(tmp_path))) == {}


def test_attempts_that_go_on_after_the_commit_change_nothing(tmp_path, monkeypatch):
    """Spark kills the slower of two attempts some time after the job has ended."""
    monkeypatch.setattr(task, "_JOINED_ROWS", 1)
    plan = plan_for(tmp_path)

    def slow():
        yield rows(0, 5)
        commit_parts(plan, [stage_part([rows(0, 10)], plan, 0)])
        yield rows(5, 5)

    with pytest.raises(StoreWriteError, match="No such file"):
        stage_part(slow(), plan, 0)
    before = tree_state(tmp_path / "commitlog")
    stage_part([rows(0, 10)], plan, 0)  # begins only now
    assert tree_state(tmp_path / "commitlog") == before
    assert bodies(tmp_path) == numbers(range(10))
    write(tmp_path, [rows(10, 10)])
    assert bodies(tmp_path) == numbers(range(20))
    ((left, _),) = rmqsource.clean_staging(str(tmp_path), older_than_ms=-1)
    assert left == plan.job_directory


def test_a_version_is_committed_once(tmp_path):
    assert write(tmp_path, [rows(0, 5)], application="a", version=3).version == 3
    assert write(tmp_path, [rows(5, 5)], application="a", version=3) is None
    assert write(tmp_path, [rows(5, 5)], application="a", version=2) is None
    assert write(tmp_path, [rows(5, 5)], application="b", version=2) is not None
    assert write(tmp_path, [rows(10, 5)], application="a", version=4) is not None
    assert bodies(tmp_path) == numbers(range(15))


def test_a_path_that_is_no_utf8(tmp_path):
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/st\xff"))
    write(root, [rows(0, 5)])
    write(f"file://{tmp_path}/st%FF", [rows(5, 5)])
    assert bodies(root) == numbers(range(10))
    (commit,) = commits_begun(str(root))
    assert commit.messages == 5


def test_nothing_to_write_writes_nothing(tmp_path):
    assert write(tmp_path / "s", [rows(0, 0)]) is None
    assert rmqsource.last_commit(str(tmp_path / "s")) is None


def test_a_store_that_somebody_has_open_is_refused_and_left_alone(tmp_path):
    write(tmp_path, [rows(0, 5)])
    plan = plan_for(tmp_path)
    parts = [stage_part([rows(5, 5)], plan, 0)]
    lock = StoreLock(str(tmp_path))
    lock.acquire()
    with pytest.raises(SinkCommitError, match="Nothing was written"):
        commit_parts(plan, parts)
    lock.release()
    commit_parts(plan, parts)
    assert bodies(tmp_path) == numbers(range(10))


def test_a_store_that_somebody_has_open_is_refused_before_any_work(tmp_path):
    write(tmp_path, [rows(0, 5)])
    refuse_open_store(str(tmp_path))
    refuse_open_store(str(tmp_path / "none"))
    source = RocketMQStoreDataSource({"path": str(tmp_path)})
    schema = StructType([StructField("topic", StringType()), StructField("body", BinaryType())])
    refused = pytest.raises(SinkCommitError, match=r"has it open.* Nothing was written")
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path))), refused:
        source.writer(schema, overwrite=False)
    source.writer(schema, overwrite=False)


def test_a_refused_write_makes_nothing_in_the_store(tmp_path):
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(tmp_path))):
        before = {path.name for path in tmp_path.iterdir()}
        with pytest.raises(SinkCommitError, match=r"has it open.* Nothing was written"):
            refuse_open_store(str(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} == before


def test_a_job_that_commits_is_waited_for(tmp_path, monkeypatch):
    """The lock belongs to a job, not to a broker: after the job the store is free."""
    write(tmp_path, [rows(0, 5)])
    states = iter([StoreState.LIVE, StoreState.STOPPED])
    monkeypatch.setattr(committing, "store_state", lambda _: next(states))
    refuse_open_store(str(tmp_path))
    assert next(states, None) is None, "it looked again"


def test_two_jobs_at_once_are_both_whole(tmp_path):
    write(tmp_path, [rows(0, 5)])
    plans = [plan_for(tmp_path), plan_for(tmp_path)]
    parts = [[stage_part([rows(5 + 20 * n, 20)], plan, 0)] for n, plan in enumerate(plans)]
    threads = [threading.Thread(target=commit_parts, args=pair) for pair in zip(plans, parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bodies(tmp_path) == numbers(range(45))


def test_what_was_staged_is_discarded_unless_its_commit_began(tmp_path):
    plan = plan_for(tmp_path)
    part = stage_part([rows(0, 5)], plan, 0)
    directory = Path(part.directory)
    (directory / "intent.json").write_text("{}")
    discard([plan.job_directory])
    assert directory.exists()
    (directory / "intent.json").unlink()
    discard([plan.job_directory])
    assert not directory.exists()


def test_an_error_behind_the_commit_point_leaves_the_job_to_the_next_opening(tmp_path):
    write(tmp_path, [rows(0, 5)])
    plan = plan_for(tmp_path)
    parts = [stage_part([rows(5, 5)], plan, 0)]

    def fail(name):
        if name == "before flush":
            raise StoreWriteError("the disk is gone", "queue")

    done = commit_parts(plan, parts, application="a", version=1, hook=fail)
    assert (done.messages, done.version) == (5, 1)
    assert rmqsource.last_commit(str(tmp_path)) == done
    discard([plan.job_directory])
    assert (tmp_path / "abort").exists()
    assert write(tmp_path, [rows(5, 5)], application="a", version=1) is None
    assert bodies(tmp_path) == numbers(range(10))


def test_a_job_that_is_in_the_log_counts_although_nothing_could_note_it(tmp_path):
    write(tmp_path, [rows(0, 5)])
    before = commits_begun(str(tmp_path))
    plan = plan_for(tmp_path)
    parts = [stage_part([rows(5, 5)], plan, 0)]

    def fail(name):
        if name in {"before flush", "before ledger rename"}:
            raise StoreWriteError("the disk is gone", "queue")

    done = commit_parts(plan, parts, hook=fail)
    assert [one for one in commits_begun(str(tmp_path)) if one not in before] == [done]
    write(tmp_path, [rows(10, 5)])
    assert bodies(tmp_path) == numbers(range(15))


def test_abandoned_jobs_go_after_a_day(tmp_path):
    write(tmp_path, [rows(0, 5)])
    old, young = (Path(stage_part([rows(0, 5)], plan_for(tmp_path), 0).directory) for _ in "ab")
    for path in (old, *old.iterdir()):
        os.utime(path, (1, 1))
    write(tmp_path, [rows(5, 5)])
    assert (old.exists(), young.exists()) == (False, True)
    ((directory, size),) = rmqsource.clean_staging(str(tmp_path), 0)
    assert (directory, young.exists()) == (str(young), False)
    assert size > 100


def test_delayed_messages_wait_from_the_beginning(tmp_path):
    batch = batch_of(topic=["A"] * 2, body=[b"1", b"2"], delay_level=[3, None])
    plan = plan_for(tmp_path, ("topic", "body", "delay_level"))
    done = commit_parts(plan, [stage_part([batch], plan, 0)])
    assert ("SCHEDULE_TOPIC_XXXX", 2) in [(q.topic, q.queue_id) for q in done.queues]
    delays = json.loads((tmp_path / "config" / "delayOffset.json").read_text())
    assert delays["offsetTable"] == {"3": 0}
    topics = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert set(topics["topicConfigTable"]) == {"A"}


def test_copied_delayed_messages_are_not_delivered_again(tmp_path):
    batch = rows(0, 3, "SCHEDULE_TOPIC_XXXX")
    for end in (3, 6):
        write(tmp_path, [batch], queues=1, systemTopics="true")
        delays = json.loads((tmp_path / "config" / "delayOffset.json").read_text())
        assert delays["offsetTable"] == {"1": end}


def test_places_that_are_no_store_are_refused(tmp_path):
    with pytest.raises(SinkCommitError, match="there is no store"):
        plan_for(tmp_path / "new", createStore="false")
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(SinkCommitError, match="has other contents"):
        plan_for(tmp_path)


@pytest.mark.parametrize("left", [("lock",), ("lock", "abort"), ("_staging",)])
def test_a_store_that_was_only_begun_is_a_new_one(tmp_path, left):
    for name in left:
        if name == "_staging":
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_text("")
    assert plan_for(tmp_path).topic_queues == {}


def test_files_that_the_driver_cannot_see_are_an_error(tmp_path):
    plan = plan_for(tmp_path)
    part = stage_part([rows(0, 5)], plan, 0)
    Path(part.records_path(0)).unlink()
    with pytest.raises(StoreWriteError, match="must share the store's file system"):
        commit_parts(plan, [part])


def test_a_fork_in_the_middle_of_a_commit_keeps_no_later_job_waiting(tmp_path, monkeypatch):
    read, write_end = os.pipe()
    children = []

    def fork(name):
        if name == "before eight bytes":
            pid = os.fork()
            if pid == 0:
                os.close(write_end)
                os.read(read, 1)  # until the parent closes its end
                os._exit(0)
            children.append(pid)

    plan = plan_for(tmp_path)
    try:
        commit_parts(plan, [stage_part([rows(0, 5)], plan, 0)], hook=fork)
        monkeypatch.setattr(committing, "_WAIT_SECONDS", 0)
        write(tmp_path, [rows(5, 5)])
    finally:
        os.close(write_end)
        os.close(read)
        for pid in children:
            os.waitpid(pid, 0)
    assert bodies(tmp_path) == numbers(range(10))


def test_a_write_names_settings_without_effect_once(tmp_path, caplog):
    config = tmp_path / "broker.conf"
    config.write_text("debugLockEnable=true\nmaxTransferCountOnMessageInDisk=4\n")
    write(tmp_path / "store", [rows(0, 2), rows(2, 2)], config=config)
    (line,) = [text for text in caplog.messages if "no effect" in text]
    assert line == f"{config}: settings of RocketMQ that have no effect here: debugLockEnable"
