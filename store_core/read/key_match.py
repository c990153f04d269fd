"""Whether messages have keys. A message has a key that is a word of ``KEYS``, or its ``UNIQ_KEY``.

The rule for one message, for many messages and a set of keys, and for pairs of both; a property
test holds the three equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.properties import split_keys
from store_core.codec.property_columns import words_column
from store_core.layout.message import PROPERTY_KEYS, PROPERTY_UNIQ_KEY
from store_core.read.key_set import KeySet

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.message_batch_codec import MessageColumns

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]


def is_text(key: str) -> bool:
    """Return whether decoded text can equal a string: no lone surrogate is in any.

    Arrow takes none either.
    """
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_set(wanted: Collection[str]) -> Array:
    """Return a set of strings to look values up in, without those that no text can equal."""
    return pa.array([text for text in wanted if is_text(text)], pa.string())


def is_any_of(strings: Array, wanted: Array | KeySet) -> Bools:
    """Return which strings are in a `text_set`, or in a `KeySet`; nulls are not."""
    if isinstance(wanted, KeySet):
        return wanted.contains(strings)
    found: Bools = pc.is_in(strings, value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def has_any_word(words: Array, wanted: Array | KeySet) -> Bools:
    """Return which lists of words have one of a set."""
    hits = is_any_of(words.flatten(), wanted)
    found = np.zeros(len(words), np.bool_)
    found[pc.list_parent_indices(words).to_numpy()[hits]] = True
    return found


def keys_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return all keys of a message."""
    keys = {*split_keys(properties.get(PROPERTY_KEYS, "")), properties.get(PROPERTY_UNIQ_KEY, "")}
    return frozenset(keys - {""})


def has_any_key(messages: MessageColumns | UnwrappedRows, wanted: Array | KeySet) -> Bools:
    """Return which messages have one of the keys of a set."""
    unique = is_any_of(messages.column("unique_key"), wanted)
    return unique | has_any_word(messages.column("keys"), wanted)


def have_key(records: MessageColumns, row: Int64s, asked: Array, is_word: Bools) -> Bools:
    """Return of pairs whether the record has the key that is asked for."""
    # As a rule a record has one word and the pairs are found by it: KEYS is compared whole,
    # then UNIQ_KEY where that differs, and split into words only where both do.
    keys = records.property_values(PROPERTY_KEYS)
    has = _are_equal(keys, row, asked) & is_word
    left = np.flatnonzero(~has)
    if len(left):
        unique = records.property_values(PROPERTY_UNIQ_KEY)
        has[left] = _are_equal(unique, row[left], asked.take(pa.array(left)))
        left = left[~has[left]]
    if len(left):
        words = words_column(keys.take(pa.array(row[left])))
        pair = pc.list_parent_indices(words).to_numpy()
        of_word = asked.take(pa.array(left[pair]))
        equal = _are_equal(words.flatten(), np.arange(len(pair)), of_word)
        has[left[pair[equal]]] = True
    return has


def _are_equal(values: Array, row: Int64s, asked: Array) -> Bools:
    if len(row) != len(values) or (row != np.arange(len(row))).any():  # as a rule all, in order
        values = values.take(pa.array(row))
    equal = pc.fill_null(pc.equal(values, asked), False)
    same: Bools = equal.to_numpy(zero_copy_only=False)
    return same
