# SPDX-License-Identifier: Apache-2.0
"""Comparison of two reads: messages they share, and messages that only one of them has."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from rmqsource.scan.read_columns import no_progress, read_columns
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa, pc
from store_core.layout import COMPRESSED_FLAG, INNER_BATCH_FLAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Columns, DataType, Table

    Int64s = npt.NDArray[np.int64]

BY_KEY, BY_POSITION = "key", "position"
ONLY_A, ONLY_B, DIFFERS = "only in A", "only in B", "differs"
DIFF_COLUMNS = (
    *("difference", "topic", "unique_key", "queue_id", "queue_offset", "message_id", "in_store"),
    *("other_message_id", "other_store"),
)
"""Columns of a difference; the ``other_`` columns are set only for ``differs``."""

_CRC_MASK = 0x7FFFFFFF
"""RocketMQ clears the top bit (``UtilAll.crc32``)."""
_CODED = COMPRESSED_FLAG | INNER_BATCH_FLAG
_COLUMNS = (
    *("topic", "queue_id", "queue_offset", "message_id", "unique_key", "keys", "tags", "flag"),
    *("sys_flag", "body_crc", "born_timestamp", "body", "store"),
)
_CONTENT = ("unique_key", "keys", "tags", "flag", "body_crc", "born_timestamp")
_POSITION = ("queue_id", "queue_offset")
_PLACE_AND_CONTENT = ("topic", *_POSITION, *_CONTENT[1:])
_BATCH_ROWS = 1 << 15


class Difference(NamedTuple):
    """Result of a comparison."""

    messages_a: int
    messages_b: int
    same: int
    rows: list[dict[str, Any]]
    topics: frozenset[str]
    damage: tuple[str, ...]


def compare_stores(
    a: SourceOptions,
    b: SourceOptions,
    by: str = BY_KEY,
    progress: Callable[[int, int], None] = no_progress,
) -> Difference:
    """Compare the messages that two reads select.

    Messages are equal if topic, unique key, KEYS, tags, flag, born time and CRC of the body (the
    decoded body of compressed messages) are equal; a message that one side has twice must be on
    the other side twice. If one side's message has no unique key, queue id and queue offset must
    match instead: a program that forwards messages may add keys. Remaining messages are paired as
    ``differs`` by topic and unique key, or by queue id and queue offset if a unique key is
    missing. By position, queue id and queue offset must match for all messages, and remaining
    messages are paired by them.

    Memory grows by about 250 bytes for each message.

    Parameters
    ----------
    a, b
        The stores and the messages to select. The CRCs in the records are trusted unless
        ``checkCRC`` is set.

    Raises
    ------
    ValueError
        ``by`` has another value.
    """
    if by not in {BY_KEY, BY_POSITION}:
        raise ValueError(f"by={by!r}: must be {BY_KEY!r} or {BY_POSITION!r}")
    damage: list[str] = []
    left, right = _side(a, progress, damage), _side(b, progress, damage)
    position = _POSITION if by == BY_POSITION else ()
    left_over = _left_over(left, right, ("topic", *position, *_CONTENT))
    only_a, only_b = _without_keys(left, right, *left_over)
    same = left.num_rows - len(only_a)
    rows = list(_rows(left.take(only_a), right.take(only_b), by))
    topics = frozenset(pc.unique(pa.concat_tables([left, right])["topic"]).to_pylist())
    return Difference(left.num_rows, right.num_rows, same, rows, topics, tuple(damage))


def _side(options: SourceOptions, progress: Callable[[int, int], None], damage: list[str]) -> Table:
    """Return one side's messages as a table, in log order; append its damage to ``damage``."""
    wide = replace(options, batch_rows=max(options.batch_rows, _BATCH_ROWS), body="decoded")
    types, parts = _types(), []
    for batch in read_columns(wide, _COLUMNS, progress):
        batch = _readable(batch, damage)  # noqa: PLW2901 (without damaged rows)
        if len(batch["topic"]) == 0:
            continue  # only damage: its columns have no type
        batch["body_crc"] = _body_crc(batch.pop("sys_flag"), batch["body_crc"], batch.pop("body"))
        batch["keys"] = pc.binary_join(batch["keys"], " ")
        parts.append(pa.table({name: batch[name].cast(kind) for name, kind in types.items()}))
    return pa.concat_tables(parts) if parts else pa.schema(list(types.items())).empty_table()


def _types() -> dict[str, DataType]:
    texts = ("topic", "message_id", "unique_key", "keys", "tags", "store")
    return {
        **dict.fromkeys(texts, pa.string()),
        **dict.fromkeys(("queue_id", "flag", "body_crc"), pa.int32()),
        **dict.fromkeys(("queue_offset", "born_timestamp"), pa.int64()),
    }


def _readable(batch: Columns, damage: list[str]) -> Columns:
    found = batch.pop(CORRUPT_RECORD.name, None)
    if found is None or found.null_count == len(found):
        return batch
    damage += found.drop_null().to_pylist()
    keep = pc.is_null(found)
    return {name: column.filter(keep) for name, column in batch.items()}


def _body_crc(sys_flag: Array, stored: Array, bodies: Array) -> Array:
    """Return the CRC of each decoded body, so that compression makes no difference."""
    coded = np.flatnonzero(sys_flag.to_numpy(zero_copy_only=False) & _CODED)
    if len(coded) == 0:
        return stored
    crc = stored.to_numpy(zero_copy_only=False).copy()
    inside = bodies.take(pa.array(coded)).to_pylist()
    crc[coded] = [zlib.crc32(body) & _CRC_MASK if body else 0 for body in inside]
    return pa.array(crc)


def _left_over(left: Table, right: Table, columns: tuple[str, ...]) -> tuple[Int64s, Int64s]:
    """Return the rows of each side that have no equal row on the other, counting duplicates."""
    numbers = _numbers(pa.concat_tables([left, right]), columns)
    a, b = numbers[: left.num_rows], numbers[left.num_rows :]
    kinds = int(numbers.max()) + 1 if len(numbers) else 0
    count_a, count_b = np.bincount(a, minlength=kinds), np.bincount(b, minlength=kinds)
    return (
        np.flatnonzero(_occurrence(a) >= count_b[a]),
        np.flatnonzero(_occurrence(b) >= count_a[b]),
    )


def _without_keys(left: Table, right: Table, a: Int64s, b: Int64s) -> tuple[Int64s, Int64s]:
    """Drop remaining rows that are equal except for a unique key that one side lacks."""
    keyless_a, keyless_b = (
        pc.is_null(side["unique_key"]).to_numpy(zero_copy_only=False) for side in (left, right)
    )
    for lacking_a, lacking_b in ((keyless_a, None), (None, keyless_b)):
        of_a, rest_a = _divided(a, lacking_a)
        of_b, rest_b = _divided(b, lacking_b)
        still_a, still_b = _left_over(left.take(of_a), right.take(of_b), _PLACE_AND_CONTENT)
        a = np.sort(np.concatenate([of_a[still_a], rest_a]))
        b = np.sort(np.concatenate([of_b[still_b], rest_b]))
    return a, b


def _divided(rows: Int64s, wanted: npt.NDArray[np.bool_] | None) -> tuple[Int64s, Int64s]:
    """Split rows by a mask; all are in the first part if it is None."""
    if wanted is None:
        return rows, rows[:0]
    return rows[wanted[rows]], rows[~wanted[rows]]


def _numbers(table: Table, columns: tuple[str, ...]) -> Int64s:
    """Return a number for each row; two rows have equal numbers exactly if they are equal."""
    numbers = np.zeros(table.num_rows, np.int64)
    for name in columns:
        encoded = table[name].combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        combined = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(combined, return_inverse=True)[1].reshape(-1)
    return numbers


def _occurrence(numbers: Int64s) -> Int64s:
    """Return for each row the number of equal rows before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    found = np.empty(len(ordered), np.int64)
    found[order] = np.arange(len(ordered)) - first
    return found


def _rows(only_a: Table, only_b: Table, by: str) -> Iterator[dict[str, Any]]:
    """Pair the remaining messages and yield a row for each difference, those of A first."""
    waiting: dict[tuple[Any, ...], list[int]] = {}
    rows_b = only_b.to_pylist()
    for number, row in enumerate(rows_b):
        for pairing in _pairings(row, by):
            waiting.setdefault(pairing, []).append(number)
    taken: set[int] = set()
    for row in only_a.to_pylist():
        other = next(_partners(row, by, rows_b, waiting, taken), None)
        if other is None:
            yield _row(ONLY_A, row)
        else:
            taken.add(other)
            yield _row(DIFFERS, row, rows_b[other])
    for number, row in enumerate(rows_b):
        if number not in taken:
            yield _row(ONLY_B, row)


def _pairings(row: dict[str, Any], by: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values by which a row may be paired: its unique key, then its position."""
    if by == BY_KEY and row["unique_key"] is not None:
        yield BY_KEY, row["topic"], row["unique_key"]
    yield (BY_POSITION, row["topic"], *(row[name] for name in _POSITION))


def _partners(
    row: dict[str, Any],
    by: str,
    rows_b: list[dict[str, Any]],
    waiting: dict[tuple[Any, ...], list[int]],
    taken: set[int],
) -> Iterator[int]:
    """Yield rows of B that may be the same message as a row of A."""
    for pairing in _pairings(row, by):
        others = waiting.get(pairing, [])
        while others and others[0] in taken:
            others.pop(0)
        for other in others:
            keys = row["unique_key"], rows_b[other]["unique_key"]
            # If both have unique keys, positions do not make them one message.
            if other not in taken and (pairing[0] == by or None in keys):
                yield other


def _row(kind: str, row: dict[str, Any], other: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "difference": kind,
        **{name: row[name] for name in ("topic", "unique_key", *_POSITION, "message_id")},
        "in_store": row["store"],
        "other_message_id": other["message_id"] if other else None,
        "other_store": other["store"] if other else None,
    }
