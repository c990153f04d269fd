# SPDX-License-Identifier: Apache-2.0
"""Number the rows of each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_RADIX_GROUPS = 1 << 16  # codes of 16 bits are sorted by radix, three times as fast


def group_ranks(codes: npt.NDArray[np.integer], groups: int) -> tuple[Int64s, Int64s]:
    """Return each row's number within its group, from 0, and each group's number of rows.

    Parameters
    ----------
    codes
        Group of each row, in ``[0, groups)``.
    """
    if groups <= 1:
        return np.arange(len(codes), dtype=np.int64), np.full(groups, len(codes), np.int64)
    # Codes [2, 0, 2, 2] of 3 groups: counts = [1, 0, 3], and the rows by group are [1, 0, 2, 3].
    # Group 0 begins at index 0 of these, group 2 at index 1: their numbers are [0, 0, 1, 2].
    # Back in the order of the rows: ranks = [0, 0, 1, 2], as row 1 is the first of its group.
    counts = np.bincount(codes, minlength=groups).astype(np.int64)
    order = np.argsort(codes.astype(np.uint16) if groups <= _RADIX_GROUPS else codes, kind="stable")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks, counts
