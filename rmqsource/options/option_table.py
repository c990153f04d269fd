"""What options are: declared once each, at the field they fill, and parsed by one function."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar, cast

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_values import did_you_mean, parse_choice

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Given = dict[str, tuple["OptionInfo", str]]

Parse = Callable[[str, str], Any]
"""Returns the value of an option, given its name and text."""

_Kind = TypeVar("_Kind")
_INFO = "option"


class OptionInfo(NamedTuple):
    """An option as users know it: name, how its text is read, meaning, and default as a text."""

    name: str
    parse: Parse
    meaning: str
    default: str = ""
    field: str = ""
    """Of the dataclass of options; empty for those kept in ``store_config``."""


def option(name: str, parse: Parse, meaning: str, default: str = "") -> Any:
    """Return a field that is an option; its default is what the text means, None for no text."""
    value = parse(name, default) if default else None
    return field(default=value, metadata=declared(name, parse, meaning, default))


def choice(name: str, meaning: str, *choices: Any) -> Any:
    """Return a field that is one of some words or numbers, the first of them if not given.

    ``{}`` in the meaning stands for all of them.
    """
    by_text = {str(each): each for each in choices}

    def parse(option: str, text: str) -> Any:
        return by_text[parse_choice(option, text, tuple(by_text))]

    return option(name, parse, meaning.replace("{}", ", ".join(by_text)), next(iter(by_text)))


def declared(name: str, parse: Parse, meaning: str, default: str = "") -> dict[str, OptionInfo]:
    """Return the metadata of a field that is an option, for defaults that no text means."""
    return {_INFO: OptionInfo(name, parse, meaning, default)}


def options_of(kind: type[Any]) -> tuple[OptionInfo, ...]:
    """Return the options that are fields of a dataclass, in its order."""
    found = ((each.name, each.metadata.get(_INFO)) for each in fields(kind))
    return tuple(info._replace(field=name) for name, info in found if info is not None)


_OF_A_CATALOG = frozenset({"comment", "external", "location", "owner", "provider"})
"""What ``CREATE TABLE … USING`` hands over instead of the options."""


def given_options(
    options: Mapping[str, str], table: Sequence[OptionInfo], where: str = ""
) -> Given:
    """Return the given options by documented name, with what is known of each.

    Parameters
    ----------
    options
        As Spark hands them over, names in any case; None means absent.

    Raises
    ------
    SourceOptionError
        An option is unknown, or given twice.
    """
    by_lower_name = {info.name.lower(): info for info in table}
    given: Given = {}
    for name, text in options.items():
        info = by_lower_name.get(name.lower())
        if info is None and name.lower() in _OF_A_CATALOG:
            raise SourceOptionError(
                name,
                "is what Spark's catalog notes of a table, which loses the options of a source "
                "in Python; use CREATE TEMPORARY VIEW … USING `rocketmq-store` OPTIONS (…)",
            )
        if info is None:
            names = [info.name for info in table]
            hint = did_you_mean(name, names) or f"; options are {', '.join(names)}"
            raise SourceOptionError(name, f"is unknown{where}{hint}")
        if info.name in given:
            raise SourceOptionError(info.name, "is given twice, in different case of letters")
        if text is not None:
            given[info.name] = (info, str(text))
    return given


def option_values(given: Given) -> dict[str, Any]:
    """Return the values of given options by field."""
    parsed = [(info, info.parse(name, text)) for name, (info, text) in given.items()]
    store_config = sorted((info.name, value) for info, value in parsed if not info.field)
    values = {info.field: value for info, value in parsed if info.field}
    return {**values, "store_config": tuple(store_config)}


def filled(kind: Callable[..., _Kind], values: Mapping[str, Any], **more: Any) -> _Kind:
    """Return a dataclass with those of the values that are its fields."""
    names = {each.name for each in fields(cast("Any", kind))}
    return kind(**{name: value for name, value in values.items() if name in names}, **more)


def check_together(given: Collection[str], one: str, other: str) -> None:
    """Raise where only one of two options is given."""
    for name, missing in ((one, other), (other, one)):
        if name in given and missing not in given:
            raise SourceOptionError(name, f"needs {missing!r} beside it; give both or neither")
