# SPDX-License-Identifier: Apache-2.0
"""Handle rows that cannot be messages: fail on the first one, or drop and count them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from rmqsource.sink.errors import SinkRowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from store_core.arrow_types import RecordBatch, Scalar

    Bools = npt.NDArray[np.bool_]

_MAX_VALUE_CHARACTERS = 120
_DROP = "drop"


class Check(NamedTuple):
    """Rows that one rule refuses.

    Attributes
    ----------
    reason
        Returns what is wrong with a row, and the limit.
    """

    column: str
    bad: Bools
    reason: Callable[[int], str]


class BadRows:
    """Refuses or drops bad rows, and counts the dropped ones by column."""

    def __init__(self, mode: str) -> None:
        self._drop = mode == _DROP
        self.dropped: dict[str, int] = {}

    def good_rows(self, checks: Iterable[Check], rows: RecordBatch) -> Bools | None:
        """Return which rows stay; None if all do.

        Raises
        ------
        SinkRowError
            There is a bad row and ``badRows`` is ``fail``.
        """
        good: Bools | None = None
        for check in checks:
            if not check.bad.any():
                continue
            if not self._drop:
                row = int(np.argmax(check.bad))
                raise SinkRowError(check.column, check.reason(row), row_text(rows, row))
            good = np.ones(len(check.bad), bool) if good is None else good
            newly = int((good & check.bad).sum())
            self.dropped[check.column] = self.dropped.get(check.column, 0) + newly
            good &= ~check.bad
        return good


def row_text(rows: RecordBatch, row: int) -> str:
    """Return the values of a row as short text."""
    values = (f"{name}={_short(rows.column(at)[row])}" for at, name in enumerate(rows.schema.names))
    return ", ".join(values)


def _short(scalar: Scalar) -> str:
    value = scalar.as_py()
    if isinstance(value, (bytes, str)):
        shown, size = value[:_MAX_VALUE_CHARACTERS], len(value)
        return repr(shown) + (f"… ({size} in all)" if size > len(shown) else "")
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[:_MAX_VALUE_CHARACTERS] + "…"
