from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_codec import decode_message, encode_message
from store_core.message import Message
from store_core.put.record_template import draft_record, topic_bytes

HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
NO_HOSTS = (bytes(8), bytes(8))


@given(
    st.binary(max_size=300),
    st.binary(max_size=50),
    st.binary(max_size=50),
    st.tuples(INTS, INTS, INTS, INTS),
    st.tuples(LONGS, LONGS, LONGS),
    st.tuples(HOSTS, HOSTS),
)
def test_a_draft_is_what_the_general_encoder_makes(topic, body, properties, ints, longs, hosts):
    queue_id, flag, sys_flag, reconsume_times = ints
    born_timestamp, now, prepared_transaction_offset = longs
    fields = {
        "queue_id": queue_id,
        "flag": flag,
        "sys_flag": sys_flag,
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared_transaction_offset,
    }
    message = Message("other", body, born_timestamp=born_timestamp, **fields)
    assert draft_record(message, topic_bytes(topic), properties, hosts, now) == encode_message(
        topic=topic,
        body=body,
        properties_raw=properties,
        commit_log_offset=0,
        queue_offset=0,
        born_timestamp=born_timestamp or now,
        born_host=hosts[0],
        store_timestamp=0,
        store_host=hosts[1],
        **fields,
    )


def test_the_version_goes_by_bytes_not_characters():
    topic = "ü" * 64  # 128 bytes, 64 characters
    draft = draft_record(Message(topic), topic_bytes(topic.encode()), b"", NO_HOSTS, 0)
    assert decode_message(draft, 0, 0, "").topic_bytes.decode() == topic
    assert draft[4:8].hex() == "daa320ab"


def test_numbers_that_do_not_fit_and_hosts_of_other_lengths():
    with pytest.raises(struct.error):
        draft_record(Message("t", queue_id=1 << 31), topic_bytes(b"t"), b"", NO_HOSTS, 0)
    with pytest.raises(KeyError):
        draft_record(Message("t"), topic_bytes(b"t"), b"", (bytes(7), bytes(8)), 0)
