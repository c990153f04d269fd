# SPDX-License-Identifier: Apache-2.0
"""The kernel encodes and decodes JSON headers as Python's code does, or leaves them to it."""

import json
import random
import sys
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import LanguageCode
from rmqnet.remoting.frame_codec import FrameDecoder, encode_frame
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.both_paths import KERNEL, by_both, needs_kernel
from tests.examples import examples
from tests.rmqnet.remoting.golden_frames import recorded_frames

pytestmark = needs_kernel
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
plain = st.text(st.characters(max_codepoint=127))
texts = plain | st.text(st.characters(exclude_categories=[]))
commands = st.builds(
    RemotingCommand,
    code=i32,
    ext_fields=st.dictionaries(texts, texts),
    body=st.binary(),
    remark=st.none() | texts,
    opaque=i32,
    flag=i32,
    language=st.sampled_from(LanguageCode),
    version=i32,
)
numbers = i32 | st.integers() | st.floats() | st.booleans() | st.none() | plain
headers = st.fixed_dictionaries(
    {"code": numbers},
    optional={
        "opaque": numbers,
        "flag": numbers,
        "version": numbers,
        "language": st.sampled_from(["JAVA", "PYTHON", "X"]) | numbers,
        "remark": st.none() | texts | numbers,
        "extFields": st.none() | st.dictionaries(texts, texts | numbers) | numbers,
        "serializeTypeCurrentRPC": texts | numbers | st.lists(numbers),
    },
)
FULL = {
    "code": 310,
    "extFields": {"a": 'g\x01\x02"\\/\n', "topic": "t\u00e9", "": ""},
    "flag": 0,
    "language": "JAVA",
    "opaque": -7,
    "remark": "why",
    "serializeTypeCurrentRPC": "JSON",
    "version": 479,
}


def raw_frame(header, body=b""):
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def outcome(data):
    """Return what a decoder makes of a frame: its commands, or the text of its error."""
    try:
        return FrameDecoder("peer").feed(data)
    except RemotingFormatError as err:
        return str(err)


def encoded(command):
    try:
        return encode_frame(command)
    except (RemotingFormatError, UnicodeError, TypeError) as err:
        return type(err)


@settings(max_examples=examples(300), deadline=None)
@given(commands)
def test_the_kernel_encodes_frames_as_python_does(command):
    numpy, kernel = by_both(lambda: encoded(command))
    assert kernel == numpy


def native_frame(command, fields=None, body=None):
    """Return the kernel's own answer, without Python's."""
    return KERNEL.json_frame(
        command.code,
        command.ext_fields if fields is None else fields,
        command.flag,
        command.language.name,
        command.opaque,
        command.remark,
        command.version,
        command.body if body is None else body,
    )


def test_the_kernel_encodes_what_clients_send_itself():
    command = RemotingCommand(310, {"i": 'KEYS\x01a"\\\x7f\n/\x02'}, b"body" * 10_000, "r", 5)
    assert by_both(lambda: encode_frame(command))[0] == native_frame(command)
    for body in (bytearray(b"body"), memoryview(b"body")):
        command.body = body
        assert by_both(lambda: encode_frame(command))[0] == native_frame(command)


@pytest.mark.parametrize(
    "fields",
    [{"a": "\u00e9"}, {"a": "\ud800"}, {"a": 1}, {1: "a"}, [], {str(n): "" for n in range(65)}],
)
def test_the_kernel_leaves_other_fields_to_python(fields):
    assert native_frame(RemotingCommand(1), fields) is None


def test_the_kernel_leaves_other_values_to_python():
    assert native_frame(RemotingCommand(1 << 31)) is None
    assert native_frame(RemotingCommand(1), body="text") is None
    assert native_frame(RemotingCommand(1, remark="\u20ac")) is None


def test_fields_in_an_order_of_their_own_are_left_to_python():
    command = RemotingCommand(1, OrderedDict(a="1", b="2"))
    command.ext_fields.move_to_end("a")
    numpy, kernel = by_both(lambda: encoded(command))
    assert kernel == numpy


class Clearing:
    """A body that changes the fields when its buffer is asked for."""

    def __init__(self, fields):
        self.fields, self.others = fields, []

    def __buffer__(self, _):
        self.fields.clear()
        self.others += [f"{number}" + "y" * 4000 for number in range(50)]
        return memoryview(b"body")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="only types in C have buffers")
def test_fields_are_read_after_the_code_of_a_body_has_run():
    fields = {f"n{number}": f"{number}" + "x" * 4000 for number in range(9)}
    found = native_frame(RemotingCommand(1), fields, Clearing(fields))
    assert found == native_frame(RemotingCommand(1), {}, b"body")


def test_a_frame_of_the_kernel_that_is_too_long_is_refused():
    command = RemotingCommand(1, {}, bytes(100))
    length = len(encode_frame(command))
    assert encode_frame(command, length) == native_frame(command)
    with pytest.raises(RemotingFormatError, match=f"a frame of {length} bytes"):
        encode_frame(command, length - 1)


@settings(max_examples=examples(300), deadline=None)
@given(headers, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_the_kernel_decodes_headers_as_python_does(header, is_ascii, separators):
    text = json.dumps(header, ensure_ascii=is_ascii, separators=separators)
    numpy, kernel = by_both(lambda: outcome(raw_frame(text.encode(errors="surrogatepass"), b"b")))
    assert kernel == numpy


@settings(max_examples=examples(300), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_kernel_decodes_damaged_headers_as_python_does(random_numbers: random.Random):
    header = bytearray(json.dumps(FULL, separators=(",", ":")).encode())
    pieces = [b'"', b"\\", b",", b"{", b"}", b":", b"null", b"\\u0041", b"\\u00e9", b'"code":1,']
    for _ in range(random_numbers.randint(1, 3)):
        at = random_numbers.randrange(len(header))
        piece = random_numbers.choice([*pieces, bytes([random_numbers.randrange(256)])])
        header[at : at + random_numbers.randint(0, 2)] = piece
    numpy, kernel = by_both(lambda: outcome(raw_frame(bytes(header))))
    assert kernel == numpy


def test_the_kernel_decodes_every_cut_header_as_python_does():
    header = json.dumps(FULL, separators=(",", ":")).encode()
    for end in range(len(header)):
        numpy, kernel = by_both(lambda end=end: outcome(raw_frame(header[:end])))
        assert kernel == numpy


@pytest.mark.parametrize(
    "rest",
    [
        b',"other":1' * 200_001,
        b',"extFields":{"ids":"' + b"," * 200_001 + b'"}',
    ],
)
def test_a_header_of_too_many_values_is_refused(rest):
    for found in by_both(lambda: outcome(raw_frame(b'{"code":1,"opaque":2' + rest + b"}"))):
        assert "a header of more than 200000 values" in found


def test_the_kernel_decodes_recorded_frames_itself():
    decoded = 0
    for frame in [each.frame for each in recorded_frames()]:
        numpy, kernel = by_both(lambda frame=frame: outcome(frame))
        assert kernel == numpy
        size = int.from_bytes(frame[5:8], "big")
        decoded += KERNEL.json_header(frame, 8, 8 + size) is not None
    assert decoded > 0


def test_the_kernel_refuses_a_header_outside_the_data():
    for begin, end in ((-1, 1), (2, 1), (0, 3)):
        with pytest.raises(ValueError, match="inside the data"):
            KERNEL.json_header(b"{}", begin, end)
    for wrong in ((), (b"{}", 0)):
        with pytest.raises(TypeError, match="expected 3"):
            KERNEL.json_header(*wrong)
    with pytest.raises(TypeError, match="expected 8"):
        KERNEL.json_frame(1)
