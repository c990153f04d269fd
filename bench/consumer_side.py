# SPDX-License-Identifier: Apache-2.0
"""Our consumer in a process of its own: ``python -m bench.consumer_side NAMESRV TOPIC COUNT``."""

from __future__ import annotations

import argparse
import threading
import time
from typing import TYPE_CHECKING

from bench.side_process import tell
from rmqnet import ConsumeFromWhere, PushConsumer, PushConsumerOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqnet import ConsumeContext, Message

_TIMEOUT_S = 600


def main(arguments: Sequence[str] | None = None) -> None:
    """Consume a topic in rounds, each as a separate group; print the seconds of each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("namesrv_addr")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    for number in range(options.rounds):
        seconds = consume(options.namesrv_addr, options.topic, options.count)
        tell("consumed", count=options.count, seconds=seconds, round=number)


def consume(namesrv_addr: str, topic: str, count: int) -> float:
    """Return the seconds from the first message until an idle listener has had all messages."""
    counter = _Counter(count)
    consumer = PushConsumer(
        f"python_{time.time_ns()}",
        namesrv_addr,
        counter,
        options=PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    )
    consumer.subscribe(topic)
    with consumer:
        if not counter.done.wait(_TIMEOUT_S):
            raise TimeoutError(f"{counter.left} of {count} messages are missing")
    return counter.end - counter.begin


class _Counter:
    """A listener that only counts messages."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.begin = self.end = 0.0
        self.done = threading.Event()
        self._guard = threading.Lock()

    def __call__(self, messages: list[Message], context: ConsumeContext) -> None:
        with self._guard:
            if not self.begin:
                self.begin = time.perf_counter()
            self.left -= len(messages)
            if self.left <= 0 and not self.end:
                self.end = time.perf_counter()
                self.done.set()


if __name__ == "__main__":
    main()
