"""What our two evaluators say, in the Java program's letters: T, F, N (NULL), E (exception)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from store_core import FilterEvaluationError, FilterSyntaxError, IgnoredInputWarning, SqlFilter

_LETTERS = {True: "T", False: "F", None: "N"}


def parsed(expression: str, dialect: int = 5) -> SqlFilter | None:
    """Return the filter; None where it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredInputWarning)
        try:
            return SqlFilter(expression, dialect)
        except FilterSyntaxError:
            return None


def scalar_answers(sql_filter: SqlFilter, maps: Sequence[Mapping[str, str]]) -> str:
    answers = ""
    for properties in maps:
        try:
            answer = _LETTERS[sql_filter.evaluate(properties)]
        except FilterEvaluationError:
            answer = "E"
        assert sql_filter.matches(properties) is (answer == "T")
        answers += answer
    return answers


def column_answers(sql_filter: SqlFilter, maps: Sequence[Mapping[str, str]]) -> str:
    columns = {
        name: pa.array([properties.get(name) for properties in maps], pa.string())
        for name in sql_filter.property_names
    }
    truth = sql_filter.evaluate_columns(columns, len(maps))
    assert {(part.dtype, len(part)) for part in truth} == {(np.dtype(bool), len(maps))}
    assert np.sum(truth, axis=0).max(initial=0) <= 1  # at most one of TRUE, FALSE and failed
    assert (sql_filter.matches_columns(columns, len(maps)) == truth.true).all()
    letters = np.full(len(maps), "N")
    for letter, rows in zip("TFE", truth):
        letters[rows] = letter
    return "".join(letters)
