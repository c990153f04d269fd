"""Rows of table ``keys``: one for each message and each distinct key of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqsource.row_filter import string_set

if TYPE_CHECKING:
    from rmqsource.predicate import ScanPredicate

KEYS_KIND = "KEYS"
UNIQUE_KIND = "UNIQ_KEY"


def explode_keys(
    keys: Any, unique_keys: Any, found: Any, predicate: ScanPredicate
) -> tuple[Any, Any, Any]:
    """Return (key, key kind, row) columns, by row; words of KEYS come before the unique key.

    A word that repeats, or that equals the message's unique key, is one row, of kind ``KEYS``.

    Parameters
    ----------
    keys, unique_keys
        ``list<string>`` and ``string`` columns of the messages.
    found
        Boolean array of the messages to take; None for all.
    predicate
        ``key_equals`` drops other keys.
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
        wanted = string_set(predicate.key_equals)
        matches = pc.is_in(key, value_set=wanted).to_numpy(zero_copy_only=False)
        keep &= matches[order]
    chosen = order[keep]
    kind = np.where(is_unique[chosen], UNIQUE_KIND, KEYS_KIND)
    return key.take(pa.array(chosen)), pa.array(kind.tolist(), pa.string()), pa.array(row[chosen])


def _first_of_row(key: Any, row: Any, order: Any) -> Any:
    """Tell of the rows in ``order`` whether their key did not occur before in the same message."""
    codes = key.dictionary_encode().indices.to_numpy()
    pairs = row.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes
    _, first = np.unique(pairs[order], return_index=True)
    keep = np.zeros(len(order), np.bool_)
    keep[first] = True
    return keep
