# SPDX-License-Identifier: Apache-2.0
"""A store whose log comes from a master, byte for byte."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import HAError, StoreClosedError, StoreConfigError
from store_core.message import Message
from store_core.message_store import MessageStore
from store_core.results import PutMessageStatus

SEGMENT = 4096


def store_config(root, **changes):
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=40,
        clean_file_forcibly_enable=False,
    )
    return replace(config, **changes)


def put(store, count, first=0):
    for number in range(first, first + count):
        body = b"x" * (number * 37 % 700)
        message = Message(
            topic=f"T{number % 2}",
            queue_id=number % 3,
            body=body,
            properties={"KEYS": f"k{number}"},
        )
        assert store.put_message(message).status is PutMessageStatus.PUT_OK


@pytest.fixture
def master(tmp_path):
    with MessageStore(store_config(tmp_path / "master")) as store:
        put(store, 60)
        yield store


@pytest.fixture
def slave_config(tmp_path):
    return store_config(tmp_path / "slave", broker_role="SLAVE")


def replicate(master, slave, stop, *, first=0, most=1 << 20):
    at = slave.max_phy_offset or first
    while at < stop:
        with master.commit_log_data(at, min(most, stop - at)) as data:
            slave.append_to_commit_log(at, data.tobytes())
            at += len(data)


def queues(store):
    found = {}
    for topic in ("T0", "T1"):
        for queue_id in range(3):
            result = store.get_message("g", topic, queue_id, 0, 1000)
            found[topic, queue_id] = [m.body for m in result.messages]
    return found


def log_bytes(store):
    root = Path(store.config.store_path_root_dir)
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def test_a_slave_has_what_its_master_has(master, slave_config):
    rng = random.Random(1)
    with MessageStore(slave_config) as slave:
        end = master.max_phy_offset
        while slave.max_phy_offset < end:
            replicate(master, slave, min(slave.max_phy_offset + rng.randrange(1, 900), end))
        assert slave.wait_for_dispatch(10)
        assert master.wait_for_dispatch(10)
        assert queues(slave) == queues(master)
        assert slave.query_message("T1", "k7", 10, 0, 2**62).messages
        put(master, 5, 60)
        replicate(master, slave, master.max_phy_offset)
        assert slave.wait_for_dispatch(10)
        assert master.wait_for_dispatch(10)
        assert queues(slave) == queues(master)
        end = slave.max_phy_offset
    assert log_bytes(slave)[:end] == log_bytes(master)[:end]


def test_a_log_may_begin_at_any_segment(master, slave_config, caplog):
    first = SEGMENT * 3
    with MessageStore(slave_config) as slave:
        with pytest.raises(ValueError, match="but the log continues at"):
            slave.append_to_commit_log(first + 1, b"x")
        replicate(master, slave, master.max_phy_offset, first=first)
        assert slave.wait_for_dispatch(10)
        assert slave.min_phy_offset == first
        whole = queues(master)
        assert all(
            whole[key][-len(found) :] == found for key, found in queues(slave).items() if found
        )
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_half_a_record_waits_and_is_cut_at_a_clean_stop(master, slave_config):
    with MessageStore(slave_config) as slave:
        replicate(master, slave, 1000)
        assert slave.max_phy_offset == 1000
    with MessageStore(slave_config) as slave:
        end = slave.max_phy_offset
        assert 0 < end < 1000
        assert slave.load().last_exit_ok
        assert slave.load().cut_bytes == 0
        replicate(master, slave, master.max_phy_offset, most=700)
        assert slave.wait_for_dispatch(10)
        assert master.wait_for_dispatch(10)
        assert queues(slave) == queues(master)


def test_only_a_slave_takes_bytes(master):
    with pytest.raises(StoreConfigError, match="ASYNC_MASTER"):
        master.append_to_commit_log(master.max_phy_offset, b"x")


def test_bytes_must_lie_at_the_end_of_one_segment(master, slave_config):
    with MessageStore(slave_config) as slave:
        replicate(master, slave, 100)
        with pytest.raises(ValueError, match="begins at offset 99, but the log continues at 100"):
            slave.append_to_commit_log(99, b"x")
        with pytest.raises(ValueError, match="past the end of their segment of 4096 bytes"):
            slave.append_to_commit_log(100, bytes(SEGMENT - 99))
        assert slave.max_phy_offset == 100
    with pytest.raises(StoreClosedError):
        slave.append_to_commit_log(100, b"x")


def test_log_data_of_one_segment(master):
    end = master.max_phy_offset
    with master.commit_log_data(SEGMENT - 10, 1000) as data:
        assert len(data) == 10
    with master.commit_log_data(end, 1000) as data:
        assert data is None
    with master.commit_log_data(10 * end, 1) as data:
        assert data is None


class Replicas:
    def __init__(self, answer):
        self.answer, self.asked, self.woken, self.is_ended = answer, [], 0, False

    def wakeup(self):
        self.woken += 1

    def wait_for(self, next_offset, since):
        self.asked.append(next_offset)
        return self.answer

    def store_closed(self):
        self.is_ended = True


@pytest.mark.parametrize(
    ("role", "in_sync", "expected"),
    [
        ("SYNC_MASTER", 2, PutMessageStatus.FLUSH_SLAVE_TIMEOUT),
        ("SYNC_MASTER", 1, PutMessageStatus.PUT_OK),
        ("ASYNC_MASTER", 2, PutMessageStatus.PUT_OK),
    ],
)
def test_who_waits_for_replicas(tmp_path, role, in_sync, expected):
    config = store_config(tmp_path, broker_role=role, in_sync_replicas=in_sync)
    message = Message(topic="T", queue_id=0, body=b"b")
    with MessageStore(config) as store:
        assert store.put_message(message).status is expected  # no replica can have it
        late = Replicas(False)
        store.use_replication(late)
        assert store.put_message(message).status is expected
        with pytest.raises(HAError, match="another service replicates"):
            store.use_replication(Replicas(True))
        store.use_replication(None)
        in_time = Replicas(True)
        store.use_replication(in_time)
        result = store.put_message(message)
        assert result.status is PutMessageStatus.PUT_OK
        hasty = Message(topic="T", queue_id=0, body=b"b", properties={"WAIT": "false"})
        assert store.put_message(hasty).status is PutMessageStatus.PUT_OK
        assert in_time.woken == 2
        waited = [result.append_result.commit_log_offset + result.append_result.store_size]
        assert in_time.asked == (waited if expected is not PutMessageStatus.PUT_OK else [])
    assert in_time.is_ended
    assert not late.is_ended


@pytest.mark.parametrize("back_ms", [0, 5000])
def test_an_append_that_was_killed_half_way_is_cut_and_kept(tmp_path, back_ms):
    """The first bytes of one append are written last: whole records follow zeros.

    Even if the master's clock was set back: then they are older than the records on the disk.
    """
    now = 1_700_000_000_000
    master = MessageStore(store_config(tmp_path / "master"), clock=lambda: now)
    with master:
        put(master, 4)
        first = master.max_phy_offset
        now -= back_ms
        put(master, 4, 4)
        end = master.max_phy_offset
    log = log_bytes(master)[:end]
    assert end < SEGMENT
    config = store_config(tmp_path / "slave", broker_role="SLAVE")
    with MessageStore(config) as slave:
        slave.append_to_commit_log(0, log[:first])
        assert slave.flush() == first
        assert slave.wait_for_dispatch(10)
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path / "slave", killed)
    with (killed / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(first + 8)
        file.write(log[first + 8 :])
    with MessageStore(replace(config, store_path_root_dir=str(killed))) as slave:
        assert slave.max_phy_offset == first
        slave.append_to_commit_log(first, log[first:])
        assert slave.wait_for_dispatch(10)
        assert sum(map(len, queues(slave).values())) == 8
    assert log_bytes(slave)[:end] == log
    (kept,) = (killed / "_cut").rglob("0*/*")
    assert kept.read_bytes() == bytes(8) + log[first + 8 :]
