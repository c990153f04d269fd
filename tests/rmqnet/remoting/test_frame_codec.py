# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import LanguageCode, SerializeType
from rmqnet.remoting.frame_codec import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.examples import examples
from tests.rmqnet.remoting.golden_frames import recorded_frames, recorded_headers

BOTH_FORMS = pytest.mark.parametrize("form", list(SerializeType))

i32 = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]))
commands = st.builds(
    RemotingCommand,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    ext_fields=st.dictionaries(texts, texts),
    body=st.binary(),
    remark=st.none() | texts.filter(bool),
    opaque=i32,
    flag=i32,
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, (1 << 15) - 1),
    serialize_type=st.sampled_from(SerializeType),
)


def decoder(**options):
    return FrameDecoder("10.0.0.1:10911", **options)


def decode(frame):
    (command,) = decoder().feed(frame)
    return command


def raw_frame(header, body=b"", form=0):
    prefix = struct.pack(">iI", 4 + len(header) + len(body), form << 24 | len(header))
    return prefix + header + body


def json_frame(**changes):
    fields = {"code": 0, "opaque": 1, "flag": 1, "language": "JAVA", "version": 479, **changes}
    return raw_frame(json.dumps(fields).encode())


@given(commands)
def test_what_was_encoded_is_decoded(command):
    assert decode(encode_frame(command)) == command


@given(st.lists(commands, max_size=5), st.data())
def test_pieces_of_any_length_make_the_same_commands(several, data):
    stream = b"".join(encode_frame(command) for command in several)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    reader = decoder()
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)]):
        found += reader.feed(stream[begin:end])
    assert found == several


@BOTH_FORMS
def test_a_frame_may_be_cut_everywhere(form):
    one = RemotingCommand(0, {"a": "b"}, b"body", serialize_type=form)
    frame = encode_frame(one)
    for cut in range(len(frame) + 1):
        reader = decoder()
        assert reader.feed(frame[:cut]) + reader.feed(frame[cut:] + frame) == [one, one]


@BOTH_FORMS
@pytest.mark.parametrize("body_bytes", [0, 5000, 30_000])
def test_bytes_may_come_one_by_one(form, body_bytes):
    one = RemotingCommand(0, {"a": "b"}, b"x" * body_bytes, serialize_type=form)
    reader = decoder()
    found = []
    for byte in encode_frame(one) * 2:
        found += reader.feed(bytes([byte]))
    assert found == [one, one]


def test_headers_that_were_recorded_decode_and_encode_to_equal_values():
    assert len(recorded_headers()) > 400
    for recorded in recorded_headers():
        frame = raw_frame(json.dumps(recorded.header).encode(), recorded.body)
        command = decode(frame)
        assert command.is_response == recorded.is_answer, recorded.origin
        again = encode_frame(command)
        (header_bytes,) = struct.unpack_from(">I", again, 4)
        header = json.loads(again[8 : 8 + header_bytes])
        assert header == {"extFields": {}, **recorded.header}, recorded.origin
        assert again[8 + header_bytes :] == recorded.body, recorded.origin


def test_frames_that_were_recorded_decode_and_encode_to_the_same_bytes():
    forms = set()
    for recorded in recorded_frames():
        command = decode(recorded.frame)
        forms.add(command.serialize_type)
        assert command.is_response == recorded.is_answer, recorded.origin
        assert _comparable(encode_frame(command)) == _comparable(recorded.frame), recorded.origin
    assert forms == set(SerializeType)


def _comparable(frame):
    """Return a binary header byte for byte, JSON as values without an object that may be absent."""
    (mark,) = struct.unpack_from(">I", frame, 4)
    if mark >> 24 == SerializeType.ROCKETMQ:
        return frame
    end = 8 + (mark & 0xFFFFFF)
    return {"extFields": {}, **json.loads(frame[8:end])}, frame[end:]


def test_a_binary_header_is_laid_out_as_rocketmq_does():
    command = RemotingCommand(
        17,
        {"topic": "é"},
        b"body",
        "no",
        7,
        3,
        LanguageCode.GO,
        479,
        SerializeType.ROCKETMQ,
    )
    header = (
        b"\x00\x11"  # code
        b"\x09"  # language
        b"\x01\xdf"  # version
        b"\x00\x00\x00\x07"  # opaque
        b"\x00\x00\x00\x03"  # flag
        b"\x00\x00\x00\x02no"  # remark
        b"\x00\x00\x00\x0d"  # fields
        b"\x00\x05topic"
        b"\x00\x00\x00\x02\xc3\xa9"
    )
    assert encode_frame(command) == b"\x00\x00\x00\x2c\x01\x00\x00\x24" + header + b"body"


def test_a_json_header_is_laid_out_as_rocketmq_does():
    command = RemotingCommand(105, {"topic": 'a"\x01é'}, b"body", opaque=7)
    header = (
        b'{"code":105,"extFields":{"topic":"a\\"\\u0001\\u00e9"},"flag":0,"language":"PYTHON",'
        b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert encode_frame(command) == raw_frame(header, b"body")


def test_keys_of_header_objects_may_be_what_fastjson_writes():
    header = b"{code=0}"
    with pytest.raises(RemotingFormatError, match="not JSON"):
        decode(raw_frame(header))
    header = b'{"code":0,"opaque":1,"extFields":{0:"10.0.0.1:10911"}}'
    assert decode(raw_frame(header)).ext_fields == {"0": "10.0.0.1:10911"}


def test_field_values_that_are_no_texts_become_those_that_rocketmq_reads():
    fields = {"a": True, "b": 7, "c": None, "d": "x"}
    assert decode(json_frame(extFields=fields)).ext_fields == {"a": "true", "b": "7", "d": "x"}


def test_what_a_header_may_lack():
    command = decode(raw_frame(b'{"code":5,"opaque":9,"language":"KLINGON","extFields":null}'))
    assert command == RemotingCommand(5, {}, opaque=9, language=LanguageCode.OTHER, version=0)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (struct.pack(">iI", -1, 0), "a header of 0 bytes in a frame of 3 bytes"),
        (struct.pack(">iI", -(1 << 31), 0), "in a frame of -2147483644 bytes"),
        (struct.pack(">iI", 3, 0), "a header of 0 bytes in a frame of 7 bytes"),
        (struct.pack(">iI", MAX_FRAME_BYTES - 3, 0), "a frame of 16777217 bytes"),
        (struct.pack(">iI", (1 << 31) - 1, 0), "a frame of 2147483651 bytes"),
        (struct.pack(">iI", 104, 101), "a header of 101 bytes in a frame of 108 bytes"),
        (struct.pack(">iI", 100, 0xFFFFFF), "a header of 16777215 bytes in a frame of 104"),
        (raw_frame(b"{}", form=2), "unknown format 2"),
        (raw_frame(b"[]"), "not a JSON object"),
        (raw_frame(b""), "not JSON"),
        (raw_frame(b"{"), "not JSON"),
        (raw_frame(b"[" * 100_000), "not JSON: nested too deeply"),
        (raw_frame(b'{"code":NaN,"opaque":1}'), "code must be a number of 32 bits, not nan"),
        (raw_frame(b"\xff{}"), "not UTF-8"),
        (json_frame(code=None), "code must be a number of 32 bits, not None"),
        (json_frame(code="0"), "code must be a number of 32 bits, not '0'"),
        (json_frame(code=True), "code must be a number of 32 bits, not True"),
        (json_frame(opaque=1 << 31), "opaque must be a number of 32 bits, not 2147483648"),
        (json_frame(flag=0.5), "flag must be a number"),
        (json_frame(version=[]), "version must be a number"),
        (json_frame(remark={}), "remark must be a text"),
        (json_frame(extFields=[]), "extFields must be an object"),
        (json_frame(extFields={"a": {}}), "the field 'a' must be a text"),
        (raw_frame(b"", form=1), "the header ends early, after 0 bytes"),
        (raw_frame(bytes(16), form=1), "the header ends early, after 16 bytes"),
        (raw_frame(bytes(17), form=1), "the header ends early, after 17 bytes"),
        (raw_frame(bytes(13) + b"\xff" * 4 + bytes(4), form=1), "a text of -1 bytes at byte 13"),
        (raw_frame(bytes(13) + b"\x7f" * 4 + bytes(4), form=1), "bytes at byte 13 of the header"),
        (raw_frame(bytes(17) + b"\xff" * 4, form=1), "fields of -1 bytes at byte 21"),
        (raw_frame(bytes(17) + b"\x7f" * 4, form=1), "fields of 2139062143 bytes at byte 21"),
        (raw_frame(bytes(20) + b"\x03\x00\x01a", form=1), "ends early"),
        (raw_frame(bytes(20) + b"\x02\xff\xfe", form=1), "a text of -2 bytes at byte 21"),
        (raw_frame(bytes(16) + b"\x01\xff" + bytes(4), form=1), "at byte 13 of the header is not"),
    ],
)
def test_what_is_no_frame_is_named(frame, complaint):
    good = json_frame()
    reader = decoder()
    assert len(reader.feed(good)) == 1
    with pytest.raises(RemotingFormatError) as caught:
        reader.feed(frame)
    assert str(caught.value).startswith(
        "10.0.0.1:10911 sent something that is not a frame, at byte "
        f"{len(good)} of the connection: "
    )
    assert complaint in str(caught.value)


def test_a_frame_of_the_greatest_length_is_taken():
    command = RemotingCommand(0)
    command.body = bytes(MAX_FRAME_BYTES - len(encode_frame(command)))
    assert decode(encode_frame(command)) == command
    command.body += b"x"
    with pytest.raises(RemotingFormatError, match=r"16777217 bytes; at most 16777216"):
        encode_frame(command)


def test_the_limit_may_be_lower():
    frame = encode_frame(RemotingCommand(0, body=bytes(1000)))
    with pytest.raises(RemotingFormatError, match="at most 1000 are accepted"):
        decoder(max_frame_bytes=1000).feed(frame)


@pytest.mark.parametrize("code", [200_050, -40_000])
def test_codes_that_do_not_fit_in_a_binary_header_are_named(code):
    command = RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(RemotingFormatError, match=f"code {code} or version 479"):
        encode_frame(command)
    command.serialize_type = SerializeType.JSON
    assert decode(encode_frame(command)).code == code


def test_names_that_do_not_fit_in_a_binary_header_are_named():
    command = RemotingCommand(1, {"n" * 40_000: "v"}, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(RemotingFormatError, match="the field name 'nnn"):
        encode_frame(command)


@BOTH_FORMS
def test_a_length_alone_makes_nothing_grow(form):
    """A peer announces a length and sends only a part: memory grows no more than that part."""
    prefix = struct.pack(">iI", MAX_FRAME_BYTES - 4, form << 24 | 0xFFFFF0)
    tracemalloc.start()
    try:
        reader = decoder()
        for piece in [prefix, *[b"["] * 10_000]:
            assert reader.feed(piece) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def many_lists():
    return b'{"code":0,"opaque":0,"x":[' + b"[]," * 3_000_000 + b"[]]}"


def many_objects():
    return b'{"code":0,"opaque":0,"x":[' + b"{}," * 3_000_000 + b"{}]}"


def many_members():
    members = b",".join(b'"%d":0' % n for n in range(300_000))
    return b'{"code":0,"opaque":0,"extFields":{' + members + b"}}"


def many_fields():
    return bytes(17) + struct.pack(">i", 12_000_000) + bytes(12_000_000)


@pytest.mark.parametrize(
    ("make", "form"), [(many_lists, 0), (many_objects, 0), (many_members, 0), (many_fields, 1)]
)
def test_a_header_that_would_become_many_times_its_bytes_is_refused(make, form):
    header = make()
    frame = raw_frame(header, form=form)
    tracemalloc.start()
    try:
        with pytest.raises(RemotingFormatError, match="a header of more than"):
            decoder().feed(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_FRAME_BYTES


def test_the_ids_of_a_large_batch_are_taken():
    ids = ",".join(["7F00000200007BA7000000000000093C"] * 60_000)
    command = RemotingCommand(0, {"msgId": ids, "transactionId": ids})
    assert decode(encode_frame(command)) == command


def test_single_bytes_of_a_body_do_not_cost_an_object_each():
    frame = encode_frame(RemotingCommand(0, body=bytes(20_000)))
    reader = decoder()
    reader.feed(frame[:-20_000])
    tracemalloc.start()
    try:
        for _ in range(19_999):
            assert reader.feed(b"\0") == []
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 60_000
    assert len(reader.feed(b"\0")) == 1


@settings(max_examples=examples(300))
@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 255]), st.integers(-20, 20))
def test_any_header_ends_in_a_command_or_in_an_error(header, form, more):
    frame = struct.pack(">iI", 4 + len(header) + max(more, 0), form << 24 | len(header)) + header
    with contextlib.suppress(RemotingFormatError):
        decoder().feed(frame)


@given(commands, st.data())
def test_any_changed_frame_ends_in_commands_or_in_an_error(command, data):
    frame = bytearray(encode_frame(command))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemotingFormatError):
        decoder().feed(bytes(frame))


@given(st.binary())
def test_any_bytes_end_in_commands_or_in_an_error(data):
    with contextlib.suppress(RemotingFormatError):
        decoder().feed(data)


def test_memory_of_a_frame_that_is_not_whole_is_counted():
    reader = decoder()
    frame = encode_frame(RemotingCommand(0, {"name": "value"}, bytes(10_000)))
    assert reader.held_bytes == 0
    reader.feed(frame[:6])
    assert reader.held_bytes == 6
    reader.feed(frame[6:50])
    assert reader.held_bytes == 50
    reader.feed(frame[50:-9_000])
    header_bytes = len(frame) - 10_000
    assert header_bytes + 1_000 <= reader.held_bytes <= header_bytes + 1_000 + 200
    reader.feed(frame[-9_000:-1])
    assert reader.held_bytes >= len(frame) - 9
    assert reader.feed(frame[-1:] + frame + frame[:7])
    assert reader.held_bytes == 7


def test_a_few_bytes_do_not_keep_all_that_came_with_them():
    tracemalloc.start()
    try:
        whole = encode_frame(RemotingCommand(0, body=bytes(250_000)))
        begin = encode_frame(RemotingCommand(0, body=bytes(9_000)))[:-3_000]
        readers = [decoder() for _ in range(20)]
        before, _ = tracemalloc.get_traced_memory()
        for reader in readers:
            reader.feed(whole + begin)
        after, _ = tracemalloc.get_traced_memory()
        assert sum(reader.held_bytes for reader in readers) >= 20 * 6_000
        assert after - before < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_command_knows_how_long_its_frame_was():
    one = RemotingCommand(0, {"a": "b"}, b"body")
    frame = encode_frame(one)
    assert decode(frame).frame_bytes == len(frame)
    assert one.frame_bytes == 0


def test_half_a_character_is_a_question_mark_in_binary_form():
    command = RemotingCommand(0, {"a": "\ud800"}, remark="\ud800")
    assert decode(encode_frame(command)) == command
    command.serialize_type = SerializeType.ROCKETMQ
    found = decode(encode_frame(command))
    assert (found.ext_fields, found.remark) == ({"a": "?"}, "?")


@pytest.mark.parametrize("length", [-1, 3, MAX_FRAME_BYTES - 3])
def test_a_wrong_length_is_an_error_as_soon_as_it_has_come(length: int) -> None:
    decoder = FrameDecoder("peer")
    data = struct.pack(">i", length)
    assert decoder.feed(data[:1]) == decoder.feed(data[1:3]) == []
    with pytest.raises(RemotingFormatError, match=r"peer sent something .*, at byte 0"):
        decoder.feed(data[3:])
