# SPDX-License-Identifier: Apache-2.0
"""The tables as Spark schemas, and the columns that a user's schema selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rmqsource.errors import SourceSchemaError
from rmqsource.options.option_values import did_you_mean
from rmqsource.tables import CORRUPT_RECORD, TABLES, table_named

if TYPE_CHECKING:
    from rmqsource.tables import Column

__all__ = ["TABLES", "Projection", "resolve_projection", "table_schema"]

# Spark's own DDL parser runs in the JVM, which planning workers do not have.
_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
}
_PERMISSIVE = "PERMISSIVE"


@dataclass(frozen=True)
class Projection:
    """The columns to decode, and the schema that the rows must have.

    Both have the same order; ``spark_schema`` has the user's spelling and nullability.
    """

    columns: tuple[str, ...]
    spark_schema: StructType


def table_schema(table: str, mode: str) -> StructType:
    """Return the schema of a table if the user gives none.

    ``mode=PERMISSIVE`` adds ``_corrupt_record`` to the tables whose rows come from messages; every
    column is then nullable, because the row of a gap has null in all other columns.
    """
    declared = table_named(table)
    damage_rows = declared.shows_damage and mode == _PERMISSIVE
    columns = declared.columns + ((CORRUPT_RECORD,) if damage_rows else ())
    return StructType(
        [StructField(c.name, _TYPES[c.type], c.nullable or damage_rows) for c in columns]
    )


def resolve_projection(table: str, mode: str, user_schema: StructType) -> Projection:
    """Return the projection for a user's schema, whose columns may have any order and letter case.

    Raises
    ------
    SourceSchemaError
        The schema has no column, an unknown or repeated one, a wrong type, or NOT NULL where null
        is possible.
    """
    known = _known_columns(table, mode)
    fields = user_schema.fields
    if not fields:
        raise SourceSchemaError(table, f"names no column; {_listing(known)}")
    lowered = [field.name.lower() for field in fields]
    damage_rows = CORRUPT_RECORD.name in lowered
    columns = []
    for field, name in zip(fields, lowered):
        column = known.get(name)
        if column is None:
            raise SourceSchemaError(table, _unknown(field.name, known, mode))
        if lowered.count(name) > 1:
            raise SourceSchemaError(table, f"column {field.name!r} appears twice")
        _check_type(table, column, field)
        if not field.nullable and (column.nullable or damage_rows):
            reason = "rows of _corrupt_record have" if damage_rows else "it can be"
            raise SourceSchemaError(
                table, f"column {field.name!r} cannot be NOT NULL: {reason} null; drop NOT NULL"
            )
        columns.append(column.name)
    return Projection(tuple(columns), user_schema)


def _known_columns(table: str, mode: str) -> dict[str, Column]:
    declared = table_named(table)
    damage = (CORRUPT_RECORD,) if declared.shows_damage and mode == _PERMISSIVE else ()
    return {column.name: column for column in declared.columns + declared.on_demand + damage}


def _check_type(table: str, column: Column, field: StructField) -> None:
    expected, found = _TYPES[column.type], field.dataType
    if found == expected:
        return
    given = found.simpleString()
    if given == expected.simpleString():
        given += " with NOT NULL elements"
    raise SourceSchemaError(table, f"column {field.name!r} is of type {column.type}; found {given}")


def _unknown(name: str, known: dict[str, Column], mode: str) -> str:
    if name.lower() == CORRUPT_RECORD.name:
        return (
            f"column {name!r} exists only in tables of messages with mode=PERMISSIVE; mode is "
            f"{mode}"
        )
    return f"there is no column {name!r}{did_you_mean(name, known)}; {_listing(known)}"


def _listing(known: dict[str, Column]) -> str:
    return "columns are " + ", ".join(f"{c.name} {c.type}" for c in known.values())
