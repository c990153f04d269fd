# SPDX-License-Identifier: Apache-2.0
"""A master and a slave, both of this project, and the network between them."""

from __future__ import annotations

import random
import shutil
import threading
from dataclasses import replace

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.ha.ha_client import HAClient
from store_core.ha.ha_service import HAService
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store
from tests.cutting_proxy import CuttingProxy, Weather
from tests.golden_store import CLUSTER_NAMES, STORE_NAMES, golden
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    put,
    queues,
    store_config,
    wait_until,
)
from tests.store_core.test_message_store_golden import bitmaps_of

_WEATHERS = [
    Weather(),
    Weather("bytes"),
    Weather("never", cut_after_bytes=(1, 60_000)),
    Weather(cut_after_bytes=(1, 90_000), max_delay_ms=30),
]
NAMES = [name for name in (*STORE_NAMES, *CLUSTER_NAMES) if name not in {"torn-5x", "empty-5x"}]


def follow_for_a_while(config, address, rng, meanwhile):
    """Follow until a part of the log has come."""
    ack = rng.choice(["flushed", "appended"])
    with MessageStore(config) as slave, HAClient(slave, address, first_offset=0, ack=ack) as client:
        reach = rng.randrange(slave.max_phy_offset, meanwhile())
        wait_until(lambda: client.state().max_offset >= reach, 60)
        assert client.failure is None


@pytest.mark.parametrize("seed", range(len(_WEATHERS)))
def test_all_weathers(tmp_path, seed):
    """The slave stops and starts meanwhile, and the master goes on."""
    rng = random.Random(seed)
    config, slave_config = (
        store_config(tmp_path / "m"),
        store_config(tmp_path / "s", broker_role="SLAVE"),
    )
    master = MessageStore(config)

    def put_some():
        put(master, 40)
        return master.max_phy_offset

    with master, HAService(master, port=0) as service:
        put(master, 150)
        with CuttingProxy(service.address, _WEATHERS[seed], seed) as proxy:
            for _ in range(3):
                follow_for_a_while(slave_config, proxy.address, rng, put_some)
            proxy.calm()
            slave = MessageStore(slave_config)
            with slave, HAClient(slave, proxy.address) as client:
                end = master.max_phy_offset
                assert client.wait_for(end, 30), client.state()
                assert master.wait_for_dispatch(10)
                assert queues(slave) == queues(master)
                wait_until(lambda: service.push_to_slave_max_offset == end)
    assert log_bytes(tmp_path / "s")[:end] == log_bytes(tmp_path / "m")[:end]
    assert_clean(tmp_path / "s", slave_config)


@pytest.mark.parametrize("ack", ["flushed", "appended"])
def test_a_put_waits_for_the_slave(tmp_path, ack):
    master = MessageStore(
        store_config(
            tmp_path / "m", broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=20_000
        )
    )
    slave = MessageStore(store_config(tmp_path / "s", broker_role="SLAVE"))
    service = HAService(master, port=0)
    with master, slave, service, HAClient(slave, service.address, ack=ack):
        for number in range(30):
            put(master, 1, number)  # PUT_OK
            end = slave.max_phy_offset
            assert end == master.max_phy_offset
            if ack == "flushed":
                assert slave.flushed_where == end


def test_a_slave_follows_while_threads_put(tmp_path):
    slave_config = store_config(tmp_path / "s", broker_role="SLAVE")
    master = MessageStore(store_config(tmp_path / "m"))
    service = HAService(master, port=0)
    slave = MessageStore(slave_config)
    with master, service, slave, HAClient(slave, service.address, first_offset=0) as client:
        threads = [
            threading.Thread(target=put, args=(master, 200, first)) for first in range(0, 800, 200)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.wait_for(master.max_phy_offset, 30)
        assert master.wait_for_dispatch(10)
        assert queues(slave) == queues(master)
        wait_until(lambda: client.state().is_caught_up)
        assert client.state().lag_bytes == 0
    assert slave_config.mapped_file_size_commit_log == SEGMENT
    assert_clean(tmp_path / "s", slave_config)


@pytest.mark.parametrize("first", [0, "earliest", None])
def test_where_a_slave_begins(tmp_path, first):
    slave_config = store_config(tmp_path / "s", broker_role="SLAVE")
    with MessageStore(store_config(tmp_path / "m")) as master, HAService(master, port=0) as service:
        put(master, 200)
        slave = MessageStore(slave_config)
        with slave, HAClient(slave, service.address, first_offset=first) as client:
            assert client.wait_for(master.max_phy_offset, 30)
            last = master.max_phy_offset // SEGMENT * SEGMENT
            assert last > 0
            assert slave.min_phy_offset == (last if first is None else 0)
    assert_clean(tmp_path / "s", slave_config)


def test_cut_after_a_failover(tmp_path):
    """The old master had more than its slave, which has become the master since."""
    old, new = store_config(tmp_path / "a"), store_config(tmp_path / "b", broker_role="SLAVE")
    with MessageStore(old) as master, HAService(master, port=0) as service:
        put(master, 100)
        with MessageStore(new) as slave, HAClient(slave, service.address, first_offset=0) as client:
            assert client.wait_for(master.max_phy_offset, 30)
        put(master, 60, 100)
    was_slave = store_config(tmp_path / "b")
    was_master = store_config(tmp_path / "a", broker_role="SLAVE")
    with MessageStore(was_slave) as master, HAService(master, port=0) as service:
        put(master, 10, 500)
        with MessageStore(was_master) as slave:
            with HAClient(slave, service.address) as client:
                wait_until(lambda: client.failure is not None)
            with HAClient(slave, service.address, cut=True) as client:
                wait_until(lambda: client.failure or client.state().is_caught_up, 30)
                put(master, 30, 600)
                assert client.wait_for(master.max_phy_offset, 10)
            assert master.wait_for_dispatch(10)
            assert queues(slave) == queues(master)
    assert_clean(tmp_path / "a", was_master)


@pytest.mark.parametrize("first", [0, "earliest", None])
def test_a_master_that_is_empty(tmp_path, first):
    slave_config = store_config(tmp_path / "s", broker_role="SLAVE")
    master, slave = MessageStore(store_config(tmp_path / "m")), MessageStore(slave_config)
    service = HAService(master, port=0)
    with master, slave, service, HAClient(slave, service.address, first_offset=first) as client:
        wait_until(lambda: client.state().is_caught_up)
        put(master, 200)
        assert client.wait_for(master.max_phy_offset, 30)
        assert slave.min_phy_offset == 0
    assert_clean(tmp_path / "s", slave_config)


# Copies of golden stores over the network: every kind of record, queue and unit.


def settings_of(store, root, **changes):
    config = MessageStoreConfig.from_properties(store.config_properties)
    return replace(
        config,
        store_path_root_dir=str(root),
        file_reserved_time=1_000_000,
        clean_file_forcibly_enable=False,
        disk_space_warning_level_ratio=99,
        ha_send_heartbeat_interval=100,
        **changes,
    )


def open_store(store, config):
    types = store.config.get("topic_queue_types")
    return MessageStore(
        config,
        is_batch_topic=None if types is None else lambda topic: types.get(topic) == "BatchCQ",
        filter_bitmaps=None if store.is_cluster else bitmaps_of(store),
    )


def snapshot_of(config):
    return StoreSnapshot(config.store_path_root_dir, config)


def kinds_of_findings(snapshot):
    return {finding.kind for finding in check_store(snapshot).findings}


def messages_of(snapshot, queue, first):
    """Return places and content of a queue's messages, from a queue offset on."""
    found, offset = [], first
    while offset < snapshot.queue_range(*queue).max_offset:
        result = snapshot.get_message("g", *queue, offset, 1000)
        found += [(m.queue_offset, m.commit_log_offset, m.body) for m in result.messages]
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
    return found


def log_of(store, first, stop):
    """Return the bytes of an open store's log."""
    parts, at = [], first
    while at < stop:
        with store.commit_log_data(at, stop - at) as data:
            parts.append(data.tobytes())
        at += len(parts[-1])
    return b"".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_of_a_golden_store(name, tmp_path):
    store = golden(name)
    root = store.copy_to(tmp_path)
    master_config = settings_of(store, root, broker_role="ASYNC_MASTER")
    slave_config = settings_of(
        store, tmp_path / "slave", broker_role="SLAVE", store_path_commit_log=None
    )
    if (root / "config").is_dir():
        shutil.copytree(root / "config", tmp_path / "slave" / "config")
    master, slave = open_store(store, master_config), open_store(store, slave_config)
    with (
        master,
        slave,
        HAService(master, port=0) as service,
        HAClient(slave, service.address, first_offset="earliest") as client,
    ):
        end = master.max_phy_offset
        assert client.wait_for(end, 20), client.state()
        first = slave.min_phy_offset
        assert first == master.min_phy_offset
        assert log_of(slave, first, end) == log_of(master, first, end)
    with snapshot_of(slave_config) as copy, snapshot_of(master_config) as own:
        known = kinds_of_findings(own)
        assert kinds_of_findings(copy) <= known
        for queue in own.queue_paths:
            messages = messages_of(own, queue, own.queue_range(*queue).min_offset)
            if [m for m in messages if m[1] >= first]:
                begin = copy.queue_range(*queue).min_offset
                assert messages_of(copy, queue, begin) == messages
        assert set(copy.queue_paths) <= set(own.queue_paths)
