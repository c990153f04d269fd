# SPDX-License-Identifier: Apache-2.0
"""The life of a store: open, put, read, stop, again; and the calls refused in each state."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    PutMessageStatus,
    StoreClosedError,
    StoreConfigError,
    StoreFormatError,
    StoreLockedError,
)
from store_core.state.running_flags import RunningFlag
from tests.golden_store import golden
from tests.store_core.crash.by_hand import dispatch_all
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_message, numbers_in
from tests.store_core.whole_store import EVER, contents, put, statuses


def test_put_and_read_in_every_way(root):
    with MessageStore(config_of(root), store_host="10.1.2.3:4567") as store:
        result = store.put_message(
            Message("T", b"body", queue_id=3, tags="TagA", keys=["k1"], unique_key="U1")
        )
        assert store.wait_for_dispatch()
        done = result.append_result
        assert (result.status.name, done.queue_offset) == ("PUT_OK", 0)
        assert (store.min_phy_offset, store.max_phy_offset) == (0, done.store_size)
        assert store.dispatch_behind_bytes == 0
        found = [
            store.get_message("g", "T", 3, 0, 32).messages,
            store.query_message("T", "k1", 32, 0, EVER).messages,
            store.find_messages("T", ["U1"]),
            [store.look_message_by_offset(0)],
            [store.look_message_by_id(done.message_id)],
        ]
        assert [[message.body for message in messages] for messages in found] == [[b"body"]] * 5
        assert found[0][0].store_host == "10.1.2.3:4567"
        assert store.get_offset_in_queue_by_time("T", 3, EVER) == 1
        assert store.flush() == store.max_phy_offset
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith("index/")} == {
        "checkpoint",
        "lock",
        "commitlog/" + "0" * 20,
        "consumequeue/T/3/" + "0" * 20,
    }


def test_nothing_works_before_load_and_after_shutdown(root):
    store = MessageStore(config_of(root))
    for call in (
        lambda: store.put_message(make_message(0)),
        lambda: store.min_phy_offset,
        store.start,
        store.runtime_info,
        lambda: store.get_message("g", "TopicA", 0, 0, 1),
    ):
        with pytest.raises(StoreClosedError, match="load"):
            call()
    store.shutdown()
    store.load()
    assert statuses(store) == ["SERVICE_NOT_AVAILABLE"] * 3
    assert "start()" in store.put_message(make_message(0)).reason
    store.start()
    store.start()
    assert statuses(store) == ["PUT_OK"] * 3
    store.shutdown()
    store.shutdown()
    assert statuses(store) == ["SERVICE_NOT_AVAILABLE"] * 3
    assert store.put_message(make_message(0)).reason == "the store was shut down"
    for read in (
        lambda: store.get_message("g", "TopicA", 0, 0, 1),
        lambda: store.query_message("TopicA", "k0", 1, 0, EVER),
        lambda: store.find_messages("TopicA", ["k0"]),
        lambda: store.look_message_by_offset(0),
        lambda: store.get_max_offset_in_queue("TopicA", 0),
    ):
        with pytest.raises(StoreClosedError):
            read()
    with store:
        put(store, [4])
        assert store.wait_for_dispatch()
        assert numbers_in(store)["TopicA", 0] == [0, 0, 0, 4]


def test_a_read_that_outlives_the_store_is_an_error(by_hand):
    """Files may have been missing for it, and a consumer would skip messages."""
    put(by_hand, [0])
    dispatch_all(by_hand)

    def outlive():
        with by_hand._reading():
            by_hand.shutdown()

    with pytest.raises(StoreClosedError, match="meanwhile"):
        outlive()


@pytest.mark.parametrize(
    ("flag", "advice"),
    [
        (RunningFlag.DISK_FULL, "disk of the commit log is too full"),
        (RunningFlag.LOGIC_DISK_FULL, "disk of the queues is too full"),
        (RunningFlag.FENCED, "another master"),
        (RunningFlag.NOT_WRITEABLE, "made not writeable"),
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, "puts are accepted again when they can"),
    ],
)
def test_flags_refuse_puts_and_say_why(root, by_hand, flag, advice):
    put(by_hand, [0])
    by_hand.flags.set(flag)
    assert statuses(by_hand) == ["SERVICE_NOT_AVAILABLE"] * 3
    assert advice in by_hand.put_message(make_message(0)).reason
    by_hand.shutdown()
    assert not (root / "abort").exists()  # all is flushed and dispatched


def test_a_slave_takes_no_puts_and_a_store_may_be_unreadable(root):
    with MessageStore(config_of(root, broker_role="SLAVE")) as store:
        assert statuses(store) == ["SERVICE_NOT_AVAILABLE"] * 3
        assert "from the master" in store.put_message(make_message(0)).reason
        store.flags.set(RunningFlag.NOT_READABLE)
        with pytest.raises(StoreClosedError, match="not readable"):
            store.get_message("g", "TopicA", 0, 0, 1)


def test_queue_offsets_go_on_after_a_restart(root):
    config = config_of(root, enable_lmq=True, enable_multi_dispatch=True)
    expected = []
    for start in (0, 5):
        with MessageStore(config) as store:
            for number in range(start, start + 5):
                fan = Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
                assert store.put_message(fan).append_result.queue_offset == number
                expected.append(number)
            assert store.wait_for_dispatch()
            for topic in ("T", "%LMQ%a", "%LMQ%b"):
                found = store.get_message("g", topic, 0, 0, 32)
                assert found.max_offset == len(expected)
            last = found.messages[-1].properties["INNER_MULTI_QUEUE_OFFSET"]
            assert last == f"{len(expected) - 1},{len(expected) - 1}"


def test_batch_topics_go_on_after_a_restart(root):
    for start in (0, 3):
        with MessageStore(config_of(root), is_batch_topic="B".__eq__) as store:
            for number in range(start, start + 3):
                result = store.put_message(Message("B", b"x"))
                assert result.append_result.queue_offset == number
            assert store.wait_for_dispatch()
            assert store.get_max_offset_in_queue("B", 0) == start + 3
    assert (root / "batchconsumequeue" / "B" / "0").is_dir()
    assert not (root / "consumequeue" / "B").exists()


def test_sizes_come_from_the_files(tmp_path):
    source = golden("classic-5x")
    root = source.copy_to(tmp_path)
    sizes = {"max_hash_slot_num": 100, "max_index_num": 400}
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(root), **sizes)) as store:
        config = store.config
        assert config.mapped_file_size_commit_log == 65536
        assert config.mapped_file_size_consume_queue == 2000
        assert (config.max_hash_slot_num, config.max_index_num) == (100, 400)
        put(store, [0])
    wrong = replace(config, mapped_file_size_commit_log=4096)
    state = contents(root)
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        MessageStore(wrong).load()
    assert contents(root) == state


def test_opening_and_closing_a_clean_store_changes_the_checkpoint_only(tmp_path):
    source = golden("multipath-5x")
    root = source.copy_to(tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    before = contents(root)
    with MessageStore(replace(config, store_path_root_dir=str(root))) as store:
        assert store.max_phy_offset == source.meta["max_phy_offset"]
    after = contents(root)
    assert {name for name in before if before[name] != after.get(name)} <= {"checkpoint"}
    assert set(after) == set(before)


def test_several_log_directories_and_read_only_ones(tmp_path):
    root, names = tmp_path / "store", ["c1", "c2"]
    config = config_of(root, store_path_commit_log=",".join(names))
    with MessageStore(config) as store:
        put(store, range(150))
    made = [{path.name for path in (root / name).iterdir()} for name in names]
    assert all(made)
    frozen = replace(config, read_only_commit_log_store_paths="c1")
    with MessageStore(frozen) as store:
        put(store, range(150, 300))
    assert {path.name for path in (root / "c1").iterdir()} == made[0]
    assert {path.name for path in (root / "c2").iterdir()} > made[1]
    judge(root, frozen, range(300), range(300))
    with pytest.raises(StoreConfigError, match="no place for new segments"):
        MessageStore(replace(config, read_only_commit_log_store_paths="c2,c1")).load()


def test_destroy_deletes_what_a_broker_would(root):
    store = MessageStore(config_of(root, enable_consume_queue_ext=True))
    for is_open in (True, False):
        with store:
            put(store, range(60))
            (root / "config").mkdir(exist_ok=True)
            (root / "config" / "topics.json").write_text("{}", "utf-8")
            (root / "timerwheel.52").write_bytes(b"")
            if is_open:
                store.destroy()
        if not is_open:
            store.destroy()
        left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        assert left == {"lock", "config/topics.json"}
    with pytest.raises(StoreClosedError):
        _ = store.max_phy_offset


_HOLD = """
import sys
from pathlib import Path
from store_core import MessageStore
from tests.store_core.crash.messages import config_of
with MessageStore(config_of(Path(sys.argv[1]))):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_store_is_opened_once(root):
    """By another process, and by two objects of this one; the error names the holder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout.readline() == b"open\n"
        store = MessageStore(config_of(root))
        with pytest.raises(StoreLockedError, match=f"process {process.pid} has this store open"):
            store.load()
        with pytest.raises(StoreLockedError):
            store.destroy()
        process.stdin.close()
    with store:
        with pytest.raises(StoreLockedError, match="another store object of this process"):
            MessageStore(config_of(root)).load()
        put(store, [0])  # the failed try did not take the lock away
        assert (root / "abort").exists()


def test_a_deleted_topic_begins_anew_and_others_stay(root):
    with MessageStore(config_of(root)) as store:
        for topic in ("Gone", "Stays"):
            for queue_id in (0, 1):
                store.put_message(Message(topic, topic.encode(), queue_id=queue_id, keys=["k"]))
        assert store.delete_topic("Gone")
        assert not store.delete_topic("Gone")
        assert not (root / "consumequeue" / "Gone").exists()
        assert store.get_max_offset_in_queue("Gone", 0) == 0
        assert store.get_max_offset_in_queue("Stays", 1) == 1
        assert store.put_message(Message("Gone", b"new")).append_result.queue_offset == 0
        assert store.put_message(Message("Stays", b"new")).append_result.queue_offset == 1
    with MessageStore(config_of(root)) as store:
        found = store.get_message("g", "Gone", 0, 0, 32).messages
        assert [message.body for message in found] == [b"new"]
        assert store.put_message(Message("Gone", b"next")).append_result.queue_offset == 1


def test_a_topic_that_is_deleted_while_it_is_put_to_begins_anew(root):
    with MessageStore(config_of(root)) as store:
        is_over = threading.Event()

        def put_many():
            while not is_over.is_set():
                assert store.put_message(Message("Busy", b"x")).status is PutMessageStatus.PUT_OK

        deadline = time.monotonic() + 30
        threads = [threading.Thread(target=put_many, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            while store.get_max_offset_in_queue("Busy", 0) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            store.delete_topic("Busy")
        is_over.set()
        for thread in threads:
            thread.join()
        last = store.put_message(Message("Busy", b"last")).append_result.queue_offset
        assert store.wait_for_dispatch(10)
        assert store.get_min_offset_in_queue("Busy", 0) == 0
        assert store.get_max_offset_in_queue("Busy", 0) == last + 1
        (found,) = store.get_message("g", "Busy", 0, last, 1).messages
        assert found.body == b"last"


def test_a_deleted_batch_topic_begins_anew(root):
    with MessageStore(config_of(root), is_batch_topic=lambda topic: topic == "B") as store:
        store.put_message(Message("B", b"x"))
        assert store.delete_topic("B")
        assert not (root / "batchconsumequeue" / "B").exists()
        assert store.put_message(Message("B", b"y")).append_result.queue_offset == 0
