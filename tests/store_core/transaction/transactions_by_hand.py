# SPDX-License-Identifier: Apache-2.0
"""A store with a transactional service, whose clock, dispatch and checks a test drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from store_core import Message, MessageStore
from store_core.services.environment import Environment
from store_core.topics import HALF_TOPIC, OP_TOPIC
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.crash.messages import config_of, messages_in

START_MS = 1_700_000_000_000
COMMIT, ROLLBACK = TransactionState.COMMIT_MESSAGE, TransactionState.ROLLBACK_MESSAGE
UNKNOWN = TransactionState.UNKNOW


class Driven:
    """One run of a store and its service.

    ``answers`` maps UNIQ_KEY to the producer's answer; others are unknown. ``asked`` are the half
    messages of checks, in order.
    """

    def __init__(self, store: MessageStore, clock: list[int]) -> None:
        self.store, self._clock = store, clock
        self.answers: dict[str, TransactionState] = {}
        self.asked: list[Message] = []
        dispatch_all(store)
        self.service = TransactionalMessageService(store, self._ask)
        self.service.load()

    def prepare(self, number: int, **properties: str) -> Any:
        """Open a transaction; return its place."""
        result = self.service.prepare_message(sent_message(number, **properties))
        dispatch_all(self.store)
        return result.append_result

    def check(self, after_ms: int = 0) -> Any:
        """Let time pass, and run a check."""
        self._clock[0] += after_ms
        dispatch_all(self.store)
        result = self.service.check()
        dispatch_all(self.store)
        return result

    def end(self, place: Any, state: TransactionState, **options: Any) -> Any:
        """Answer; return the outcome."""
        result = self.service.end_transaction(place, state, **options)
        dispatch_all(self.store)
        return result

    def committed(self, topic: str = "Orders") -> list[str]:
        """Return the unique keys that consumers of a topic got, in order."""
        dispatch_all(self.store)
        found = [message for queue in (0, 1) for message in messages_in(self.store, topic, queue)]
        return [message.unique_key for message in found]

    def halves(self) -> list[Message]:
        """Return all half messages."""
        return list(messages_in(self.store, HALF_TOPIC, 0))

    def ops(self) -> list[bytes]:
        """Return the bodies of all op messages."""
        dispatch_all(self.store)
        return [message.body for message in messages_in(self.store, OP_TOPIC, 0)]

    def _ask(self, half: Message) -> TransactionState:
        self.asked.append(half)
        return self.answers.get(half.unique_key or "", UNKNOWN)


@contextmanager
def driven(
    root: Path, clock: list[int], *, stop: bool = True, forced: bool = False, **settings: Any
) -> Iterator[Driven]:
    """Open a store and its service.

    ``stop``: the service is stopped before the store. ``forced``: files are forced to the disk.
    """

    def now() -> int:
        return clock[0]

    environment = Environment(now, lambda _: 0.1, lambda _: 12)
    config = config_of(root, **settings)
    store = MessageStore(config, clock=now, environment=environment)
    forcing = nullcontext() if forced else nothing_forced()
    with forcing, without_threads(), store:
        run = Driven(store, clock)
        yield run
        if stop:
            run.service.shutdown()
        dispatch_all(store)


def sent_message(number: int, **properties: str) -> Message:
    """Return a message as a producer sends it to open a transaction."""
    return Message(
        "Orders",
        b"order %d" % number,
        queue_id=number % 2,
        keys=[f"k{number}"],
        unique_key=f"U{number}",
        properties={"TRAN_MSG": "true", "PGROUP": "writers", **properties},
    )
