from __future__ import annotations

import numpy as np

from store_core.tools.salvage.derived_files import RecycledBlocks


def test_a_block_comes_back_when_all_others_were_handed_out():
    blocks = RecycledBlocks(3)
    held = []
    for number, size in enumerate([10, 20, 5, 4, 30, 5, 10, 0]):
        block = blocks.next_block(size)
        assert len(block) == size
        block[:] = number
        held = [*held[-2:], (number, block)]
        assert all((other == of).all() for of, other in held), "the last three are apart"
    first = blocks.next_block(5)
    for _ in range(2):
        assert not np.shares_memory(first, blocks.next_block(5))
    assert np.shares_memory(first, blocks.next_block(4))
