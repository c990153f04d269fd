# SPDX-License-Identifier: Apache-2.0
"""Find the open half messages of a store in queues and log, in columns.

A transaction is all copies of one half message. An op message that names any of them ends it, and
so does a commit record that refers to one (header field PREPARED TRANSACTION OFFSET): RocketMQ
writes the commit first, so after a crash the op message may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.message_codec import string_to_properties
from store_core.layout import (
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
)
from store_core.topics import CHECK_TIMES, HALF_TOPIC, OP_TOPIC, REAL_QUEUE_ID, REAL_TOPIC
from store_core.transaction_forms import (
    PREPARED_QUEUE_OFFSET,
    REMOVE_TAG,
    TRANSACTION_PREPARED,
    named_offsets,
    transaction_keys,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.read.store_queries import StoreQueries

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_QUEUE_ID = 0
_ANY = 2**62
_NONE: Int64s = np.empty(0, np.int64)
_CHANGED = frozenset(
    (
        PROPERTY_CRC32,
        PROPERTY_DELAY,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
        REAL_QUEUE_ID,
        REAL_TOPIC,
        TRANSACTION_PREPARED,
    )
)
"""Properties that a delayed commit may lack, or have with another value."""


class HalfPlace(NamedTuple):
    """The offsets of a copy of a half message, in the half queue and in the log."""

    queue_offset: int
    commit_log_offset: int


@dataclass(frozen=True)
class OpenHalves:
    """The half messages of a queue from an offset on.

    Attributes
    ----------
    open_queue_offset, open_commit_log_offset
        The newest copies of open transactions; ascending.
    newer
        Older copy -> newest copy, of open transactions that have several.
    """

    open_queue_offset: Int64s = field(default_factory=lambda: _NONE)
    open_commit_log_offset: Int64s = field(default_factory=lambda: _NONE)
    without_op: Int64s = field(default_factory=lambda: _NONE)
    superseded: Int64s = field(default_factory=lambda: _NONE)
    ended: Int64s = field(default_factory=lambda: _NONE)
    newer: dict[HalfPlace, HalfPlace] = field(default_factory=dict)


class Ops(NamedTuple):
    """Op messages: their queue offsets, and the half queue offsets they name by row."""

    queue_offset: Int64s
    row: Int64s
    named: Int64s


class _Halves(NamedTuple):
    queue_offset: Int64s
    commit_log_offset: Int64s
    key: Any
    """A ``pa.StringArray``; None without rows, as in most stores, which then do not need Arrow."""
    is_copy: Bools

    def take(self, rows: Int64s) -> _Halves:
        key = self.key.take(pa.array(rows))
        return _Halves(
            self.queue_offset[rows], self.commit_log_offset[rows], key, self.is_copy[rows]
        )


def read_ops(store: StoreQueries, start: int) -> Ops:
    """Return the op messages from a queue offset on; those without tag ``d`` name no offsets."""
    offsets, rows, named, before = [_NONE], [_NONE], [_NONE], 0
    for columns in store.queue_columns(OP_TOPIC, _QUEUE_ID, start, _ANY):
        tagged = pc.fill_null(pc.equal(columns.column("tags"), REMOVE_TAG), False)
        bodies = pc.if_else(tagged, columns.column("body"), pa.scalar(b"", pa.binary()))
        row, offset = named_offsets(bodies)
        rows.append(row + before)
        named.append(offset)
        offsets.append(columns.frames.column("queue_offset"))
        before += len(bodies)
    return Ops(np.concatenate(offsets), np.concatenate(rows), np.concatenate(named))


def read_places(store: StoreQueries, start: int) -> tuple[Int64s, Int64s]:
    """Return queue and log offsets of the readable half messages from a queue offset on."""
    offsets, places = [_NONE], [_NONE]
    for columns in store.queue_columns(HALF_TOPIC, _QUEUE_ID, start, _ANY):
        offsets.append(columns.frames.column("queue_offset"))
        places.append(columns.frames.column("commit_log_offset"))
    return np.concatenate(offsets), np.concatenate(places)


def find_open_halves(store: StoreQueries, half_start: int, op_start: int) -> OpenHalves:
    """Find the open half messages.

    Reads the half queue from ``half_start`` and the op queue from ``op_start`` on, or both from
    their start if there are copies among the open ones; and the log from the oldest open copy on.
    """
    halves, named = _read_halves(store, half_start), read_ops(store, op_start).named
    is_named = np.isin(halves.queue_offset, named)
    ended = halves.queue_offset[is_named]
    if is_named.all():
        return OpenHalves(ended=ended)
    if halves.is_copy[~is_named].any():
        halves = _with_older(store, halves, halves.key.filter(pa.array(~is_named)), half_start)
        is_named = np.isin(halves.queue_offset, read_ops(store, 0).named)
    code = _codes(halves.key, halves.is_copy)
    last = np.zeros(code.max() + 1, np.int64)
    last[code] = np.arange(len(code))  # the last assignment wins: the newest copy
    has_end = np.bincount(code, is_named) > 0
    still = np.flatnonzero(~has_end)
    wanted = np.isin(code, still)
    committed = committed_places(store, halves.commit_log_offset[wanted])
    has_end |= np.bincount(code, np.isin(halves.commit_log_offset, committed)) > 0
    newest = last[has_end]
    newest = newest[halves.queue_offset[newest] >= half_start]
    rows = np.sort(last[~has_end])
    rows = rows[halves.queue_offset[rows] >= half_start]
    older = np.ones(len(code), bool)
    older[last] = False
    superseded = halves.queue_offset[older]
    before = np.flatnonzero(older & ~has_end[code])
    return OpenHalves(
        open_queue_offset=halves.queue_offset[rows],
        open_commit_log_offset=halves.commit_log_offset[rows],
        without_op=halves.queue_offset[newest[~is_named[newest]]],
        superseded=superseded[superseded >= half_start],
        ended=ended,
        newer=dict(zip(_places(halves, before), _places(halves, last[code[before]]))),
    )


def ended_copies(store: StoreQueries, half: HalfPlace, key: str) -> bool:
    """Return whether an op message or a commit names this or a later copy of a half message."""
    halves = _read_halves(store, half.queue_offset)
    if halves.key is None:
        return False
    copies = halves.take(np.flatnonzero(_same_keys(halves.key, pa.scalar(key))))
    named = read_ops(store, 0).named
    return bool(np.isin(copies.queue_offset, named).any()) or (
        len(committed_places(store, copies.commit_log_offset)) > 0
    )


def _read_halves(store: StoreQueries, start: int) -> _Halves:
    offsets, places, copies = [_NONE], [_NONE], [np.empty(0, bool)]
    keys: list[Any] = []
    for columns in store.queue_columns(HALF_TOPIC, _QUEUE_ID, start, _ANY):
        offsets.append(columns.frames.column("queue_offset"))
        places.append(columns.frames.column("commit_log_offset"))
        keys.append(transaction_keys(columns))
        marks = (columns.property_values(name) for name in (CHECK_TIMES, PREPARED_QUEUE_OFFSET))
        one, other = (mark.is_valid().to_numpy(zero_copy_only=False) for mark in marks)
        copies.append(one | other)
    return _Halves(
        np.concatenate(offsets),
        np.concatenate(places),
        pa.concat_arrays(keys) if keys else None,
        np.concatenate(copies),
    )


def _with_older(store: StoreQueries, halves: _Halves, keys: Any, stop: int) -> _Halves:
    """Return the half messages, preceded by those before ``stop`` that have one of the keys."""
    older = _read_halves(store, 0)
    same = pc.is_in(older.key, value_set=keys.drop_null()).to_numpy(zero_copy_only=False)
    older = older.take(np.flatnonzero(same & (older.queue_offset < stop)))
    return _Halves(
        np.concatenate([older.queue_offset, halves.queue_offset]),
        np.concatenate([older.commit_log_offset, halves.commit_log_offset]),
        pa.concat_arrays([older.key, halves.key]),
        np.concatenate([older.is_copy, halves.is_copy]),
    )


def _codes(keys: Any, is_copy: Bools) -> Int64s:
    """Return a number per transaction: a half message and its later copies have the same number.

    Each row without a key gets its own number. So does each row of a key that two half messages
    have, neither of them a copy: a producer assigned it twice in one millisecond, and it is unknown
    whose copies the others are. Each may be checked, as by a broker; none is forgotten.
    """
    # [a, null, a, b, null] gives indices [0, -1, 0, 1, -1] and, as rows 1 and 4 are alone, codes
    # [0, 2, 0, 1, 3]. If row 2 is not a copy, rows 0 and 2 are alone as well.
    encoded = keys.dictionary_encode()
    code: Int64s = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
    originals = np.bincount(code[~is_copy] + 1, minlength=len(encoded.dictionary) + 1)
    alone = np.flatnonzero((code < 0) | (originals[code + 1] > 1))
    code[alone] = len(encoded.dictionary) + np.arange(len(alone))
    numbers: Int64s = np.unique(code, return_inverse=True)[1].reshape(-1)
    return numbers


def _same_keys(keys: Any, key: Any) -> Bools:
    same = pc.equal(keys, key) if key.is_valid else keys.is_null()
    found: Bools = pc.fill_null(same, False).to_numpy(zero_copy_only=False)
    return found


def _places(halves: _Halves, rows: Int64s) -> list[HalfPlace]:
    offsets, places = halves.queue_offset[rows], halves.commit_log_offset[rows]
    return [HalfPlace(*place) for place in zip(offsets.tolist(), places.tolist())]


def committed_places(store: StoreQueries, places: Int64s) -> Int64s:
    """Return the places of half messages that a commit refers to; reads the log from the first on.

    A commit has the properties of its half message. A record that lacks some is not a commit: it is
    a delivery of a delayed message or a retry, which have a commit's flag and refer to place 0; or
    it is a commit torn by a power failure, as no CRC covers properties. Then its half message is
    checked again, not lost.
    """
    if len(places) == 0:
        return np.empty(0, np.int64)
    halves = _EndedHalves(places)
    found = [np.empty(0, np.int64)]
    for columns in store.log_columns(int(places.min())):
        halves.collect(columns)
        flags = columns.frames.column("sys_flag") & TRANSACTION_MASK
        prepared = columns.frames.column("prepared_transaction_offset")
        rows = np.flatnonzero((flags == TRANSACTION_COMMIT_TYPE) & np.isin(prepared, places))
        if len(rows):
            commits = columns.of_rows(rows)
            whole = halves.are_whole(prepared[rows], commits.column("properties_raw"))
            found.append(prepared[rows][whole])
    return np.concatenate(found)


class _EndedHalves:
    """Property strings of half messages, collected during a scan of the log.

    A half message precedes its commit, so it is known when the scan reaches the commit.
    """

    def __init__(self, places: Int64s) -> None:
        self._wanted = places
        self._places: list[Int64s] = []
        self._strings: list[Any] = []

    def collect(self, columns: Any) -> None:
        """Store the strings of the half messages among some records, which come in log order."""
        rows = np.flatnonzero(np.isin(columns.frames.column("commit_log_offset"), self._wanted))
        if len(rows):
            found = columns.of_rows(rows)
            self._places.append(found.frames.column("commit_log_offset").astype(np.int64))
            # A copy: columns are valid only until the next ones are requested.
            self._strings.append(
                found.column("properties_raw").take(pa.array(np.arange(len(rows))))
            )

    def are_whole(self, places: Int64s, strings: Any) -> Bools:
        """Return which commits have the properties of their half message, given by its place.

        A commit whose half message cannot be read counts: it cannot be committed again either.
        """
        if not self._places:
            return np.ones(len(places), np.bool_)
        known = np.concatenate(self._places)
        at = np.minimum(np.searchsorted(known, places), len(known) - 1)
        expected = pa.concat_arrays(self._strings).take(pa.array(at))
        whole: Bools = pc.equal(expected, strings).to_numpy(zero_copy_only=False)
        whole |= known[at] != places
        # Usually none is left: a commit's string equals that of its half message.
        for row in np.flatnonzero(~whole).tolist():
            whole[row] = _has_all(strings[row].as_py(), expected[row].as_py())
        return whole


def _has_all(commit: bytes, half: bytes) -> bool:
    properties = string_to_properties(commit)
    wanted = string_to_properties(half).items()
    return all(properties.get(name) == value for name, value in wanted if name not in _CHANGED)
