"""Headers in RocketMQ's own binary form: fixed numbers, the remark, then names and values.

Source: RocketMQ ``RocketMQSerializable`` (release 5.3.3).
"""

from __future__ import annotations

import struct
from typing import Any

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import LanguageCode, SerializeType
from rmqnet.remoting.remoting_command import RemotingCommand

_FIXED = struct.Struct(">hBhii")  # code, language, version, opaque, flag
_LENGTH = struct.Struct(">i")
_NAME_LENGTH = struct.Struct(">h")
_MAX_FIELDS = 10_000  # real headers have tens; each costs twenty times its bytes
_LANGUAGES: dict[int, LanguageCode] = {code.value: code for code in LanguageCode}


def encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """Return the header.

    Raises
    ------
    RemotingFormatError
        A number or a name does not fit in this form; codes above 32767 do not.
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
            f"code {command.code} or version {command.version} does not fit in a binary header; "
            "JSON headers take it"
        ) from err
    return b"".join(
        (fixed, _prefixed(command.remark or "", _LENGTH), _LENGTH.pack(len(fields)), fields)
    )


def decode_rocketmq_header(header: Any) -> RemotingCommand:
    """Return the command, without a body, of a header's bytes (of any buffer).

    Raises
    ------
    RemotingFormatError
        The header ends early, a length is negative or beyond the end, or a text is not UTF-8; the
        message says where in the header.
    """
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, at = _text(header, _FIXED.size, _LENGTH)
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
        _LANGUAGES.get(language, LanguageCode.OTHER),
        version,
        SerializeType.ROCKETMQ,
    )


def _prefixed(text: str, prefix: struct.Struct) -> bytes:
    data = text.encode(errors="replace")  # as Java does with half a surrogate pair
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
        name, at = _text(header, at, _NAME_LENGTH)
        # RocketMQ reads null where an empty value was sent.
        fields[name], at = _text(header, at, _LENGTH)
    raise RemotingFormatError(f"a header of more than {_MAX_FIELDS} fields")


def _text(header: Any, at: int, prefix: struct.Struct) -> tuple[str, int]:
    (length,) = prefix.unpack_from(header, at)
    begin = at + prefix.size
    end = begin + length
    if length < 0 or end > len(header):
        raise RemotingFormatError(f"a text of {length} bytes at byte {at} of the header")
    try:
        return str(header[begin:end], "utf-8"), end
    except UnicodeDecodeError as err:
        raise RemotingFormatError(f"the text at byte {at} of the header is not UTF-8") from err
