# SPDX-License-Identifier: Apache-2.0
"""Encoding of commands as frames, and decoding of a connection's bytes.

A frame has 4 bytes for the length of the rest, 1 byte for the form of the header, 3 bytes for its
length, the header, and the body. Numbers are big-endian.

Source: RocketMQ ``RemotingCommand``, ``RocketMQSerializable``, ``NettyDecoder`` (release 5.3.3).
"""

from __future__ import annotations

import json
import struct
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import LanguageCode, SerializeType
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core import native
from store_core.config.lenient_json import parse_lenient_json

MAX_FRAME_BYTES = 1 << 24
"""RocketMQ's own limit on a whole frame (``com.rocketmq.remoting.frameMaxLength``)."""
_LENGTH = struct.Struct(">i")
_PREFIX = struct.Struct(">iI")  # length of the rest; form and length of the header
_MAX_HEADER_BYTES = (1 << 24) - 1
_SMALL_PIECE_BYTES = 4096
_FIELD_BYTES = 200  # memory per header field, without its texts
# A value of 3 bytes becomes an object of 60 or more. Real headers have tens of values; the commas
# in the ids of a batch, which are one text, count as well.
_MAX_JSON_VALUES = 200_000
_INT_BEGIN, _INT_END = -(1 << 31), 1 << 31
_JSON = json.JSONDecoder()
_LANGUAGES: dict[str, LanguageCode] = {code.name: code for code in LanguageCode}
_FIXED = struct.Struct(">hBhii")  # code, language, version, opaque, flag
_NAME_LENGTH = struct.Struct(">h")
_MAX_FIELDS = 10_000  # real headers have tens; each takes twenty times its bytes
_LANGUAGE_NAMES: dict[int, LanguageCode] = {code.value: code for code in LanguageCode}


def encode_frame(command: RemotingCommand, max_frame_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """Return the frame of a command.

    Raises
    ------
    RemotingFormatError
        The frame would be longer than the limit, or the header does not fit in its form.
    """
    if command.serialize_type is SerializeType.JSON:
        frame = _native_frame(command)
        if frame is not None and len(frame) <= max_frame_bytes:
            return frame
        header = _encode_json_header(command)
    else:
        header = encode_rocketmq_header(command)
    length = 4 + len(header) + len(command.body)
    if len(header) > _MAX_HEADER_BYTES or length + 4 > max_frame_bytes:
        raise RemotingFormatError(
            f"{command!r} would be a frame of {length + 4} bytes; at most {max_frame_bytes} are "
            "accepted"
        )
    prefix = _PREFIX.pack(length, command.serialize_type << 24 | len(header))
    return b"".join((prefix, header, command.body))


class FrameDecoder:
    """Decodes commands from the bytes of one connection, however these are split."""

    def __init__(self, peer: str, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.peer = peer
        self._max_frame_bytes = max_frame_bytes
        self._at = 0  # start of the frame being read, in all bytes of the connection
        self._head = bytearray()  # of a frame with an incomplete header
        self._head_end = 0  # length of prefix and header, as far as known
        self._command: RemotingCommand | None = None  # with an incomplete body
        self._missing = 0  # bytes of that body still to come
        self._present = 0  # bytes of it received
        self._header_cost = 0  # memory that its header takes, bytes
        self._pieces: list[bytearray | memoryview] = []

    @property
    def held_bytes(self) -> int:
        """Approximate memory that the incomplete frame takes, in bytes."""
        return len(self._head) + self._present + self._header_cost

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Return the commands that these bytes complete, in order.

        Each byte is copied a fixed number of times, however small the pieces that arrive.

        Raises
        ------
        RemotingFormatError
            The bytes are not frames, or one is too long; the message names the peer and the
            position. The connection is unusable from there.
        """
        commands: list[RemotingCommand] = []
        at = 0
        if self._command is not None:
            at = self._feed_body(self._command, data, commands)
        if self._head:
            self._head += memoryview(data)[at:]
            if len(self._head) < self._head_end and len(self._head) >= _PREFIX.size:
                return commands
            data, at = bytes(self._head), 0
            self._head.clear()
        try:
            self._read_frames(data, at, commands)
        except RemotingFormatError as err:
            raise RemotingFormatError(
                f"{self.peer} sent something that is not a frame, at byte {self._at} of the "
                f"connection: {err}"
            ) from err
        return commands

    def _read_frames(self, data: bytes, begin: int, commands: list[RemotingCommand]) -> None:
        end = len(data)
        head_end = _PREFIX.size
        while begin + _PREFIX.size <= end:
            length, mark = _PREFIX.unpack_from(data, begin)
            self._check_lengths(length, mark & _MAX_HEADER_BYTES)
            body_begin = begin + _PREFIX.size + (mark & _MAX_HEADER_BYTES)
            if body_begin > end:
                head_end = body_begin - begin
                break
            command = _decode_header(mark >> 24, data, begin + _PREFIX.size, body_begin)
            command.frame_bytes = 4 + length
            begin += 4 + length
            self._at += 4 + length
            if begin > end:
                header_bytes = mark & _MAX_HEADER_BYTES
                self._wait_for_body(command, data, body_begin, header_bytes, begin - end)
                return
            command.body = data[body_begin:begin]
            commands.append(command)
        self._head += memoryview(data)[begin:]
        self._head_end = head_end
        if _LENGTH.size <= len(self._head) < _PREFIX.size:  # check early: a peer may send no more
            (length,) = _LENGTH.unpack_from(self._head)
            self._check_lengths(length, 0)

    def _wait_for_body(
        self, command: RemotingCommand, data: bytes, begin: int, header_bytes: int, missing: int
    ) -> None:
        piece = memoryview(data)[begin:]
        # A view keeps all bytes of its buffer in memory.
        self._pieces = [bytearray(piece) if len(piece) < begin else piece]
        self._command, self._present, self._missing = command, len(piece), missing
        self._header_cost = header_bytes + _FIELD_BYTES * len(command.ext_fields)

    def _feed_body(
        self, command: RemotingCommand, data: bytes, commands: list[RemotingCommand]
    ) -> int:
        """Take the bytes of the body; return the position of the rest."""
        size = min(self._missing, len(data))
        piece = memoryview(data)[:size]
        last = self._pieces[-1]
        if size > _SMALL_PIECE_BYTES:
            self._pieces.append(piece)
        elif isinstance(last, bytearray):  # not an object per byte of a slow peer
            last += piece
        else:
            self._pieces.append(bytearray(piece))
        self._missing -= size
        self._present += size
        if self._missing == 0:
            self._present = self._header_cost = 0
            command.body = b"".join(self._pieces)
            commands.append(command)
            self._command, self._pieces = None, []
        return size

    def _check_lengths(self, length: int, header_bytes: int) -> None:
        if length + 4 > self._max_frame_bytes:
            raise RemotingFormatError(
                f"a frame of {length + 4} bytes; at most {self._max_frame_bytes} are accepted"
            )
        if header_bytes + 4 > length:
            raise RemotingFormatError(
                f"a header of {header_bytes} bytes in a frame of {length + 4} bytes"
            )


def _decode_header(form: int, data: bytes, begin: int, end: int) -> RemotingCommand:
    if form == SerializeType.JSON:
        return _natively_decoded(data, begin, end) or _decode_json_header(data[begin:end])
    if form == SerializeType.ROCKETMQ:
        return decode_rocketmq_header(data[begin:end])
    raise RemotingFormatError(f"a header of unknown format {form}")


def _native_frame(command: RemotingCommand) -> bytes | None:
    """Return the frame of a command with a JSON header; None if the kernel leaves it to Python."""
    kernel = native.kernel
    if kernel is None:
        return None
    frame: bytes | None = kernel.json_frame(
        command.code,
        command.ext_fields,
        command.flag,
        command.language.name,
        command.opaque,
        command.remark,
        command.version,
        command.body,
    )
    return frame


def _natively_decoded(data: bytes, begin: int, end: int) -> RemotingCommand | None:
    """Return the command of a JSON header; None if the kernel leaves it to Python."""
    kernel = native.kernel
    if kernel is None or end - begin > _MAX_JSON_VALUES:  # the kernel does not count the values
        return None
    found = kernel.json_header(data, begin, end)
    if found is None:
        return None
    code, fields, remark, opaque, flag, language, version = found
    language_code = _LANGUAGES.get(language, LanguageCode.OTHER)
    return RemotingCommand(code, fields, b"", remark, opaque, flag, language_code, version)


def _encode_json_header(command: RemotingCommand) -> bytes:
    # Written by hand, this takes a third of the time of json.dumps.
    fields = ",".join(
        [f"{_quoted(name)}:{_quoted(value)}" for name, value in command.ext_fields.items()]
    )
    remark = "" if command.remark is None else f'"remark":{_quoted(command.remark)},'
    return (
        f'{{"code":{int(command.code)},"extFields":{{{fields}}},"flag":{command.flag},'
        f'"language":"{command.language.name}","opaque":{command.opaque},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode()


def _decode_json_header(header: bytes) -> RemotingCommand:
    content = _parse(header)
    if not isinstance(content, dict):
        raise RemotingFormatError(f"a header that is not a JSON object: {content!r:.80}")
    fields, remark = content.get("extFields"), content.get("remark")
    code, opaque = content.get("code"), content.get("opaque")
    flag, version = content.get("flag", 0), content.get("version", 0)
    if not (
        code.__class__ is opaque.__class__ is flag.__class__ is version.__class__ is int
        and _INT_BEGIN <= code < _INT_END
        and _INT_BEGIN <= opaque < _INT_END
        and _INT_BEGIN <= flag < _INT_END
        and _INT_BEGIN <= version < _INT_END
        and (remark is None or remark.__class__ is str)
    ):
        raise _wrong(content)
    return RemotingCommand(
        code,
        {} if fields is None else _texts(fields),
        b"",
        remark,
        opaque,
        flag,
        _LANGUAGES.get(str(content.get("language")), LanguageCode.OTHER),
        version,
    )


def _parse(header: bytes) -> Any:
    if len(header) > _MAX_JSON_VALUES and _begins_of_values(header) > _MAX_JSON_VALUES:
        raise RemotingFormatError(f"a header of more than {_MAX_JSON_VALUES} values")
    try:
        text = str(header, "utf-8")
    except UnicodeDecodeError as err:
        raise RemotingFormatError(f"a JSON header that is not UTF-8: {err}") from err
    try:
        content, end = _JSON.raw_decode(text)
        if end == len(text):
            return content
    except (ValueError, RecursionError):
        pass  # it may be JSON as fastjson writes it
    try:
        return parse_lenient_json(text)
    except ValueError as err:
        raise RemotingFormatError(f"a header that is not JSON: {err}") from err


def _begins_of_values(header: bytes) -> int:
    return header.count(b",") + header.count(b"[") + header.count(b"{")


def _wrong(content: dict[str, Any]) -> RemotingFormatError:
    """Return the error for a header with an invalid fixed field."""
    for name in ("code", "opaque", "flag", "version"):
        value = content.get(name, 0 if name in {"flag", "version"} else None)
        if value.__class__ is not int or not _INT_BEGIN <= value < _INT_END:
            return RemotingFormatError(f"{name} must be a number of 32 bits, not {value!r:.80}")
    return RemotingFormatError(f"remark must be a text, not {content['remark']!r:.80}")


def _texts(fields: Any) -> dict[str, str]:
    if not isinstance(fields, dict):
        raise RemotingFormatError(f"extFields must be an object, not {fields!r:.80}")
    for name, value in fields.items():
        if value.__class__ is not str or name.__class__ is not str:
            return {
                str(name): _text(name, value) for name, value in fields.items() if value is not None
            }
    return fields


def _text(name: str, value: Any) -> str:
    """Return the text that RocketMQ reads for a JSON value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise RemotingFormatError(f"the field {name!r:.80} must be a text, not {value!r:.80}")


# Source: RocketMQ ``RocketMQSerializable`` (release 5.3.3).
def encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """Return the binary header of a command.

    Raises
    ------
    RemotingFormatError
        A number or a name does not fit this form, such as a code above 32767.
    """
    pieces = []
    for name, value in command.ext_fields.items():
        pieces.append(_prefixed(name, _NAME_LENGTH))
        pieces.append(_prefixed(value, _LENGTH))
    fields = b"".join(pieces)
    try:
        fixed = _FIXED.pack(
            command.code, command.language, command.version, command.opaque, command.flag
        )
    except struct.error as err:
        raise RemotingFormatError(
            f"code {command.code} or version {command.version} does not fit in a binary header; a "
            "JSON header can carry it"
        ) from err
    return b"".join(
        (fixed, _prefixed(command.remark or "", _LENGTH), _LENGTH.pack(len(fields)), fields)
    )


def decode_rocketmq_header(header: Any) -> RemotingCommand:
    """Return the command of a header, without a body; any buffer will do.

    Raises
    ------
    RemotingFormatError
        The header ends early, a length is negative or beyond the end, or a text is not UTF-8; the
        message names the position in the header.
    """
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, at = _short_text(header, _FIXED.size, _LENGTH)
        fields = _fields(header, at)
    except struct.error as err:
        raise RemotingFormatError(f"the header ends early, after {len(header)} bytes") from err
    return RemotingCommand(
        code,
        fields,
        b"",
        remark or None,
        opaque,
        flag,
        _LANGUAGE_NAMES.get(language, LanguageCode.OTHER),
        version,
        SerializeType.ROCKETMQ,
    )


def _prefixed(text: str, prefix: struct.Struct) -> bytes:
    data = text.encode(errors="replace")  # as Java does with an unpaired surrogate
    try:
        return prefix.pack(len(data)) + data
    except struct.error as err:
        raise RemotingFormatError(f"the field name {text!r:.80} is too long") from err


def _fields(header: Any, at: int) -> dict[str, str]:
    (length,) = _LENGTH.unpack_from(header, at)
    at += _LENGTH.size
    end = at + length
    if length < 0 or end > len(header):
        raise RemotingFormatError(f"fields of {length} bytes at byte {at} of the header")
    fields: dict[str, str] = {}
    for _ in range(_MAX_FIELDS + 1):
        if at >= end:
            return fields
        name, at = _short_text(header, at, _NAME_LENGTH)
        # RocketMQ reads an empty value as null.
        fields[name], at = _short_text(header, at, _LENGTH)
    raise RemotingFormatError(f"a header of more than {_MAX_FIELDS} fields")


def _short_text(header: Any, at: int, prefix: struct.Struct) -> tuple[str, int]:
    (length,) = prefix.unpack_from(header, at)
    begin = at + prefix.size
    end = begin + length
    if length < 0 or end > len(header):
        raise RemotingFormatError(f"a text of {length} bytes at byte {at} of the header")
    try:
        return str(header[begin:end], "utf-8"), end
    except UnicodeDecodeError as err:
        raise RemotingFormatError(f"the text at byte {at} of the header is not UTF-8") from err
