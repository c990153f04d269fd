# SPDX-License-Identifier: Apache-2.0
"""Small stores for tests of replication."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from store_core.codec.record_frames import walk_records
from store_core.config.message_store_config import MessageStoreConfig
from store_core.message import Message
from store_core.results import PutMessageStatus
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store

SEGMENT = 65536


def store_config(root, **changes):
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=50,
        max_index_num=40,
        clean_file_forcibly_enable=False,
        ha_send_heartbeat_interval=200,
        ha_housekeeping_interval=3000,
    )
    return replace(config, **changes)


def put(store, count, first=0):
    for number in range(first, first + count):
        message = Message(
            topic=f"T{number % 2}",
            queue_id=number % 3,
            body=bytes([number % 251]) * (number * 37 % 1700),
            properties={"KEYS": f"k{number}"},
        )
        assert store.put_message(message).status is PutMessageStatus.PUT_OK


def queues(store):
    """Return the bodies of all queues."""
    found = {}
    for topic in ("T0", "T1"):
        for queue_id in range(3):
            last = max(store.get_max_offset_in_queue(topic, queue_id), 0)
            bodies = []
            while len(bodies) < last:
                result = store.get_message("g", topic, queue_id, len(bodies), 500)
                bodies += [message.body for message in result.messages]
            found[topic, queue_id] = bodies
    return found


def log_bytes(root):
    return b"".join(path.read_bytes() for path in sorted((Path(root) / "commitlog").iterdir()))


def record_ends(log):
    """Return the ends of a log's records; the end of a segment is that of its last record."""
    ends = [0]
    for segment in range(0, len(log), SEGMENT):
        data = np.frombuffer(log[segment : segment + SEGMENT], np.uint8)
        walk = walk_records(data, 0, len(data), 1 << 20, 1 << 30)
        ends += [segment + int(start) for start in walk.starts[1:]]
        ends += [segment + walk.stop, segment + len(data)]
    return np.array(ends)


def root_of(store):
    return store.config.store_path_root_dir


def assert_clean(root, config):
    """Check that nothing is wrong with a store."""
    with StoreSnapshot(root, config) as view:
        report = check_store(view)
    assert not [f for f in report.findings], report.findings


def wait_until(done, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.002)
