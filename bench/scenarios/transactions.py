# SPDX-License-Identifier: Apache-2.0
"""Committing many open transactions, compared with a broker's classes in one process."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from bench.figures import rate_figure
from bench.java_side import last_round
from bench.message_batches import message
from store_core import (
    MessageStore,
    MessageStoreConfig,
    TransactionalMessageService,
    TransactionState,
)
from store_core.transaction_forms import half_message

if TYPE_CHECKING:
    from pathlib import Path

    from bench.context import Context
    from bench.figures import Figure

_BODY = bytes(100)
_TRANSACTIONS = 100_000


def commit_in_bulk(context: Context) -> list[Figure]:
    """Commit all open transactions of a store; both sides end when they are acknowledged."""
    count = min(context.puts, _TRANSACTIONS)
    ours, java = [], []
    for _ in range(context.store_runs):
        java.append(_java(context, count))
        ours.append(_commit(context.work / "open-transactions", count))
    return [
        rate_figure(
            "zc",
            f"commit of open transactions in bulk, {count:,} x {len(_BODY)} B",
            "Java's broker: EndTransactionProcessor",
            rows=count,
            ours_seconds=ours,
            other_seconds=java,
            must=1,
            aim=3,
        )
    ]


def _java(context: Context, count: int) -> float:
    """Return the seconds of the broker's warm round."""
    root = context.work / "java-transactions"
    shutil.rmtree(root, ignore_errors=True)
    try:
        figures = context.java.run("commit", str(root.resolve()), count, len(_BODY))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    figure = last_round(figures, "commit")
    if figure["failed"]:
        raise ValueError(f"Java did not commit {figure['failed']} of {count} transactions")
    return float(figure["seconds"])


def _commit(root: Path, count: int) -> float:
    """Return the seconds for ending ``count`` open half messages, including op messages."""
    shutil.rmtree(root, ignore_errors=True)
    try:
        with MessageStore(MessageStoreConfig(store_path_root_dir=str(root.resolve()))) as store:
            _open(store, count)
            store.wait_for_dispatch()
            with TransactionalMessageService(store) as service:
                opened = service.open_queue_offsets()
                begin = time.perf_counter()
                done = service.end_transactions(opened, TransactionState.COMMIT_MESSAGE)
                seconds = time.perf_counter() - begin
        if done.ended != count:
            raise ValueError(f"{done.ended} of {count} transactions were committed")
        return seconds
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _open(store: MessageStore, count: int) -> None:
    for number in range(count):
        sent = message(number, _BODY)
        sent.properties.update(TRAN_MSG="true", PGROUP="writers")
        store.raw_put_message(half_message(sent))
