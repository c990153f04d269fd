"""A process that puts and delivers delayed messages, and dies while it does.

``python -m tests.store_core.schedule.killed_delivery``, see ``crash.killed_writer``.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from store_core import Message, MessageStore, MessageStoreConfig, ScheduleMessageService
from tests.store_core.crash.killed_writer import ACKNOWLEDGEMENT, Death, fast_clock_ms, serve
from tests.store_core.crash.messages import config_of

TOPICS = ("TopicA", "TopicB")
DELAYS_MS = (1_000, 20_000, 90_000)
_LEVELS = "1s 20s 90s"


def delay_config(root: Path, **settings: Any) -> MessageStoreConfig:
    """Return the configuration of a small store with short levels and offsets saved often."""
    given = {"flush_delay_offset_interval": 15, "message_delay_level": _LEVELS, **settings}
    return config_of(root, **given)


def level_of(number: int) -> int:
    """Return the delay level of a message."""
    return 1 + number % len(DELAYS_MS)


def place_of(number: int) -> tuple[str, int]:
    """Return real topic and queue of a message."""
    return TOPICS[number % 5 % 2], number // 3 % 2


def delayed_message(number: int) -> Message:
    """Return a message that waits; its body says its number."""
    topic, queue_id = place_of(number)
    body = b"%d:" % number + bytes([number % 251]) * (number * 37 % 200)
    properties = {"DELAY": str(level_of(number)), "KEYS": f"k{number}"}
    return Message(topic, body, queue_id=queue_id, properties=properties)


def work(
    root: str,
    settings: dict[str, Any],
    seed: int,
    first: int,
    acknowledgements: str,
    die_after: int,
    puts: int,
) -> None:
    """Open the store, put and deliver; stop cleanly now and then."""
    generator = random.Random(seed)
    log = os.open(acknowledgements, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        Death(die_after, generator).install()
    config, number = delay_config(Path(root), **settings), first
    while puts > 0:
        store = MessageStore(config, clock=fast_clock_ms)
        with store:
            service = ScheduleMessageService(store)
            for _ in range(min(puts, generator.randrange(5, 40))):
                assert store.put_message(delayed_message(number)).is_appended
                os.write(log, ACKNOWLEDGEMENT.pack(number, number + 1, True))
                number += 1
                puts -= 1
                if generator.random() < 0.3:
                    service.run_once()
            service.save()
    os._exit(0)


if __name__ == "__main__":
    serve(work)
