# SPDX-License-Identifier: Apache-2.0
"""Headers of many entries of a DLedger log, checked against their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.layout import DLEDGER_ENTRY, DLEDGER_MAGIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames


def entry_headers(frames: RecordFrames) -> npt.NDArray[np.void]:
    """Return the header before each record; zeros where the data begins after the header."""
    starts = frames.position - DLEDGER_ENTRY.size
    if len(starts) == 0 or int(starts.min()) >= 0:
        return DLEDGER_ENTRY.gather(frames.data, starts)
    headers = np.zeros(len(starts), DLEDGER_ENTRY.dtype)
    held = starts >= 0
    headers[held] = DLEDGER_ENTRY.gather(frames.data, starts[held])
    return headers


def headers_ok(headers: npt.NDArray[np.void], frames: RecordFrames) -> npt.NDArray[np.bool_]:
    """Return which headers agree with their records (``frames.ok``) about position and size.

    Index and term are not compared: records have neither. Source: DLedger
    ``DLedgerMmapFileStore.recover`` (0.3.1.2).
    """
    own, size = frames.column("commit_log_offset"), frames.column("total_size")
    ok: npt.NDArray[np.bool_] = headers["magic"] == DLEDGER_MAGIC
    ok &= headers["pos"] == own - DLEDGER_ENTRY.size
    ok &= (headers["body_size"] == size) & (headers["size"] == size + DLEDGER_ENTRY.size)
    return ok


def first_older(headers: npt.NDArray[np.void], index: int, term: int) -> int:
    """Return the first entry that is older than the one before it; their number if none is.

    Such an entry remains from a log that was cut: the index always grows, and the term never
    decreases.

    Parameters
    ----------
    index, term
        Of the entry before the first; -1 if there is none.
    """
    indexes = np.append(index, headers["index"])
    terms = np.append(term, headers["term"])
    older = (indexes[1:] <= indexes[:-1]) | (terms[1:] < terms[:-1])
    return int(np.argmax(older)) if older.any() else len(headers)
