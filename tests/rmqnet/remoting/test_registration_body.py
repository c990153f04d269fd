from __future__ import annotations

import contextlib
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting import registration_body
from rmqnet.remoting.registration_body import (
    RegistrationBody,
    body_crc32,
    decode_registration_body,
    encode_registration_body,
)
from store_core.config.config_files import TopicConfig
from store_core.config.data_version import DataVersion

MAPPING = {"topic": "static", "bname": "a", "totalQueues": 2, "currIdMap": {"0": 0}}
BODY = RegistrationBody(
    {
        "orders": TopicConfig("orders", 8, 4, 6, attributes={"message.type": "FIFO"}),
        "TBW102": TopicConfig("TBW102", 8, 8, 7),
    },
    DataVersion(3, 12, 1_700_000_000_000),
    ("10.0.0.7:30000",),
    {"static": MAPPING},
)
BOTH_FORMS = pytest.mark.parametrize("compressed", [False, True])


def text(value: str) -> bytes:
    return struct.pack(">i", len(value.encode())) + value.encode()


# As a broker of 4.9.7 sends it (TopicConfig.encode has no attributes, and there are no mappings).
PLAIN_4 = (
    text('{"counter":2,"timestamp":1700000000000}')
    + struct.pack(">i", 2)
    + text("orders 8 4 6 SINGLE_TAG")
    + text("%RETRY%group 1 1 6 SINGLE_TAG")
    + text("[]")
)


@BOTH_FORMS
def test_what_was_encoded_is_decoded(compressed: bool) -> None:
    data = encode_registration_body(BODY, compressed=compressed)
    assert decode_registration_body(data, compressed=compressed) == BODY


def test_json_keeps_all_of_a_topic() -> None:
    topic = TopicConfig("t", 1, 2, 4, "MULTI_TAG", 3, True, {"a": "b"})
    data = encode_registration_body(RegistrationBody({"t": topic}))
    assert decode_registration_body(data).topics == {"t": topic}
    assert json.loads(data)["topicConfigSerializeWrapper"]["topicConfigTable"]["t"] == {
        "attributes": {"a": "b"},
        "order": True,
        "perm": 4,
        "readQueueNums": 1,
        "topicFilterType": "MULTI_TAG",
        "topicName": "t",
        "topicSysFlag": 3,
        "writeQueueNums": 2,
    }


def test_json_is_what_brokers_send() -> None:
    sent = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
        b'"stateVersion":0,"timestamp":9},"mappingDataVersion":{"counter":0,"stateVersion":0,'
        b'"timestamp":0},"topicConfigTable":{"t":{"attributes":{},"order":false,"perm":6,'
        b'"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,'
        b'"writeQueueNums":8}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )
    body = RegistrationBody({"t": TopicConfig("t", 8, 8)}, DataVersion(0, 1, 9))
    assert json.loads(encode_registration_body(body)) == json.loads(sent)
    assert decode_registration_body(sent) == body


def test_the_compressed_form_of_4_x_has_no_mappings() -> None:
    found = decode_registration_body(zlib.compress(PLAIN_4, 9), compressed=True)
    assert found == RegistrationBody(
        {
            "orders": TopicConfig("orders", 8, 4, 6),
            "%RETRY%group": TopicConfig("%RETRY%group", 1, 1, 6),
        },
        DataVersion(0, 2, 1_700_000_000_000),
    )


def test_the_compressed_form_is_laid_out_as_brokers_of_5_x_do() -> None:
    body = RegistrationBody({"t": TopicConfig("t", 8, 4, 6, attributes={"a": "b"})})
    assert zlib.decompress(encode_registration_body(body, compressed=True)) == (
        text('{"counter":0,"stateVersion":0,"timestamp":0}')
        + struct.pack(">i", 1)
        + text('t 8 4 6 SINGLE_TAG {"a":"b"}')
        + text("[]")
        + struct.pack(">i", 0)
    )


def test_a_compressed_body_is_known_also_where_the_header_denies_it() -> None:
    data = encode_registration_body(BODY, compressed=True)
    assert decode_registration_body(data, compressed=False) == BODY


@pytest.mark.parametrize("attributes", ['{"a b', "{}", "null"])
def test_attributes_that_cannot_be_read_are_none(attributes: str) -> None:
    plain = text("{}") + struct.pack(">i", 1) + text(f"t 1 1 6 SINGLE_TAG {attributes}")
    found = decode_registration_body(zlib.compress(plain + text("[]")), compressed=True)
    assert found.topics == {"t": TopicConfig("t", 1, 1, 6)}


@BOTH_FORMS
def test_an_empty_body_has_no_topics(compressed: bool) -> None:
    assert decode_registration_body(b"", compressed=compressed) == RegistrationBody()


def test_the_check_sum_is_java_s() -> None:
    assert body_crc32(b"123456789") == 0x4BF43926  # of which Java clears the top bit
    assert zlib.crc32(b"123456789") == 0xCBF43926


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"topicConfigSerializeWrapper":1}',
        b'{"filterServerList":{}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":"x"}}}}',
    ],
)
def test_json_of_another_kind_is_an_error(body: bytes) -> None:
    with pytest.raises(RemotingFormatError, match="the body of the registration of a broker: "):
        decode_registration_body(body)


@given(st.integers(0, len(PLAIN_4) - 1))
def test_a_compressed_body_may_end_nowhere_else(end: int) -> None:
    with pytest.raises(RemotingFormatError):
        decode_registration_body(zlib.compress(PLAIN_4[:end]), compressed=True)


@given(st.binary() | st.binary().map(zlib.compress))
def test_anything_is_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(RemotingFormatError):
        decode_registration_body(data, compressed=True)


def test_a_body_that_grows_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_body, "MAX_BODY_BYTES", 1 << 20)
    with pytest.raises(RemotingFormatError, match="more than 1048576 bytes"):
        decode_registration_body(zlib.compress(bytes(10 << 20)), compressed=True)
    with pytest.raises(RemotingFormatError, match="not whole"):
        decode_registration_body(zlib.compress(PLAIN_4)[:-5], compressed=True)


def test_lengths_are_looked_at() -> None:
    for number in (-1, 1 << 30):
        data = zlib.compress(struct.pack(">i", number) + bytes(100))
        with pytest.raises(RemotingFormatError, match=str(number)):
            decode_registration_body(data, compressed=True)
