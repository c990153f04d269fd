# SPDX-License-Identifier: Apache-2.0
"""The columns of a DataFrame that the sinks accept, and their types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqsource.options.option_values import did_you_mean
from rmqsource.sink.errors import SinkSchemaError
from rmqsource.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXTS = ("string",)
_INTEGERS = ("int", "bigint", "smallint", "tinyint")

SINK_COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": _TEXTS,
    "body": ("binary", "string"),
    "queue_id": _INTEGERS,
    "keys": ("array<string>", "string"),
    "tags": _TEXTS,
    "properties": ("map<string,string>",),
    "properties_raw": ("binary",),
    "unique_key": _TEXTS,
    "sharding_key": _TEXTS,
    "flag": _INTEGERS,
    "born_timestamp": ("timestamp",),
    "born_host": _TEXTS,
    "reconsume_times": _INTEGERS,
    "sys_flag": _INTEGERS,
    "delay_level": _INTEGERS,
}
"""Column -> accepted types, as Spark spells them."""

BODY_CRC = "body_crc"
"""Column that distinguishes a stored body from a decoded one; not used otherwise."""
_MESSAGE_COLUMNS = frozenset(column.name for column in TABLES["messages"].columns)
IGNORED_COLUMNS = _MESSAGE_COLUMNS - set(SINK_COLUMNS)
"""Columns of table ``messages`` that only the store can know."""
_ABSENT_TYPE = "void"  # type of a column that is null in every row
_STRING_LIKE = re.compile(r"string collate .*|varchar\([0-9]+\)|char\([0-9]+\)", re.IGNORECASE)


@dataclass(frozen=True)
class SinkColumns:
    """Positions of the columns in the batches, by canonical name; other columns are ignored."""

    index: dict[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.index


def resolve_sink_columns(
    fields: Iterable[tuple[str, str]], *, default_topic: str | None = None
) -> SinkColumns:
    """Return the positions of the sink's columns.

    Raises
    ------
    SinkSchemaError
        A column is unknown, duplicated, of a wrong type, or missing.
    """
    index: dict[str, int] = {}
    seen: set[str] = set()
    for at, (given, kind) in enumerate(fields):
        name = given.lower()
        if name in seen:
            raise SinkSchemaError(f"column {given!r} appears twice; drop one")
        seen.add(name)
        if name in SINK_COLUMNS:
            _check_type(given, SINK_COLUMNS[name], kind)
            if kind != _ABSENT_TYPE:
                index[name] = at
        elif name not in IGNORED_COLUMNS:
            raise SinkSchemaError(_unknown(given))
        elif name == BODY_CRC and kind == "int":
            index[name] = at
    _check_needed(index, default_topic)
    return SinkColumns(index)


def _check_type(name: str, accepted: tuple[str, ...], kind: str) -> None:
    plain = "string" if _STRING_LIKE.fullmatch(kind) else kind
    if plain not in (*accepted, _ABSENT_TYPE):
        raise SinkSchemaError(
            f"column {name!r} has type {kind}; it must be {' or '.join(accepted)}. Cast it"
        )


def _check_needed(index: dict[str, int], default_topic: str | None) -> None:
    if "body" not in index:
        raise SinkSchemaError("there is no column 'body' (binary or string); add one")
    if "topic" not in index and default_topic is None:
        raise SinkSchemaError(
            "there is no column 'topic'; add one, or set option 'topic' for all rows"
        )


def _unknown(name: str) -> str:
    hint = did_you_mean(name, [*SINK_COLUMNS, *IGNORED_COLUMNS])
    return (
        f"the sink has no column {name!r}{hint}; columns are {', '.join(SINK_COLUMNS)} (and "
        f"ignored: {', '.join(sorted(IGNORED_COLUMNS))}). Drop or rename it"
    )
