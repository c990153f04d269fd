# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's SQL92 filter over the properties of messages."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from store_core.errors import FilterEvaluationError, IgnoredInputWarning, StoreConfigError
from store_core.filter import sql_steps as steps
from store_core.filter.sql_parser import ParsedSql, parse_sql
from store_core.filter.sql_scalar import ThrowingValue, evaluate
from store_core.filter.sql_tokens import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.filter.sql_columns import TruthColumn

_SHOWN_CHARACTERS = 60


class SqlFilter:
    """Selects messages whose properties make an expression true, as a RocketMQ broker decides.

    Properties are texts; a property that a message does not have is NULL. Filters can be pickled;
    filters of equal text and dialect are equal.

    Parameters
    ----------
    expression
        Such as ``amount > 5 AND region IN ('eu', 'us')``.
    dialect
        5 for that of release 5.3.3; 4 for that of release 4.9.7, where CONTAINS, STARTSWITH and
        ENDSWITH are not operators.

    Raises
    ------
    FilterSyntaxError
        RocketMQ refuses the text.
    StoreConfigError
        There is no such dialect.

    Warns
    -----
    IgnoredInputWarning
        RocketMQ reads only the beginning of the text, as in ``a LIKE 'x%'``.

    Attributes
    ----------
    expression : str
        As given.
    dialect : int
        As given.
    property_names : frozenset of str
        The properties that the result depends on.

    Notes
    -----
    Source: RocketMQ ``SelectorParser``, ``org.apache.rocketmq.filter.expression``,
    ``ExpressionMessageFilter.isMatchedByCommitLog`` (releases 5.3.3 and 4.9.7).
    """

    def __init__(self, expression: str, dialect: int = 5) -> None:
        parsed = self._set(expression, dialect)
        if parsed.ignored is not None:
            warnings.warn(_ignored_text(expression, parsed), IgnoredInputWarning, stacklevel=2)

    @classmethod
    def without_warning(cls, expression: str, dialect: int = 5) -> SqlFilter:
        """Return a filter given elsewhere, as by a broker's consumer, so that no one can fix it."""
        sql_filter = object.__new__(cls)
        sql_filter._set(expression, dialect)
        return sql_filter

    def _set(self, expression: str, dialect: int) -> ParsedSql:
        if dialect not in DIALECTS:
            raise StoreConfigError(f"unknown SQL dialect {dialect!r}; expected 4 or 5")
        parsed = parse_sql(expression, dialect)
        self.expression, self.dialect = expression, dialect
        self._program = parsed.program
        loads = (step.argument for step in parsed.program if step.operation == steps.LOAD)
        self.property_names = frozenset(map(str, loads))
        return parsed

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the result of RocketMQ's evaluation: True, False, or None for NULL.

        Raises
        ------
        FilterEvaluationError
            RocketMQ throws an exception, as for ``a > 5`` if ``a`` is not a whole number.
        """
        result = evaluate(self._program, properties)
        if isinstance(result, ThrowingValue):
            raise FilterEvaluationError(self._failed_text(result, properties))
        return result

    def _failed_text(self, failure: ThrowingValue, properties: Mapping[str, str]) -> str:
        found = (name for name in self.property_names if properties.get(name) == failure.text)
        names = " or ".join(sorted(found))
        of_whom = f" of property {names}" if names else ""
        filter_text, value = _shortened(self.expression), _shortened(failure.text)
        return f"SQL filter {filter_text}: the value {value!r}{of_whom} {failure.reason}"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a broker delivers the message: only for TRUE, not for NULL or an error."""
        return evaluate(self._program, properties) is True

    def evaluate_columns(self, columns: Mapping[str, Array], rows: int) -> TruthColumn:
        """Return the results of `evaluate` for many messages, and where it would raise.

        Parameters
        ----------
        columns
            Name -> ``pa.StringArray`` of its values, null if a message has no such property, for
            all of `property_names`. `MessageColumns.property_values` returns such arrays.
        rows
            Length of all arrays.
        """
        # Only callers with columns need Arrow.
        from store_core.filter.sql_columns import evaluate_columns  # noqa: PLC0415

        return evaluate_columns(self._program, columns, rows)

    def matches_columns(self, columns: Mapping[str, Array], rows: int) -> npt.NDArray[np.bool_]:
        """Return `matches` for many messages; parameters as in `evaluate_columns`."""
        return self.evaluate_columns(columns, rows).true

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SqlFilter):
            return NotImplemented
        return (self.expression, self.dialect) == (other.expression, other.dialect)

    def __hash__(self) -> int:
        return hash((self.expression, self.dialect))

    def __repr__(self) -> str:
        dialect = "" if self.dialect == DIALECTS[-1] else f", dialect={self.dialect}"
        return f"SqlFilter({self.expression!r}{dialect})"

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return _without_warning, (self.expression, self.dialect)


def _without_warning(expression: str, dialect: int) -> SqlFilter:
    """Return an unpickled filter without repeating the warning given when it was created."""
    sql_filter = SqlFilter.__new__(SqlFilter)
    sql_filter._set(expression, dialect)
    return sql_filter


def _ignored_text(expression: str, parsed: ParsedSql) -> str:
    ignored = parsed.ignored
    start = len(expression) if ignored is None else ignored.start
    rest, read = _shortened(expression[start:]), _shortened(expression[: parsed.stop].strip())
    text = (
        f"RocketMQ ignores {rest!r} (from column {start + 1} on) and reads the SQL filter as "
        f"{read!r}"
    )
    if [step.operation for step in parsed.program] == [steps.LOAD, steps.CAST]:
        text += ", a lone property, which matches no message"
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
