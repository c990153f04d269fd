# SPDX-License-Identifier: Apache-2.0
"""Many transactions ended in one call leave the same records as when ended one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from store_core import Message
from store_core.codec.message_codec import encode_record
from store_core.transaction import bulk_end
from store_core.transaction.end_results import EndStatus
from store_core.transaction_forms import half_message
from tests.store_core.crash.by_hand import dispatch_all
from tests.store_core.transaction.transactions_by_hand import (
    COMMIT,
    ROLLBACK,
    START_MS,
    UNKNOWN,
    driven,
    sent_message,
)

_names = st.sampled_from(["Orders", "Payments", "Größe"])
_messages = st.builds(
    Message,
    _names,
    st.binary(max_size=60),
    queue_id=st.integers(0, 3),
    flag=st.integers(0, 9),
    sys_flag=st.sampled_from([0, 4, 8, 12]),
    reconsume_times=st.integers(0, 3),
    born_timestamp=st.integers(START_MS, START_MS + 50),
    born_host=st.sampled_from([None, "10.0.0.1:2", "[::1]:77"]),
    store_host=st.sampled_from([None, "10.0.0.9:10911", "[::2]:10911"]),
    unique_key=st.sampled_from(["U1", "U2", "U3", "U4"]),
    properties=st.fixed_dictionaries(
        {"PGROUP": st.just("writers")},
        optional={
            "DELAY": st.sampled_from(["0", "1", "2", "40", "x"]),
            "TAGS": st.just("t"),
            "own": st.text(max_size=3).filter(lambda text: not {"\1", "\2"} & set(text)),
        },
    ),
)


def _records(run, moment):
    """Return the content of the log from an offset on, without clocks."""
    with run.store._reading() as readable:
        at, records = moment, []
        while (at := readable.log.next_record(at, readable.end_offset)) >= 0:
            record = readable.reader.read(at)
            records.append(encode_record(record))
            at += record.total_size
    return records


def _ended(messages, wanted, state, in_bulk):
    clock = [START_MS + 100]
    with tempfile.TemporaryDirectory() as directory:
        settings = {"mapped_file_size_commit_log": 1 << 20, "transaction_op_format": 5}
        with driven(Path(directory, "store"), clock, **settings) as run:
            places = []
            for message in messages:
                result = run.service.prepare_message(message)
                assert result.status.name == "PUT_OK", result
                places.append(result.append_result)
            run.check()
            moment = run.store.max_phy_offset
            if in_bulk:
                done = run.service.end_transactions([places[n].queue_offset for n in wanted], state)
                ended, refused = done.ended, len(done.refused)
            else:
                results = [run.end(places[n], state, from_check=True).status for n in wanted]
                ended = results.count(EndStatus.ENDED)
                refused = results.count(EndStatus.PUT_FAILED)
                run.service._ops.write(everything=True)
            counts = run.service.metrics.counts()
            opened = run.service.open_queue_offsets().tolist()
            return _records(run, moment), ended, refused, counts, opened


@settings(max_examples=12, deadline=None)
@given(
    messages=st.lists(_messages, min_size=1, max_size=12),
    picks=st.sets(st.integers(0, 11)),
    state=st.sampled_from([COMMIT, ROLLBACK]),
)
def test_in_bulk_equals_one_by_one(messages, picks, state):
    wanted = sorted(n for n in picks if n < len(messages))
    alone = _ended(messages, wanted, state, in_bulk=False)
    assert _ended(messages, wanted, state, in_bulk=True)[1:] == alone[1:]


@settings(max_examples=8, deadline=None)
@given(messages=st.lists(_messages, min_size=1, max_size=12))
def test_records_are_the_same(messages):
    """Without delay levels, which are put last in bulk, the log has the same bytes."""
    for message in messages:
        message.properties.pop("DELAY", None)
    wanted = range(len(messages))
    alone = _ended(messages, wanted, COMMIT, in_bulk=False)
    assert _ended(messages, wanted, COMMIT, in_bulk=True) == alone


def test_what_is_not_open_is_said(root):
    with driven(root, [START_MS]) as run:
        place = run.prepare(1)
        run.prepare(2)
        run.end(place, ROLLBACK)
        done = run.service.end_transactions([0, 1, 7], COMMIT)
        assert (done.ended, done.not_open, done.refused) == (1, [0, 7], {})
        assert run.committed() == ["U2"]
        with pytest.raises(ValueError, match="UNKNOW"):
            run.service.end_transactions([1], UNKNOWN)


def test_what_is_refused_keeps_no_other_from_its_end(root, monkeypatch):
    monkeypatch.setattr(bulk_end, "_ROWS_AFTER_REFUSAL", 3)
    with driven(root, [START_MS]) as run:
        for number in range(12):
            half = half_message(sent_message(number))
            if number in {2, 3, 9}:
                half.properties_raw = half.properties_raw.replace(b"\1Orders\2", b"\1a/b\2")
            assert run.store.raw_put_message(half).is_appended
        dispatch_all(run.store)
        done = run.service.end_transactions(range(12), COMMIT)
        assert (done.ended, sorted(done.refused)) == (9, [2, 3, 9])
        assert sorted(run.committed()) == sorted(f"U{n}" for n in range(12) if n not in {2, 3, 9})
        assert run.service.open_queue_offsets().tolist() == [2, 3, 9]


def test_more_than_one_op_message(root):
    with driven(root, [START_MS], transaction_op_msg_max_size=20) as run:
        for number in range(12):
            run.prepare(number)
        done = run.service.end_transactions(run.service.open_queue_offsets(), COMMIT)
        assert done.ended == 12
        assert run.ops() == [b"0,1,2,3,4,5,6,7,8,9,", b"10,11,"]
        assert np.array_equal(run.service.open_queue_offsets(), [])
