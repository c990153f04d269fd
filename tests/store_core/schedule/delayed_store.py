# SPDX-License-Identifier: Apache-2.0
"""A store with a clock of its own, a delivery driven by hand, and the delivered messages."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

from store_core import Message, MessageStore, MessageStoreConfig, ScheduleMessageService
from store_core.codec.message_codec import encode_record

START_MS = 1_790_000_000_000
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 2s 10s 1h"


class Clock:
    def __init__(self, now=START_MS):
        self.now = now

    def __call__(self):
        return self.now


def config_of(root, **settings):
    sizes = {
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 20 * 40,
        "max_hash_slot_num": 16,
        "max_index_num": 256,
        "message_delay_level": LEVELS,
    }
    return MessageStoreConfig(store_path_root_dir=str(root), **{**sizes, **settings})


@contextmanager
def delayed_store(root, clock=None, **settings):
    """Open a store; yield it and a service that is not started."""
    store = MessageStore(config_of(root, **settings), clock=clock or Clock())
    with store:
        yield store, ScheduleMessageService(store)


def put_delayed(store, level, body, topic="T", queue_id=0, **properties):
    properties = {"DELAY": str(level), **properties}
    result = store.put_message(Message(topic, body, queue_id=queue_id, properties=properties))
    assert result.status.name == "PUT_OK", result


def deliver(store, service, now=None):
    """Deliver all messages that are due."""
    assert store.wait_for_dispatch()
    while service.run_once(now):
        pass
    assert store.wait_for_dispatch()


def queue_of(store, topic="T", queue_id=0):
    """Return the stored records of a queue, whatever their number."""
    with store.reading() as found:
        queue = found.queue(topic, queue_id)
        if queue is None:
            return []
        units = queue.unit_columns(queue.min_offset, queue.max_offset)
        return [found.reader.read(int(at)) for at in units["commit_log_offset"]]


def bodies(store, topic="T", queue_id=0):
    return [record.body for record in queue_of(store, topic, queue_id)]


def without_place(record):
    """Return a record's bytes except those that the append sets."""
    return encode_record(replace(record, queue_offset=0, commit_log_offset=0, store_timestamp=0))
