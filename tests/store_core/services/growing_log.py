# SPDX-License-Identifier: Apache-2.0
"""A small commit log to which tests append, with its clock."""

from __future__ import annotations

from store_core.codec.message_codec import encode_message
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.log.commit_log_appender import CommitLogAppender

HOST = bytes([192, 168, 7, 8, 0, 0, 42, 159])


class Clock:
    def __init__(self, now=1_000_000):
        self.now = now

    def __call__(self):
        return self.now


class GrowingLog:
    def __init__(self, directory, segment_bytes=1024):
        self.queue = MappedFileQueue([str(directory)], segment_bytes, option="size")
        self.clock = Clock()
        self.appender = CommitLogAppender(self.queue, self.clock)
        self.offsets = []

    def add(self, *body_lengths):
        """Append a message for each length, a millisecond apart; return the end of the log."""
        for length in body_lengths:
            self.clock.now += 1
            record = encode_message(
                topic=b"T",
                body=bytes(length),
                properties_raw=b"",
                commit_log_offset=0,
                queue_offset=0,
                queue_id=0,
                born_timestamp=1,
                born_host=HOST,
                store_timestamp=0,
                store_host=HOST,
            )
            appended = self.appender.append(bytearray(record), len(self.offsets))
            self.offsets.append(appended.commit_log_offset)
        return self.queue.max_wrote_offset
