# SPDX-License-Identifier: Apache-2.0
"""Messages of the dead-letter topics, and why they ended up there."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.scan.read_columns import read_columns
from rmqsource.scan.store_versions import open_snapshots
from store_core.config.config_files import load_subscription_groups
from store_core.topics import (
    DELAY_LEVEL,
    DLQ_PREFIX,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rmqsource.options.source_options import SourceOptions

DEAD_LETTER_COLUMNS = (
    *("group", "topic", "tries", "why", "keys", "tags", "unique_key", "first_message_id"),
    *("born_timestamp", "store_timestamp", "message_id", "body", "store"),
)
"""Columns of `read_dead_letters`, in order; ``topic`` is where the message was first sent."""

_COLUMNS = (
    *("topic", "keys", "tags", "unique_key", "properties", "reconsume_times"),
    *("born_timestamp", "store_timestamp", "message_id", "body", "store"),
)


def read_dead_letters(options: SourceOptions) -> Iterator[dict[str, Any]]:
    """Yield every message of the dead-letter topics, with its body, in log order.

    ``tries`` counts the failed attempts to consume it. Brokers record no error text: the reason
    for a failure is in the consumer's own log.
    """
    limits = _retry_limits(options)
    chosen = replace(options, table="messages", topics=None, topic_pattern=f"{DLQ_PREFIX}.*")
    for batch in read_columns(chosen, _COLUMNS):
        columns = {name: column.to_pylist() for name, column in batch.items()}
        for values in zip(*columns.values()):
            row = dict(zip(columns, values))
            if row["topic"] is None:
                continue  # a damaged place
            properties = dict(row.pop("properties"))
            group = row["topic"][len(DLQ_PREFIX) :]
            tries = row.pop("reconsume_times")
            row.update(
                group=group,
                topic=properties.get(RETRY_TOPIC),
                tries=tries,
                why=_why(tries, limits.get((row["store"], group)), properties.get(DELAY_LEVEL)),
                first_message_id=properties.get(ORIGIN_MESSAGE_ID),
            )
            yield {name: row[name] for name in DEAD_LETTER_COLUMNS}


class DeadLetters(NamedTuple):
    """Number of dead letters, and the newest of them, newest first."""

    total: int
    rows: list[dict[str, Any]]


def newest_dead_letters(
    options: SourceOptions, groups: Collection[str] = (), limit: int = 0
) -> DeadLetters:
    """Return the groups' dead letters (all if empty); at most ``limit`` rows unless it is 0."""
    seen = 0

    def chosen() -> Iterator[tuple[Any, int, dict[str, Any]]]:
        nonlocal seen
        for row in read_dead_letters(options):
            if not groups or row["group"] in groups:
                seen += 1
                stored = row["store_timestamp"]
                yield (stored.timestamp() if stored else float("-inf"), seen, row)

    kept = nlargest(limit, chosen()) if limit else sorted(chosen(), reverse=True)
    return DeadLetters(seen, [row for _, _, row in kept])


def _retry_limits(options: SourceOptions) -> dict[tuple[str, str], int]:
    limits = {}
    for snapshot in open_snapshots(options):
        with snapshot:
            groups = load_subscription_groups(snapshot.directory) or {}
            for name, group in groups.items():
                limits[snapshot.directory.uri, name] = group.retry_max_times
    return limits


def _why(tries: int, limit: int | None, delay: str | None) -> str:
    # Source: AbstractSendMessageProcessor.consumerSendMsgBack and handleRetryAndDLQ (5.3.3).
    if limit is not None and tries > limit:
        return f"all {limit} retries of the group failed"
    if delay is not None and delay.startswith("-"):
        return f"sent back by the client after {tries} tries"
    known = "" if limit is None else f"; the group's limit is {limit}"
    return (
        f"the consumer gave up after {tries} tries, at its own limit or because it asked for no "
        f"retry{known}"
    )
