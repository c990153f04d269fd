# SPDX-License-Identifier: Apache-2.0
"""Feeds a store of this project: ``python -m tests.rmqsource.stream.feeding_process``.

Arguments: ``ROOT JOURNAL SEED``. Commands and journal are those of `live_store`.
"""

from __future__ import annotations

import os
import random
import sys
import time
from hashlib import md5
from pathlib import Path

from store_core import Message, MessageStore, MessageStoreConfig
from tests.rmqsource.stream.live_store import SIZES

_MESSAGES_PER_TOPIC = 2500
_LONG_AGO_S = 100 * 24 * 3600
_MOST_AT_ONCE = 30


class FeedingStore:
    """Puts one by one and in batches; deletes segments the stream has passed."""

    def __init__(self, root: str, journal: str, seed: int) -> None:
        sizes = {key: str(size) for key, size in SIZES.items()}
        config = MessageStoreConfig.from_properties({**sizes, "storePathRootDir": root})
        self.store = MessageStore(config)
        self.store.load()
        self.store.start()
        self._root, self._seed, self._number = Path(root), seed, 0
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._generator = random.Random(seed)

    def put(self, count: int) -> None:
        """Put so many messages."""
        left = count
        while left:
            some = self._messages(min(left, self._generator.choice([1, 1, 1, _MOST_AT_ONCE])))
            left -= len(some)
            for message in some:
                digest = md5(message.body).hexdigest()
                self._note(f"put {message.topic} {message.queue_id} {digest}")
            result = (
                self.store.put_message(some[0]) if len(some) == 1 else self.store.put_messages(some)
            )
            assert result.status.name == "PUT_OK", result
            self._note(f"ok {len(some)}")

    def expire(self, offset: int) -> None:
        """Delete segments that end at an offset or before, as expiry does."""
        segments = sorted((self._root / "commitlog").iterdir())
        long_ago = time.time() - _LONG_AGO_S
        for path, after in zip(segments, segments[1:]):
            if int(after.name) <= offset:
                os.utime(path, (long_ago, long_ago))
        services = self.store.services
        services.clean_commit_log.execute_delete_files_manually()
        services.clean_commit_log.run_once()
        services.clean_consume_queue.run_once()

    def _messages(self, count: int) -> list[Message]:
        """Return messages for one queue: a batch is for one."""
        generator, queue_id = self._generator, self._generator.randrange(4)
        may_be_large = count == 1  # a batch is one write: it must fit a segment
        topic = f"Feed{self._number // _MESSAGES_PER_TOPIC}"
        some = []
        for _ in range(count):
            is_large = may_be_large and generator.random() < 0.05
            size = generator.randrange(24_000 if is_large else 300)
            body = f"{self._seed}/{self._number} ".encode() + generator.randbytes(size)
            some.append(
                Message(
                    topic,
                    body,
                    queue_id=queue_id,
                    keys=[f"key{self._number}"],
                    unique_key=f"{self._seed:016X}{self._number:016X}",
                )
            )
            self._number += 1
        return some

    def _note(self, line: str) -> None:
        os.write(self._journal, f"{line}\n".encode())


def main(root: str, journal: str, seed: str) -> None:
    """Obey standard input until it ends; then stop cleanly."""
    feeding = FeedingStore(root, journal, int(seed))
    commands = {"put": feeding.put, "expire": feeding.expire}
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        word, value = line.split()
        commands[word](int(value))
        sys.stdout.write("{}\n")
        sys.stdout.flush()
    feeding.store.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
