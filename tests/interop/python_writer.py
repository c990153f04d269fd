# SPDX-License-Identifier: Apache-2.0
"""This project's store as a process: ``python -m tests.interop.python_writer``.

Arguments: ``ROOT CONFIG N SEED [halt|undispatched]``; CONFIG has RocketMQ's keys, as JSON.
It appends N messages in all three ways, and stops cleanly or not at all (``undispatched``: before
any of them is in a queue). It prints the positions as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence

import pyarrow as pa

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.services.reput_message import ReputMessageService

TOPIC = "TopicPython"
_WORDS = ("order", "paid", "größe", "价格", "naïve", "🚀")


def append(store: MessageStore, count: int, seed: int) -> None:
    """Put ``count`` messages; the seed determines their content."""
    generator = random.Random(seed)
    left = count
    while left > 0:
        some = [
            _message(generator, seed, left - i) for i in range(min(left, generator.randint(1, 40)))
        ]
        left -= len(some)
        way = generator.randrange(3)
        if way == 0:
            results = [store.put_message(message) for message in some]
        elif way == 1:
            for message in some:
                message.queue_id = some[0].queue_id
            results = [store.put_messages(some)]
        else:
            results = [store.append_batch(_batch(some))]
        assert all(result.status.name == "PUT_OK" for result in results), results


def main(root: str, config: str, count: str, seed: str, how: str = "stop") -> None:
    """Open the store, append, and stop or halt."""
    if how == "undispatched":
        ReputMessageService.run_once = lambda _: False
    store = MessageStore(
        MessageStoreConfig.from_properties({**json.loads(config), "storePathRootDir": root})
    )
    store.load()
    store.start()
    begin = store.max_phy_offset
    append(store, int(count), int(seed))
    sys.stdout.write(json.dumps({"from": begin, "to": store.max_phy_offset}) + "\n")
    sys.stdout.flush()
    if how != "stop":
        os._exit(0)
    store.shutdown()


def _message(generator: random.Random, seed: int, number: int) -> Message:
    words = " ".join(generator.choice(_WORDS) for _ in range(generator.randrange(8)))
    return Message(
        TOPIC,
        f"{seed}/{number} {words}".encode(),
        queue_id=generator.randrange(4),
        keys=[f"p{seed}-{number}", "python"],
        tags=generator.choice(["TagA", "TagB", None]),
        unique_key=f"{seed:016X}{number:016X}",
        born_host=generator.choice(["10.1.2.3:1234", "[2001:db8::7]:1234"]),
        flag=generator.randrange(100),
    )


def _batch(messages: Sequence[Message]) -> pa.RecordBatch:
    from store_core.codec.message_id import parse_host

    return pa.RecordBatch.from_pydict(
        {
            "topic": [message.topic for message in messages],
            "queue_id": pa.array([message.queue_id for message in messages], pa.int32()),
            "body": pa.array([message.body for message in messages], pa.binary()),
            "flag": pa.array([message.flag for message in messages], pa.int32()),
            "born_host": pa.array(
                [parse_host(message.born_host or "") for message in messages], pa.binary()
            ),
            "properties_raw": pa.array(
                [
                    "".join(f"{k}\1{v}\2" for k, v in message.properties.items()).encode()
                    for message in messages
                ],
                pa.binary(),
            ),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
