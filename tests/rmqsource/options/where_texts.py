# SPDX-License-Identifier: Apache-2.0
"""Random conditions for option ``where`` as SQL text, and their truth for a row."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from datetime import MAXYEAR, datetime, timedelta, timezone
from typing import Any, NamedTuple

from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TEXT_COLUMNS = ("topic", "unique_key", "message_id", "tags")
NUMBER_COLUMNS = ("queue_id", "queue_offset", "commit_log_offset")
TIME_COLUMN = "store_timestamp"
COLUMNS = (*TEXT_COLUMNS, *NUMBER_COLUMNS, TIME_COLUMN)
OPERATORS = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FAR_NUMBERS = (-(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 2**63, 10**37, -(10**37))
_FAR_TIMES = (
    "0001-01-01T00:00:00Z",
    "0001-01-01 00:00:00.000001Z",
    "9999-12-31T23:59:59.999Z",
    "9999-12-31 23:59:59.999999Z",
    "9999-12-31T23:59:59.999999-12:00",
    "1969-12-31T23:59:59.999999Z",
)
_OTHER_TEXTS = ("", "'", "it's", "''a''", "nope", "ORDERS", " ", "é", 'a"b', "%", "--", "a AND b")


class Asked(NamedTuple):
    """One comparison: values are texts, integers, or microseconds since the epoch."""

    column: str
    operator: str
    values: tuple[Any, ...]
    text: str

    def keeps(self, row: dict[str, Any]) -> bool:
        found = row[self.column]
        if found is None:
            return False
        if isinstance(found, datetime):
            found = (found - EPOCH) // timedelta(microseconds=1)
        if self.operator == "IN":
            return found in self.values
        return bool(OPERATORS[self.operator](found, self.values[0]))


def where_text(asked: Sequence[Asked]) -> str:
    return " AND ".join(comparison.text for comparison in asked)


@st.composite
def conditions(draw: st.DrawFn, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """Return one to four comparisons with values of one row, most of which the row passes."""
    row = draw(st.sampled_from(rows))
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4))
    return [_comparison(draw, rows, row, column) for column in chosen]


def _comparison(draw: Any, rows: Any, row: dict[str, Any], column: str) -> Asked:
    signs = ["=", "IN"] if column not in (*NUMBER_COLUMNS, TIME_COLUMN) else [*OPERATORS, "IN"]
    sign = draw(st.sampled_from(signs))
    name = draw(st.sampled_from([column, column.upper(), f"`{column.title()}`"]))
    if sign == "IN":
        others = [draw(st.sampled_from(rows)) for _ in range(draw(st.integers(0, 3)))]
        values = [_value(draw, one, column) for one in [row, *others]]
        if draw(st.booleans()):
            values.append(values[0])
        shown = ", ".join(text for _, text in values)
        return Asked(column, sign, tuple(value for value, _ in values), f"{name} in ({shown})")
    value, text = _value(draw, row, column)
    space = draw(st.sampled_from(["", " "]))
    return Asked(column, sign, (value,), f"{name}{space}{sign}{space}{text}")


def _value(draw: Any, row: dict[str, Any], column: str) -> tuple[Any, str]:
    """Return a value equal or close to that of a row, or far from all, and its text."""
    far = draw(st.integers(0, 5)) == 0
    if column == TIME_COLUMN:
        near = row[column]
        return _time(draw, near if near is not None and not far and near.year < MAXYEAR else None)
    if column in NUMBER_COLUMNS:
        near = draw(st.sampled_from((0, 0, 0, 1, -1)))
        number = draw(st.sampled_from(_FAR_NUMBERS)) if far else row[column] + near
        return number, str(number)
    text = draw(st.sampled_from(_OTHER_TEXTS)) if far or row[column] is None else row[column]
    return text, "'" + text.replace("'", "''") + "'"


def _time(draw: Any, near: datetime | None) -> tuple[int, str]:
    if near is None:
        text = draw(st.sampled_from(_FAR_TIMES))
        moment = micros_of(text)
    else:
        moment = (near - EPOCH) // timedelta(microseconds=1)
        moment += draw(st.sampled_from((0, 0, 0, 1, -1, 500, 1000, -1000)))
        zone = timezone(timedelta(minutes=draw(st.sampled_from((0, 480, -300, 345)))))
        at = (EPOCH + timedelta(microseconds=moment)).astimezone(zone)
        text = at.isoformat(draw(st.sampled_from(" T")))
        text = text.replace("+00:00", "Z")
    return moment, draw(st.sampled_from(["", "TIMESTAMP ", "timestamp"])) + f"'{text}'"


def micros_of(text: str) -> int:
    """Return a time as microseconds, even if its offset takes it out of Python's years."""
    local, offset = (text[:-1], "+00:00") if text.endswith("Z") else (text[:-6], text[-6:])
    form = "%Y-%m-%dT%H:%M:%S.%f" if "." in local else "%Y-%m-%dT%H:%M:%S"
    at = datetime.strptime(local.replace(" ", "T"), form).replace(tzinfo=timezone.utc)
    minutes = int(offset[1:3]) * 60 + int(offset[4:])
    sign = -1 if offset[0] == "-" else 1
    return (at - EPOCH) // timedelta(microseconds=1) - sign * minutes * 60_000_000
