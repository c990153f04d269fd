"""Rows of table ``keys``: one for each message and each distinct key of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.scan.key_files import load_keys
from store_core.arrow import pa, pc
from store_core.codec.inner_columns import cut_rows
from store_core.read.key_match import is_any_of, text_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Array

    Int64s = npt.NDArray[np.int64]

KEYS_KIND = "KEYS"
UNIQUE_KIND = "UNIQ_KEY"

_FEW = 8  # batches; up to that all rows are taken at once, as messages have few keys


def explode_keys(
    keys: Array, unique_keys: Array, found: Array | None, predicate: ScanPredicate
) -> tuple[Array, Array, Array]:
    """Return (key, key kind, row) columns, by row; words of KEYS come before the unique key.

    A word that repeats, or that equals the message's unique key, is one row, of kind ``KEYS``.

    Parameters
    ----------
    keys, unique_keys
        ``list<string>`` and ``string`` columns of the messages.
    found
        Boolean array of the messages to take; None for all.
    predicate
        ``key_equals`` and ``key_files`` drop other keys.
    """
    word_rows = pc.list_parent_indices(keys).to_numpy()
    unique_rows = np.flatnonzero(unique_keys.is_valid().to_numpy(zero_copy_only=False))
    key = pa.concat_arrays([keys.flatten(), unique_keys.take(pa.array(unique_rows))])
    row = np.concatenate([word_rows, unique_rows])
    is_unique = np.arange(len(row)) >= len(word_rows)
    order = np.lexsort((np.arange(len(row)), row))
    keep = _first_of_row(key, row, order)
    if found is not None:
        keep &= found.to_numpy(zero_copy_only=False)[row[order]]
    if predicate.key_equals is not None:
        keep &= is_any_of(key, text_set(predicate.key_equals))[order]
    if predicate.key_files is not None:
        keep &= is_any_of(key, load_keys(predicate.key_files))[order]
    chosen = order[keep]
    kind = np.where(is_unique[chosen], UNIQUE_KIND, KEYS_KIND)
    return key.take(pa.array(chosen)), pa.array(kind.tolist(), pa.string()), pa.array(row[chosen])


def repeated_parts(
    columns: Iterable[Array], row: Array, most_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of parts of rows that repeat messages, so that a part stays small.

    Parameters
    ----------
    columns
        Those of the messages, of which each row takes one.
    row
        For each row its message.
    most_bytes
        Of a part, about; a row more is taken alone.
    """
    columns = list(columns)
    taken = row.to_numpy()
    most = int(np.bincount(taken).max(initial=0)) * sum(column.nbytes for column in columns)
    if most <= _FEW * most_bytes:
        yield 0, len(row)
        return
    sizes = np.zeros(int(taken.max()) + 1, np.int64)
    for column in columns:
        sizes += _row_bytes(column)[: len(sizes)]
    yield from cut_rows(sizes[taken], len(row), most_bytes)


def _row_bytes(column: Array) -> Int64s:
    """Return about how many bytes each row of a column takes."""
    if pa.types.is_map(column.type):
        inner = _row_bytes(column.keys) + _row_bytes(column.items)
    elif pa.types.is_list(column.type):
        inner = _row_bytes(column.values)
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths: Int64s = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
        return lengths + 4
    else:
        return np.full(len(column), 8, np.int64)
    ends = np.concatenate([[0], np.cumsum(inner)])
    sizes: Int64s = np.diff(ends[column.offsets.to_numpy()])
    return sizes + 4


def _first_of_row(key: Array, row: Int64s, order: Int64s) -> npt.NDArray[np.bool_]:
    """Return which rows in ``order`` have a key that is new in their message."""
    codes = key.dictionary_encode().indices.to_numpy()
    pairs = row.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes
    _, first = np.unique(pairs[order], return_index=True)
    keep = np.zeros(len(order), np.bool_)
    keep[first] = True
    return keep
