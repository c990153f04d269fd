# SPDX-License-Identifier: Apache-2.0
"""Op messages and properties of transactions: one by one, and in columns."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from store_core import Message, TransactionState
from store_core.topics import HALF_TOPIC
from store_core.transaction_forms import (
    commit_message,
    half_facts,
    half_message,
    named_offsets,
    op_bodies,
    op_offsets,
)

_words = st.one_of(
    st.integers(0, 10**19).map(str),
    st.sampled_from(["", "x", "-1", " 3", "٣", "1 2", "+7", "007"]),
)
_bodies = st.one_of(st.lists(_words).map(lambda w: ",".join(w).encode()), st.binary(max_size=9))


@given(st.lists(_bodies))
def test_names_in_columns(bodies):
    row, offset = named_offsets(pa.array(bodies, pa.binary()))
    expected = [(n, named) for n, body in enumerate(bodies) for named in op_offsets(body)]
    assert list(zip(row.tolist(), offset.tolist())) == expected


@given(st.lists(st.integers(0, 10**12), min_size=1), st.integers(1, 60), st.sampled_from([4, 5]))
def test_op_messages_name_all_in_order(offsets, max_size, release):
    bodies, counts = op_bodies(np.array(offsets, np.int64), max_size, release)
    named = [op_offsets(body) for body in bodies]
    assert [offset for names in named for offset in names] == offsets
    assert counts.tolist() == [len(names) for names in named]
    if release == 4:
        assert bodies == [str(offset).encode() for offset in offsets]
        return
    for body in bodies[:-1]:  # as long as requested, and at most one name more
        assert len(body) >= max_size
        assert len(body[:-1].rpartition(b",")[0]) + 1 < max_size or body.count(b",") == 1


def test_names_of_the_wire():
    assert TransactionState("commit") is TransactionState.COMMIT_MESSAGE
    assert [state.sys_flag for state in TransactionState] == [8, 12, 0]


def test_a_message_that_says_it_is_prepared_is_stored_as_an_ordinary_one():
    message = Message("Orders", b"x", queue_id=3, sys_flag=0x104, properties={"UNIQ_KEY": "U"})
    half = half_message(message)
    assert (half.topic, half.queue_id, half.sys_flag) == (HALF_TOPIC, 0, 0x100)
    assert half.properties_raw == (
        b"UNIQ_KEY\1U\2__transactionId__\1U\2REAL_TOPIC\1Orders\2REAL_QID\x013\2"
    )
    assert half_message(message, 4).properties_raw == (
        b"REAL_TOPIC\1Orders\2UNIQ_KEY\1U\2REAL_QID\x013"
    )


@pytest.mark.parametrize("queue_id", ["x", "-1", "9999999999", None])
def test_a_half_message_that_does_not_say_where_it_goes(queue_id):
    properties = {"REAL_TOPIC": "Orders", "REAL_QID": queue_id}
    raw = "".join(f"{k}\1{v}\2" for k, v in properties.items() if v is not None).encode()
    assert half_facts({k: v for k, v in properties.items() if v is not None}).queue_id is None
    with pytest.raises(ValueError, match="REAL_QID"):
        commit_message(Message(HALF_TOPIC, b"x", properties_raw=raw))
