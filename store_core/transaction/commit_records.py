"""Commits in the log: which half messages they end, also where op messages are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.properties import string_to_properties
from store_core.layout.message import (
    PROPERTY_CRC32,
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
)
from store_core.topics import REAL_QUEUE_ID, REAL_TOPIC
from store_core.transaction_forms import TRANSACTION_PREPARED

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.read.store_queries import StoreQueries

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

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
"""Properties that a commit with a delay level may lack, or have with another value."""


def committed_places(store: StoreQueries, places: Int64s) -> Int64s:
    """Return the places of those half messages that a commit names; the log is read from them on.

    A commit has the properties of its half message. What lacks some is none: a delivery of a delay
    level or a retry, which have a commit's flag and name place 0; or a commit that a loss of power
    tore, as no CRC covers its properties. Its half message is asked for again, and not lost.

    Parameters
    ----------
    store
        Has the half messages.
    places
        Of half messages, physical offsets.
    """
    if len(places) == 0:
        return np.empty(0, np.int64)
    halves = _Halves(places)
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


class _Halves:
    """Property strings of half messages, as a scan of the log comes to them.

    A half message lies before its commit, so it is known when that is met.
    """

    def __init__(self, places: Int64s) -> None:
        self._wanted = places
        self._places: list[Int64s] = []
        self._strings: list[Any] = []

    def collect(self, columns: Any) -> None:
        """Keep the strings of the half messages among some records; records come in log order."""
        rows = np.flatnonzero(np.isin(columns.frames.column("commit_log_offset"), self._wanted))
        if len(rows):
            found = columns.of_rows(rows)
            self._places.append(found.frames.column("commit_log_offset").astype(np.int64))
            # A copy: columns hold until the next ones are asked for.
            self._strings.append(
                found.column("properties_raw").take(pa.array(np.arange(len(rows))))
            )

    def are_whole(self, places: Int64s, strings: Any) -> Bools:
        """Return which commits, by place of their half message, have its properties.

        All of them where the half message cannot be read: it cannot be committed again either.
        """
        if not self._places:
            return np.ones(len(places), np.bool_)
        known = np.concatenate(self._places)
        at = np.minimum(np.searchsorted(known, places), len(known) - 1)
        expected = pa.concat_arrays(self._strings).take(pa.array(at))
        whole: Bools = pc.equal(expected, strings).to_numpy(zero_copy_only=False)
        whole |= known[at] != places
        # As a rule none is left: a commit's string is its half message's.
        for row in np.flatnonzero(~whole).tolist():
            whole[row] = _has_all(strings[row].as_py(), expected[row].as_py())
        return whole


def _has_all(commit: bytes, half: bytes) -> bool:
    properties = string_to_properties(commit)
    wanted = string_to_properties(half).items()
    return all(properties.get(name) == value for name, value in wanted if name not in _CHANGED)
