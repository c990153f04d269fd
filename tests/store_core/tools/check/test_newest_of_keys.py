"""The newest message of each key: equal to what a loop over the messages says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_encoder import encode_records
from store_core.codec.record_frames import RecordFrames
from store_core.tools.check import compaction_check
from store_core.tools.check.compaction_check import NewestOfKeys

_KEYS = st.sampled_from([None, "", " ", "\u2003", "a", "b", "a b", "é", "c "])
_BATCHES = st.lists(st.lists(st.tuples(_KEYS, st.booleans()), max_size=8), max_size=6)


def columns_of(rows, first):
    """Return messages with some keys, with a body or without, from a queue offset on."""
    raw = [b"" if key is None else b"KEYS\x01" + key.encode() + b"\x02" for key, _ in rows]
    values = {
        "topic": pa.array(["T"] * len(rows)),
        "body": pa.array([b"x" if has_body else b"" for _, has_body in rows], pa.binary()),
        "properties_raw": pa.array(raw, pa.binary()),
    }
    encoded = encode_records(pa.record_batch(values), store_host=bytes(8))
    encoded.patch(np.arange(first, first + len(rows)), encoded.starts, 1)
    return MessageColumns(RecordFrames(encoded.block, 0, encoded.starts), raw_body=True)


def by_hand(batches):
    newest = {}
    for offset, (key, has_body) in enumerate(row for rows in batches for row in rows):
        if key is not None and key.strip():
            newest[key] = (offset, has_body)
    return sorted(offset for offset, has_body in newest.values() if has_body)


@pytest.mark.parametrize("at_once", [1, 1 << 20])
@given(batches=_BATCHES, chance=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_equal_to_a_loop_in_any_order_and_twice(at_once, batches, chance):
    firsts = np.cumsum([0, *map(len, batches)]).tolist()
    parts = [columns_of(rows, first) for rows, first in zip(batches, firsts) if rows] * 2
    chance.shuffle(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_check, "_ROWS_AT_ONCE", at_once)
        newest = NewestOfKeys()
        for part in parts:
            newest.add(part)
        assert newest.kept_offsets().tolist() == by_hand(batches)
