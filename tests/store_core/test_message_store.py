"""The life of a store: open, put, read, stop, again; and what is refused when."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from store_core import (
    Message,
    MessageStore,
    MessageStoreConfig,
    StoreClosedError,
    StoreConfigError,
    StoreFormatError,
    StoreLockedError,
)
from store_core.services import store_services
from store_core.services.store_services import Surroundings
from store_core.state.running_flags import RunningFlag
from tests.golden_store import golden, tree_state
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_batch, make_message, numbers_in

EVER = 2**62


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def by_hand(root):
    """A started store without threads."""
    with without_threads(), MessageStore(config_of(root)) as store:
        yield store


def contents(root):
    """Return size and digest of all files, by name."""
    return {name: (size, digest) for name, (size, _, digest) in tree_state(root).items()}


def statuses(store):
    return [
        result.status.name
        for result in (
            store.put_message(make_message(0)),
            store.put_messages([make_message(0)]),
            store.append_batch(make_batch([0])),
        )
    ]


def put(store, numbers):
    for number in numbers:
        assert store.put_message(make_message(number)).status.name == "PUT_OK"


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
    """It may have found files gone, and a consumer would skip messages."""
    put(by_hand, [0])
    dispatch_all(by_hand)

    def outlive():
        with by_hand._reading_log():
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
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, "puts go on when they can"),
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
    with pytest.raises(StoreConfigError, match="new segments have no place"):
        MessageStore(replace(config, read_only_commit_log_store_paths="c2,c1")).load()


def test_transient_pool(root):
    config = config_of(root, transient_store_pool_enable=True, flush_disk_type="ASYNC_FLUSH")
    with without_threads(), MessageStore(config) as store:
        put(store, range(10))
        assert (store.max_phy_offset, store.dispatch_behind_bytes) == (0, 0)
        end = store.flush()
        assert store.max_phy_offset == end > 0
        dispatch_all(store)
        put(store, range(10, 100))  # rolls; `shutdown` writes it out
    judge(root, config, range(100), range(100))


def test_transient_pool_without_memory(root, monkeypatch):
    def no_memory(*_):
        raise OSError(12, "Cannot allocate memory")

    config = config_of(root, transient_store_pool_enable=True)
    with monkeypatch.context() as patch:
        patch.setattr(store_services, "TransientStorePool", no_memory)
        with pytest.raises(StoreConfigError, match="transientStorePoolSize=5: there is no memory"):
            MessageStore(config).load()
    with MessageStore(config) as store:  # the lock was given back
        put(store, [0])


def test_dispatchers_get_all_records_once(root):
    seen = []
    config = config_of(root)
    take = lambda frames: seen.extend(frames.column("commit_log_offset").tolist())  # noqa: E731
    with MessageStore(config, dispatchers=[take]) as store:
        puts = [store.put_message(make_message(n)).append_result for n in range(60)]
        assert store.wait_for_dispatch()
    assert seen == [done.commit_log_offset for done in puts]


def test_a_dispatcher_that_fails_gets_the_records_again(by_hand, root):
    by_hand.shutdown()
    calls = []

    def fail_once(frames):
        calls.append(len(frames))
        if len(calls) == 1:
            raise ValueError("not now")

    store = MessageStore(config_of(root), dispatchers=[fail_once])
    with store:
        put(store, range(3))
        with pytest.raises(ValueError, match="not now"):
            dispatch_all(store)
        dispatch_all(store)
        assert calls == [3, 3]
    judge(root, store.config, range(3), range(3))


def test_runtime_info_has_rocketmqs_keys(by_hand, root):
    put(by_hand, range(3))
    info = by_hand.runtime_info()
    assert info["putMessageTimesTotal"] == "3"
    assert int(info["commitLogMaxOffset"]) == by_hand.max_phy_offset
    directory = root / "commitlog"
    assert info["commitLogDiskRatio"] == info[f"commitLogDiskRatio_{directory}"]
    assert 0 <= float(info["consumeQueueDiskRatio"]) <= 1
    assert {"bootTimestamp", "putTps", "getTotalTps", "commitLogMinOffset"} <= set(info)


def test_shutdown_that_cannot_dispatch_leaves_abort(root):
    def never(_):
        raise ValueError("never")

    with without_threads(), MessageStore(config_of(root), dispatchers=[never]) as store:
        put(store, range(3))
    assert (root / "abort").exists()
    judge(root, store.config, range(3), range(3))


def test_destroy_deletes_what_a_broker_would(root):
    store = MessageStore(config_of(root, enable_consume_queue_ext=True))
    for is_open in (True, False):
        with store:
            put(store, range(60))
            (root / "config").mkdir(exist_ok=True)
            (root / "config" / "topics.json").write_text("{}", "utf-8")
            if is_open:
                store.destroy()
        if not is_open:
            store.destroy()
        left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        assert left == {"lock", "config/topics.json"}
    with pytest.raises(StoreClosedError):
        _ = store.max_phy_offset


def test_index_is_rebuilt_while_the_store_is_used(root):
    config = config_of(root)
    progress = []
    with MessageStore(config) as store:
        put(store, range(200))
        assert store.wait_for_dispatch()
        store.query_message("TopicA", "k0", 32, 0, EVER)  # has the files open
        stop = threading.Event()
        done = []

        def put_on():
            for number in range(200, 100_000):
                if stop.is_set():
                    return
                put(store, [number])
                done.append(number)

        thread = threading.Thread(target=put_on)
        thread.start()
        for _ in range(3):
            store.rebuild_index(lambda *seen: progress.append(seen))
            assert len(store.query_message("TopicA", "k100", 32, 0, EVER).messages) == 1
        stop.set()
        thread.join()
    assert progress[-1][0] == progress[-1][1] > 0
    everything = [*range(200), *done]
    judge(root, config, everything, everything)


def test_index_that_is_switched_off_is_not_rebuilt(root):
    with MessageStore(config_of(root, message_index_enable=False)) as store:
        put(store, range(3))
        with pytest.raises(StoreConfigError, match="messageIndexEnable"):
            store.rebuild_index()
    assert not (root / "index").exists()


@pytest.mark.parametrize("opened", ["started", "loaded", "closed"])
def test_queues_are_rebuilt_and_the_store_is_as_it_was(root, opened):
    with MessageStore(config_of(root)) as store:
        put(store, range(100))
    units = {path: path.read_bytes() for path in (root / "consumequeue").rglob("0" * 20)}
    for path in units:
        path.write_bytes(bytes(path.stat().st_size))
    if opened != "closed":
        store.load()
    if opened == "started":
        store.start()
    result = store.rebuild_consume_queue()
    assert result.result.units == 100
    if opened == "started":
        put(store, [100])
    elif opened == "loaded":
        assert store.max_phy_offset > 0
        assert statuses(store) == ["SERVICE_NOT_AVAILABLE"] * 3
    else:
        with pytest.raises(StoreClosedError):
            _ = store.max_phy_offset
    store.shutdown()
    numbers = range(101 if opened == "started" else 100)
    judge(root, store.config, numbers, numbers)


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
    """By another process, and by two objects of this one; the text says who has it."""
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


def test_sync_flush_that_takes_too_long(root, monkeypatch):
    """The message is in the log, and safe when the disk has done its work."""
    from store_core.files import mapped_file

    slow, true = threading.Event(), mapped_file.sync_data

    def sync(fd):
        assert slow.wait(30)
        true(fd)

    monkeypatch.setattr(mapped_file, "sync_data", sync)
    with MessageStore(config_of(root, sync_flush_timeout=30)) as store:
        result = store.put_message(make_message(0))
        assert (result.status.name, result.append_result.queue_offset) == ("FLUSH_DISK_TIMEOUT", 0)
        assert store.append_batch(make_batch([4])).status.name == "FLUSH_DISK_TIMEOUT"
        slow.set()
        assert store.flush() == store.max_phy_offset
        assert store.put_message(make_message(8)).status.name == "PUT_OK"
    judge(root, store.config, [0, 4, 8], [0, 4, 8])


class TestExpiry:
    """What the cleaning services do to a whole store; clock and disks are made up."""

    @pytest.fixture
    def store(self, root):
        self.ratio, self.hour, self.later_ms = 0.5, 12, 0
        begin = 1_000  # before any file was changed
        store = MessageStore(
            config_of(root, mapped_file_size_commit_log=8 << 10, delete_file_batch_max=2),
            surroundings=Surroundings(
                lambda: begin + self.later_ms, lambda _: self.ratio, lambda _: self.hour
            ),
        )
        with without_threads(), store:
            put(store, range(200))
            dispatch_all(store)
            self.segments = len(store.services.flush._queue.mapped_files)
            yield store

    def clean(self, store):
        services = store.services
        before = store.min_phy_offset
        services.clean_commit_log.run_once()
        services.correct_logic_offset.run_once()
        services.clean_consume_queue.run_once()
        return (store.min_phy_offset - before) // (8 << 10)

    def test_at_the_hour_when_old(self, store):
        assert self.clean(store) == 0
        self.hour = 4
        assert self.clean(store) == 0  # not old enough
        self.later_ms = 10**15
        assert [self.clean(store) for _ in range(3)] == [2, 2, 2]
        self.hour = 5
        assert self.clean(store) == 0
        for (topic, queue_id), numbers in numbers_in(store).items():
            least = store.get_min_offset_in_queue(topic, queue_id)
            first = store.get_message("g", topic, queue_id, least, 1).messages[0]
            assert first.commit_log_offset >= store.min_phy_offset
            assert store.get_max_offset_in_queue(topic, queue_id) - least == len(numbers) < 50

    def test_disk_is_nearly_full(self, store):
        self.ratio = 0.8
        assert self.clean(store) == 0  # not old enough
        self.ratio = 0.86
        assert self.clean(store) == 2
        assert statuses(store) == ["PUT_OK"] * 3
        self.ratio = 0.95
        assert self.clean(store) == 2
        refused = store.put_message(make_message(0))
        assert refused.status.name == "SERVICE_NOT_AVAILABLE"
        assert "free space" in refused.reason
        self.ratio = 0.5
        assert self.clean(store) == 0
        assert statuses(store) == ["PUT_OK"] * 3

    def test_what_is_not_dispatched_stays(self, store):
        put(store, range(200, 800))
        self.ratio = 0.86
        while self.clean(store):
            pass
        assert store.min_phy_offset <= store.services.reput.reput_from_offset
        assert store.dispatch_behind_bytes > 0
        dispatch_all(store)
        assert sum(map(len, numbers_in(store).values())) >= 600
        assert self.clean(store) > 0
