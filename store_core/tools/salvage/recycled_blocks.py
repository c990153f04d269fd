"""Blocks of memory used again in turn: new ones take the system longer than a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class RecycledBlocks:
    """Hands out as many blocks as there are at most in use at a time, then the first again.

    Parameters
    ----------
    count
        How many; what was in the block of as many calls before is lost.
    """

    def __init__(self, count: int) -> None:
        self._blocks = [np.empty(0, np.uint8)] * count

    def next_block(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a block of so many bytes, of any content."""
        block = self._blocks.pop(0)
        if len(block) < size:
            block = np.empty(size, np.uint8)
        self._blocks.append(block)
        return block[:size]
