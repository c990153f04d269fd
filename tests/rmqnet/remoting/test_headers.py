# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting import registration_body
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header, encode_header
from rmqnet.remoting.headers import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    ConsumeMessageDirectlyResultRequestHeader,
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
)
from rmqnet.remoting.registration_body import (
    RegistrationBody,
    body_crc32,
    decode_registration_body,
    encode_registration_body,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.config.config_files import TopicConfig
from store_core.config.data_version import DataVersion
from tests.rmqnet.remoting.golden_frames import recorded_headers

CLASSES = sorted({*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda c: c.__name__)
# RocketMQ's newer consumers add it to every request; brokers ignore it.
IGNORED = {"ReqT"}
PULL_STATUSES = {
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}
VALUES = {
    "str": st.text(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "Long": st.integers(-(1 << 63), (1 << 63) - 1),
    "bool": st.booleans(),
}
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


def values_of(field):
    if "one_of" in field.metadata:
        return st.sampled_from(field.metadata["one_of"]).map(int if field.type == "int" else str)
    kind = VALUES[field.type.replace(" | None", "")]
    return kind if field.default is dataclasses.MISSING else st.none() | kind


@given(st.sampled_from(CLASSES), st.data())
def test_what_was_encoded_is_decoded(cls, data):
    header = cls(**{f.name: data.draw(values_of(f)) for f in dataclasses.fields(cls)})
    texts = encode_header(header)
    assert all(isinstance(text, str) for text in texts.values())
    assert decode_header(cls, texts) == header


def test_recorded_requests_have_no_fields_but_the_declared_ones():
    codes = set()
    for recorded in recorded_headers():
        if recorded.is_answer:
            continue
        codes.add(recorded.request_code)
        fields = recorded.header.get("extFields", {})
        cls = REQUEST_HEADERS.get(recorded.request_code)
        known = {} if cls is None else encode_header(decode_header(cls, fields))
        assert known == {name: fields[name] for name in fields.keys() - IGNORED}, recorded.origin
    assert len(codes) > 50


def test_recorded_answers_have_no_fields_but_the_declared_ones():
    codes = set()
    for recorded in recorded_headers():
        fields = recorded.header.get("extFields", {})
        if not recorded.is_answer or not fields:
            continue
        cls = RESPONSE_HEADERS[recorded.request_code]
        if recorded.header["code"] in {ResponseCode.SUCCESS, *PULL_STATUSES}:
            codes.add(recorded.request_code)
            assert encode_header(decode_header(cls, fields)) == fields, recorded.origin
    assert len(codes) > 12


def test_every_class_of_a_request_stands_under_its_code():
    assert all(REQUEST_HEADERS[cls.REQUEST_CODE] is cls for cls in set(REQUEST_HEADERS.values()))


def test_wire_names_of_one_class_differ():
    for cls in CLASSES:
        names = [f.name for f in dataclasses.fields(cls)]
        full = cls(**{f.name: {"str": "x", "int": 1, "Long": 1, "bool": True}[f.type.split(" ")[0]]
                      for f in dataclasses.fields(cls)})  # fmt: skip
        assert len(encode_header(full)) == len(names), cls


def send_header(cls):
    return cls(
        "PG", "orders", "TBW102", 4, 3, 0, 1_700_000_000_000, 0, "p", 1, True, False, 16, "b"
    )


def test_names_on_the_wire():
    assert encode_header(send_header(SendMessageRequestHeader)) == {
        "producerGroup": "PG",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "3",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "p",
        "reconsumeTimes": "1",
        "unitMode": "true",
        "batch": "false",
        "maxReconsumeTimes": "16",
        "bname": "b",
    }
    assert encode_header(send_header(SendMessageRequestHeaderV2)) == dict(
        a="PG", b="orders", c="TBW102", d="4", e="3", f="0", g="1700000000000", h="0", i="p",
        j="1", k="true", l="16", m="false", n="b",
    )  # fmt: skip
    assert encode_header(UnregisterClientRequestHeader("c", "p")) == {
        "clientID": "c",
        "producerGroup": "p",
    }


def test_irregular_names_on_the_wire():
    pull = PullMessageRequestHeader(
        "g", "t", 0, 1, 32, 2, 0, 15_000, 9, proxy_forward_client_id="p"
    )
    assert encode_header(pull)["proxyFrowardClientId"] == "p"
    sent = SendMessageResponseHeader("id", 0, 1, msg_region="r", trace_on=True)
    assert encode_header(sent)["MSG_REGION"] == "r"
    assert encode_header(sent)["TRACE_ON"] == "true"
    direct = ConsumeMessageDirectlyResultRequestHeader("g", broker_name="n", bname="b")
    assert encode_header(direct) == {"consumerGroup": "g", "brokerName": "n", "bname": "b"}


def test_headers_are_equal_where_class_and_fields_are():
    header = SendMessageRequestHeader("g", "t", "d", 4, 0, 0, 1, 0)
    assert header == SendMessageRequestHeader("g", "t", "d", 4, 0, 0, 1, 0)
    assert header != SendMessageRequestHeader("g", "t", "d", 4, 0, 0, 1, 1)
    assert header != SendMessageRequestHeaderV2("g", "t", "d", 4, 0, 0, 1, 0)
    assert repr(GetMaxOffsetRequestHeader("t", 1)) == (
        "GetMaxOffsetRequestHeader(topic='t', queue_id=1, committed=None, bname=None)"
    )


def test_unknown_fields_are_ignored():
    fields = {"topic": "t", "queueId": "1", "ReqT": "0"}
    assert decode_header(GetMaxOffsetRequestHeader, fields) == GetMaxOffsetRequestHeader("t", 1)


def test_a_missing_field_is_named():
    with pytest.raises(
        RemotingFormatError, match="GetMaxOffsetRequestHeader: the field queueId is missing"
    ):
        decode_header(GetMaxOffsetRequestHeader, {"topic": "t"})


@pytest.mark.parametrize(
    "text", ["", " 1", "1_0", "0x1", "1.0", "٣", "9" * 20, str(1 << 63), "true", "-" + "9" * 30]
)
def test_a_bad_number_is_named(text):
    with pytest.raises(
        RemotingFormatError, match="the field offset must be a whole number of 64 bits, not '"
    ):
        decode_header(QueryConsumerOffsetResponseHeader, {"offset": text})


@pytest.mark.parametrize(
    ("text", "number"), [("+5", 5), ("-0", 0), ("007", 7), (str(-(1 << 63)), -(1 << 63))]
)
def test_numbers_that_java_reads_are_read(text, number):
    header = decode_header(QueryConsumerOffsetResponseHeader, {"offset": text})
    assert header.offset == number


@pytest.mark.parametrize(("text", "truth"), [("TRUE", True), ("yes", False), ("", False)])
def test_truth_is_read_as_java_does(text, truth):
    fields = {"topic": "t", "queueId": "1", "committed": text}
    assert decode_header(GetMaxOffsetRequestHeader, fields).committed is truth


def test_requests_are_made_of_headers_or_codes():
    request = RemotingCommand.request(GetMaxOffsetRequestHeader("t", 1, bname="b"), b"body")
    assert (request.code, request.body) == (RequestCode.GET_MAX_OFFSET, b"body")
    assert request.ext_fields == {"topic": "t", "queueId": "1", "bname": "b"}
    assert RemotingCommand.request(RequestCode.HEART_BEAT, b"{}").code == RequestCode.HEART_BEAT
    batch = RemotingCommand.request(
        send_header(SendMessageRequestHeaderV2), code=RequestCode.SEND_BATCH_MESSAGE
    )
    assert batch.code == RequestCode.SEND_BATCH_MESSAGE


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
def test_a_registration_that_was_encoded_is_decoded(compressed: bool) -> None:
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
    assert body_crc32(b"123456789") == 0x4BF43926  # Java clears the top bit of it
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
    monkeypatch.setattr(registration_body, "MAX_REGISTRATION_BYTES", 1 << 20)
    with pytest.raises(RemotingFormatError, match="more than 1048576 bytes"):
        decode_registration_body(zlib.compress(bytes(10 << 20)), compressed=True)
    with pytest.raises(RemotingFormatError, match="cut short"):
        decode_registration_body(zlib.compress(PLAIN_4)[:-5], compressed=True)


def test_lengths_are_looked_at() -> None:
    for number in (-1, 1 << 30):
        data = zlib.compress(struct.pack(">i", number) + bytes(100))
        with pytest.raises(RemotingFormatError, match=str(number)):
            decode_registration_body(data, compressed=True)
