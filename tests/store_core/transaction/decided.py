# SPDX-License-Identifier: Apache-2.0
"""Numbered transactions whose local work is a decision, and checks of a store after a crash.

A list of decisions takes the place of a producer's database. A decided transaction is answered
accordingly; one without a decision, because its process died before, is rolled back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.judge import assert_sound
from tests.store_core.crash.killed_writer import fast_clock_ms
from tests.store_core.crash.messages import config_of, messages_in

COMMIT, ROLLBACK = TransactionState.COMMIT_MESSAGE, TransactionState.ROLLBACK_MESSAGE
TOPIC, QUEUES = "Orders", 2
_MOST_CHECKS = 400


def transaction_config(root: Path, **settings: Any) -> MessageStoreConfig:
    """Return the configuration of a small store whose op messages hold few names.

    Clocks of these tests run fast: no half message may be discarded because of its age.
    """
    given = {"transaction_op_msg_max_size": 24, "file_reserved_time": 1_000_000, **settings}
    return config_of(root, **given)


def decided_message(number: int) -> Message:
    """Return a message; its body has its number. Every fourth has a later first check."""
    body = b"%d:" % number + bytes([number % 251]) * (number * 37 % 200)
    immunity = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"} if number % 4 == 0 else {}
    return Message(
        TOPIC,
        body,
        queue_id=number % QUEUES,
        keys=[f"k{number}"],
        unique_key=f"U{number}",
        properties={"TRAN_MSG": "true", "PGROUP": "writers", **immunity},
    )


def number_of(message: Message) -> int:
    """Return the number in a body."""
    return int(message.body.split(b":")[0])


def delivered(store: MessageStore) -> Counter[int]:
    """Return how often consumers get each message; their content must be as sent."""
    found: Counter[int] = Counter()
    for queue_id in range(QUEUES):
        for message in messages_in(store, TOPIC, queue_id):
            number = number_of(message)
            if b"\0" in (message.properties_raw or b""):
                continue  # no CRC covers them: torn, of a commit that was never flushed
            assert message.body == decided_message(number).body
            assert (message.unique_key, message.queue_id) == (f"U{number}", number % QUEUES)
            found[number] += 1
    return found


def finish(config: MessageStoreConfig, decisions: Mapping[int, bool]) -> Counter[int]:
    """Open a store, have all open transactions answered, and return what consumers get."""

    def ask(half: Message) -> TransactionState:
        return COMMIT if decisions.get(number_of(half)) else ROLLBACK

    with without_threads(), MessageStore(config, clock=fast_clock_ms) as store:
        dispatch_all(store)
        service = TransactionalMessageService(store, ask)
        service.load()
        for _ in range(_MOST_CHECKS):
            if not len(service.open_queue_offsets()):
                break
            service.check()
            dispatch_all(store)
        assert not len(service.open_queue_offsets()), "something stays open"
        service.shutdown()
        dispatch_all(store)
        return delivered(store)


def judge_transactions(
    config: MessageStoreConfig, decisions: Mapping[int, bool], safe: Collection[int]
) -> None:
    """Finish a store and compare: committed once if decided so, otherwise not at all.

    ``safe``: transactions whose half message must be there.
    """
    found = finish(config, decisions)
    twice = [number for number, times in found.items() if times > 1]
    assert not twice, f"delivered twice: {twice}"
    wrong = [number for number in found if not decisions.get(number)]
    assert not wrong, f"delivered and never committed: {wrong}"
    lost = [number for number in safe if decisions.get(number) and number not in found]
    assert not lost, f"committed and lost: {lost}"
    again = finish(config, {})
    assert again == found, "a restart changed something"
    assert_sound(Path(config.store_path_root_dir), config)
