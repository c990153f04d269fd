# SPDX-License-Identifier: Apache-2.0
"""Conversion between the typed fields of a header and their texts on the wire.

A header is a dataclass with fields of type ``str``, ``int`` (32 bits, as in Java), ``Long`` (64
bits) or ``bool``. A field without a default is required; an absent optional field is None. Its
name on the wire is the field's name in camel case, unless `wire_name` gives another. Every number
of a request is checked here, before the request is processed.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Callable, ClassVar, NamedTuple, TypeVar

from rmqnet.errors import RemotingFormatError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        """Do nothing; the real one describes `Header` to type checkers."""
        return lambda cls: cls


__all__ = [
    "Header",
    "Long",
    "RequestHeader",
    "decode_header",
    "encode_header",
    "one_of",
    "short_name",
    "wire_name",
]

_WIRE_NAME = "wire_name"
_SHORT_NAME = "short_name"
_ONE_OF = "one_of"
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_SAFE_INT_DIGITS, _SAFE_LONG_DIGITS = 10, 19  # fewer always fit in 32 and 64 bits

Long = int
"""Annotates a field of 64 bits; one of 32 is an ``int``."""

H = TypeVar("H", bound="Header")


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field,))
class Header:
    """Fields of a request or an answer; each subclass is a dataclass."""

    HAS_SHORT_NAMES: ClassVar[bool] = False
    """Whether names on the wire are the one-letter names of RocketMQ's V2 headers."""

    __hash__ = None  # type: ignore[assignment]  # fields can be assigned

    def __init_subclass__(cls) -> None:
        # Common methods are defined here: a dataclass compiles its own when it is declared, and
        # 70 of them would take a tenth of the time that a broker needs to start.
        dataclasses.dataclass(repr=False, eq=False)(cls)

    def __eq__(self, other: object) -> bool:
        return self.__class__ is other.__class__ and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{self.__class__.__name__}({values})"


class RequestHeader(Header):
    """Fields of a request; each class names its code."""

    REQUEST_CODE: ClassVar[int]

    def __init_subclass__(cls, *, code: int) -> None:
        super().__init_subclass__()
        cls.REQUEST_CODE = code


class _Field(NamedTuple):
    name: str
    wire_name: str
    parse: Callable[[str, str], Any]
    is_required: bool
    texts: tuple[str, ...]


def wire_name(name: str) -> dict[str, str]:
    """Return metadata of a field whose name on the wire is not its name in camel case."""
    return {_WIRE_NAME: name}


def short_name(name: str) -> dict[str, str]:
    """Return metadata with a field's name on the wire in V2 headers."""
    return {_SHORT_NAME: name}


def one_of(*texts: str) -> dict[str, tuple[str, ...]]:
    """Return metadata with the only texts that a field may have on the wire."""
    return {_ONE_OF: texts}


def encode_header(header: Header) -> dict[str, str]:
    """Return the fields as texts for the wire, without those that are None."""
    texts: dict[str, str] = {}
    for name, wire in _names(type(header)):
        value = getattr(header, name)
        if value.__class__ is str:
            texts[wire] = value
        elif value is True:
            texts[wire] = "true"
        elif value is False:
            texts[wire] = "false"
        elif value is not None:
            texts[wire] = str(value)
    return texts


def decode_header(cls: type[H], ext_fields: dict[str, str]) -> H:
    """Return the typed fields; fields that the class does not name are ignored.

    Raises
    ------
    RemotingFormatError
        A required field is missing, or a value is not a number, out of range or not one of the
        allowed texts; the message names the field.
    """
    values = {}
    for name, wire, parse, is_required, texts in _fields(cls):
        text = ext_fields.get(wire)
        if text is not None:
            if texts and text not in texts:
                wanted = ", ".join(texts)
                raise RemotingFormatError(f"the field {wire} must be one of {wanted}: {text!r:.80}")
            values[name] = parse(text, wire)
        elif is_required:
            raise RemotingFormatError(f"{cls.__name__}: the field {wire} is missing")
    return cls(**values)


_FIELDS: dict[type, tuple[_Field, ...]] = {}
_NAMES: dict[type, tuple[tuple[str, str], ...]] = {}


def _fields(cls: type[Header]) -> tuple[_Field, ...]:
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = tuple(_declared(cls))
    return found


def _names(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    found = _NAMES.get(cls)
    if found is None:
        found = _NAMES[cls] = tuple((field.name, field.wire_name) for field in _fields(cls))
    return found


def _declared(cls: type[Header]) -> list[_Field]:
    return [
        _Field(
            field.name,
            _wire_name_of(cls, field),
            _PARSERS[field.type.removesuffix(" | None")],
            field.default is dataclasses.MISSING,
            field.metadata.get(_ONE_OF, ()),
        )
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]  # each is a dataclass
    ]


def _wire_name_of(cls: type[Header], field: dataclasses.Field[Any]) -> str:
    if cls.HAS_SHORT_NAMES:
        return str(field.metadata[_SHORT_NAME])
    named = field.metadata.get(_WIRE_NAME)
    if named is not None:
        return str(named)
    first, *others = field.name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _text(text: str, _: str) -> str:
    return text


def _int(text: str, wire: str) -> int:
    if len(text) < _SAFE_INT_DIGITS and text.isdecimal() and text.isascii():
        return int(text)  # nearly all numbers, in a third of the time of `_number`
    return _number(text, wire, 32)


def _long(text: str, wire: str) -> int:
    if len(text) < _SAFE_LONG_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    return _number(text, wire, 64)


def _number(text: str, wire: str, bits: int) -> int:
    if _WHOLE_NUMBER.fullmatch(text) is not None:
        number, limit = int(text), 1 << (bits - 1)
        if -limit <= number < limit:
            return number
    raise RemotingFormatError(
        f"the field {wire} must be a whole number of {bits} bits, not {text!r:.80}"
    )


def _truth(text: str, _: str) -> bool:
    return text.lower() == "true"  # anything else is false, as in Java


# By the text of the annotation, which is never evaluated: Python 3.9 could not.
_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "str": _text,
    "int": _int,
    "Long": _long,
    "bool": _truth,
}
