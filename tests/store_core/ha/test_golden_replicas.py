"""Copies of golden stores that came over the network: every kind of record, queue and unit."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.ha.ha_client import HAClient
from store_core.ha.ha_service import HAService
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store
from tests.golden_store import CLUSTER_NAMES, STORE_NAMES, golden
from tests.store_core.test_message_store_golden import bitmaps_of

NAMES = [name for name in (*STORE_NAMES, *CLUSTER_NAMES) if name not in {"torn-5x", "empty-5x"}]


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
    """Return where the messages of a queue lie, and what is in them, from a queue offset on."""
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
