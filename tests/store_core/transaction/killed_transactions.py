"""A process that opens, ends and checks transactions, and dies while it does.

``python -m tests.store_core.transaction.killed_transactions``, see ``crash.killed_writer``.
"""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

from store_core import Message, MessageStore
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.store_core.crash.killed_writer import Death, fast_clock_ms, serve
from tests.store_core.transaction.decided import (
    COMMIT,
    ROLLBACK,
    decided_message,
    number_of,
    transaction_config,
)

DECISION = struct.Struct("<qb")
"""Number, and 0: begun, 1: rolled back, 2: committed."""
BEGUN, ROLLED_BACK, COMMITTED = range(3)


class Producer:
    """Opens transactions in one process; its decisions are on the disk before they are told."""

    def __init__(
        self, store: MessageStore, log: int, decisions: dict[int, bool], generator: random.Random
    ) -> None:
        self._store, self._log, self._decisions = store, log, decisions
        self._generator = generator
        self._in_flight: dict[int, Any] = {}
        self.service = TransactionalMessageService(store, self._answer)
        self.service.load()

    def work(self, number: int) -> int:
        """Begin and end some transactions in one of the ways there are; return the next number."""
        way = self._generator.random()
        self._note(number, BEGUN)
        if way < 0.3:
            self._block(number)
        else:
            self._begin(number)
            if way < 0.6:
                self._end(number)
            elif way < 0.7:
                self._end_many()
        if self._generator.random() < 0.3:
            self._store.wait_for_dispatch()
            self.service.check()
        if self._generator.random() < 0.2:
            self.service.op_batch_service.run_once()
        return number + 1

    def _begin(self, number: int) -> None:
        result = self.service.prepare_message(decided_message(number))
        assert result.status.name == "PUT_OK", result
        self._in_flight[number] = result.append_result

    def _block(self, number: int) -> None:
        try:
            with self._store.transaction(decided_message(number), "writers"):
                self._in_flight[number] = None
                if not self._decide(number):
                    raise InterruptedError
        except InterruptedError:
            pass

    def _end(self, number: int) -> None:
        state = COMMIT if self._decide(number) else ROLLBACK
        self.service.end_transaction(self._in_flight[number], state)

    def _end_many(self) -> None:
        """Decide alike for all that are waiting, and end them at once: newest copies only."""
        waiting = [n for n, place in self._in_flight.items() if n not in self._decisions and place]
        is_commit = self._generator.random() < 0.7
        for number in waiting:
            self._decisions[number] = is_commit
            self._note(number, COMMITTED if is_commit else ROLLED_BACK)
        offsets = [self._in_flight[number].queue_offset for number in waiting]
        self._store.wait_for_dispatch()
        self.service.end_transactions(offsets, COMMIT if is_commit else ROLLBACK)

    def _decide(self, number: int) -> bool:
        is_commit = self._generator.random() < 0.7
        self._decisions[number] = is_commit
        self._note(number, COMMITTED if is_commit else ROLLED_BACK)
        return is_commit

    def _note(self, number: int, kind: int) -> None:
        os.write(self._log, DECISION.pack(number, kind))

    def _answer(self, half: Message) -> TransactionState:
        number = number_of(half)
        if number in self._decisions:
            return COMMIT if self._decisions[number] else ROLLBACK
        return TransactionState.UNKNOW if number in self._in_flight else ROLLBACK


def work(
    root: str,
    settings: dict[str, Any],
    seed: int,
    first: int,
    decisions: str,
    die_after: int,
    transactions: int,
) -> None:
    """Open the store, begin and end transactions; stop cleanly now and then."""
    generator = random.Random(seed)
    known = read_decisions(Path(decisions))[0]
    log = os.open(decisions, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if die_after >= 0:
        Death(die_after, generator).install()
    config, number = transaction_config(Path(root), **settings), first
    while transactions > 0:
        with MessageStore(config, clock=fast_clock_ms) as store:
            producer = Producer(store, log, known, generator)
            for _ in range(min(transactions, generator.randrange(3, 30))):
                number = producer.work(number)
                transactions -= 1
            if generator.random() < 0.5:
                producer.service.stop()
    os._exit(0)


def read_decisions(log: Path) -> tuple[dict[int, bool], int]:
    """Return what was decided, and the number after the last that was begun."""
    data = log.read_bytes() if log.exists() else b""
    whole = data[: len(data) // DECISION.size * DECISION.size]
    decisions, following = {}, 0
    for number, kind in DECISION.iter_unpack(whole):
        if kind != BEGUN:
            decisions[number] = kind == COMMITTED
        following = max(following, number + 1)
    return decisions, following


if __name__ == "__main__":
    serve(work)
