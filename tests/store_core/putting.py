# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of putting: a putter over a log of its own, and golden messages."""

from __future__ import annotations

import base64
import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa

from store_core.codec.message_codec import decode_message
from store_core.codec.message_id import parse_host
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.layout import BLANK_MAGIC_CODE, RECORD_PREFIX
from store_core.log.commit_log_appender import CommitLogAppender
from store_core.message import Message
from store_core.put.put_checks import Refusal
from store_core.put.put_message import MessagePutter
from store_core.put.timer_rules import TimerRules
from store_core.queue.consume_queue_store import QueueOffsetTable
from store_core.results import PutMessageStatus

HOST = bytes([192, 168, 7, 8, 0, 0, 42, 159])
OPTION = "mappedFileSizeCommitLog"
PRODUCER_NUMBERS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
"""A producer's message, by the numbers in a line of messages.jsonl."""


class Clock:
    def __init__(self, now=1000):
        self.now = now

    def __call__(self):
        return self.now


class Flush:
    """Records its calls."""

    def __init__(self):
        self.calls, self.status = [], PutMessageStatus.PUT_OK

    def handle(self, next_offset, wait):
        self.calls.append((next_offset, wait))
        return self.status


class Stats:
    def __init__(self):
        self.puts, self.failures = [], 0

    def record_put(self, messages, size_bytes, elapsed_ms):
        self.puts.append((messages, size_bytes, elapsed_ms))

    def record_put_failure(self):
        self.failures += 1


class Log:
    """A commit log with a putter; its attributes may be replaced before the first put."""

    def __init__(
        self,
        directory,
        segment_bytes=1 << 16,
        directories=("commitlog",),
        *,
        schedules=False,
        timers=False,
        **config,
    ):
        self.queue = MappedFileQueue(
            [str(directory / name) for name in directories], segment_bytes, option=OPTION
        )
        self.config = replace(MessageStoreConfig(), **config)
        self.clock, self.flush, self.stats = Clock(), Flush(), Stats()
        self.appender = CommitLogAppender(self.queue, self.clock)
        self.offsets = QueueOffsetTable(4)
        self.refusal, self.batch_topics = None, set()
        self.timer_rules = TimerRules(self.config, self.clock)
        self.putter = MessagePutter(
            self.config,
            self.appender,
            self.offsets,
            self.flush,
            store_host=HOST,
            refusal=lambda: self.refusal and Refusal(self.refusal, "closed"),
            is_batch_topic=lambda topic: topic in self.batch_topics,
            stats=self.stats,
            clock=self.clock,
            handle_schedule_message=schedules,
            timer_rules=self.timer_rules if timers else None,
        )

    def put(self, topic="T", body=b"b", **fields):
        return self.putter.put_message(Message(topic, body, **fields))

    def put_ok(self, *args, **fields):
        result = self.put(*args, **fields)
        assert result.status is PutMessageStatus.PUT_OK, result
        return result.append_result

    def records(self):
        """Decode all records; their frames, own offsets and CRCs are checked."""
        found = []
        for file in self.queue.mapped_files:
            with file.select(0) as data:
                view, at = memoryview(bytes(data)), 0
            while at + 8 <= len(view):
                size, magic = RECORD_PREFIX.struct.unpack_from(view, at)
                if magic == BLANK_MAGIC_CODE:
                    break
                offset = file.file_from_offset + at
                found.append(decode_message(view, at, offset, file.path, check_crc=True))
                at += size
        return found

    def bytes(self):
        parts = []
        for file in self.queue.mapped_files:
            with file.select(0) as data:
                parts.append(bytes(data))
        return b"".join(parts)


def batch_of(rows):
    """Return the record batch of messages, as the columnar path wants them."""
    columns = {
        "topic": pa.array([m.topic for m in rows], pa.string()),
        "body": pa.array([m.body for m in rows], pa.binary()),
        "properties_raw": pa.array([m.properties_raw for m in rows], pa.binary()),
        "born_timestamp": pa.array([m.born_timestamp or None for m in rows], pa.int64()),
    }
    for name in ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"):
        columns[name] = pa.array([getattr(m, name) for m in rows], pa.int64())
    for name in ("born_host", "store_host"):
        hosts = [getattr(m, name) for m in rows]
        columns[name] = pa.array([h and parse_host(h) for h in hosts], pa.binary())
    return pa.record_batch(columns)


def _host(host):
    if isinstance(host, str):  # of a cluster store
        return host
    ip = host["ip"]
    return f"[{ip}]:{host['port']}" if ":" in ip else f"{ip}:{host['port']}"


def golden_message(line):
    """Return a producer's message for a line of messages.jsonl."""
    return Message(
        line["topic"],
        base64.b64decode(line["body_raw_b64"]),
        properties_raw=base64.b64decode(line["properties_raw_b64"]),
        born_host=_host(line["born_host"]),
        store_host=_host(line["store_host"]),
        **{name: line[name] for name in PRODUCER_NUMBERS},
    )


def first_offsets(lines):
    """Return the queue offset of the first message of each queue."""
    first = {}
    for line in lines:
        if not line["sys_flag"] & 4:
            first.setdefault((line["topic"], line["queue_id"]), line["queue_offset"])
    return first


def queue_offsets_in_order(records):
    """Return the queue offsets of each queue, in the order of the log."""
    ordered = sorted(records, key=lambda r: (r.topic_bytes, r.queue_id))
    return {
        key: [r.queue_offset for r in sorted(group, key=lambda r: r.commit_log_offset)]
        for key, group in itertools.groupby(ordered, lambda r: (r.topic_bytes, r.queue_id))
    }


def same(left, right):
    return np.array_equal(np.asarray(left), np.asarray(right))
