from __future__ import annotations

import pickle
import warnings

import pytest

import store_core
from store_core import FilterEvaluationError, FilterSyntaxError, IgnoredInputWarning, SqlFilter
from store_core.errors import StoreConfigError
from store_core.filter.sql_parser import MAX_NESTING
from tests.store_core.filter.sql_answers import scalar_answers
from tests.store_core.filter.sql_cases import EXAMPLES, IGNORED, REFUSED


@pytest.mark.parametrize(("expression", "properties", "result"), EXAMPLES)
def test_results_are_those_of_rocketmq(expression, properties, result):
    assert scalar_answers(SqlFilter(expression), [properties]) == result


@pytest.mark.parametrize(("expression", "position", "token"), REFUSED)
def test_what_rocketmq_refuses_is_an_error_with_its_place(expression, position, token):
    with pytest.raises(FilterSyntaxError) as caught:
        SqlFilter(expression)
    error = caught.value
    assert (error.position, error.token, error.expression) == (position, token, expression)
    assert f"column {position + 1}: " in str(error)
    assert isinstance(error, StoreConfigError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_place_in_a_text_of_lines_has_a_line():
    with pytest.raises(FilterSyntaxError, match=r"line 2, column 9: 'x' cannot .* expected: a num"):
        SqlFilter("a = 1\nAND b > 'x'")


@pytest.mark.parametrize(("expression", "read"), IGNORED)
def test_what_rocketmq_ignores_is_a_warning_given_once(expression, read):
    with pytest.warns(IgnoredInputWarning) as caught:
        sql_filter = SqlFilter(expression)
    assert f"reads the SQL filter as {read!r}" in str(caught[0].message)
    assert ("lone property" in str(caught[0].message)) is (read == "a")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(sql_filter)) == sql_filter
        assert SqlFilter.without_warning(expression) == sql_filter


def test_dialect_4_has_no_searches():
    with pytest.warns(IgnoredInputWarning, match="lone property"):
        SqlFilter("a CONTAINS 'x'", dialect=4)
    with pytest.raises(FilterSyntaxError, match=r"expected: BETWEEN, IN$"):
        SqlFilter("a NOT CONTAINS 'x'", dialect=4)
    assert SqlFilter("contains = 'x'", dialect=4).matches({"contains": "x"})
    with pytest.raises(FilterSyntaxError):
        SqlFilter("contains = 'x'")
    with pytest.raises(StoreConfigError, match="dialect 3"):
        SqlFilter("a", dialect=3)


def test_a_filter_is_a_value():
    one, other = SqlFilter("a = 1 AND b = 'x'"), SqlFilter("a = 1 AND b = 'x'", dialect=4)
    assert one == SqlFilter(one.expression) != other
    assert len({one, SqlFilter(one.expression), other}) == 2
    assert repr(one) == """SqlFilter("a = 1 AND b = 'x'")"""
    assert repr(other) == """SqlFilter("a = 1 AND b = 'x'", dialect=4)"""
    assert one.property_names == {"a", "b"}
    assert pickle.loads(pickle.dumps(other)) == other
    assert pickle.loads(pickle.dumps(other)).matches({"a": "1", "b": "x"})
    assert store_core.SqlFilter is SqlFilter


def test_a_property_behind_a_minus_is_not_needed():
    assert SqlFilter("a > -b").property_names == {"a"}


def test_nesting_has_a_limit_and_any_stack_is_enough():
    deep = "(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING
    assert SqlFilter(deep).matches({"a": "1"})
    with pytest.raises(FilterSyntaxError, match="nested deeper"):
        SqlFilter(f"({deep})")
    with pytest.raises(FilterSyntaxError, match="nested deeper"):
        SqlFilter("NOT " * (MAX_NESTING + 1) + "a")
    assert SqlFilter("NOT " * MAX_NESTING + "NULL").evaluate({}) is None


def test_long_texts_are_read_and_evaluated_in_a_flat_way():
    terms = 20_000
    assert SqlFilter(" OR ".join(f"a = '{n}'" for n in range(terms))).matches({"a": "19999"})
    assert SqlFilter("a IS NULL" + " IS NULL" * terms).evaluate({}) is False
    words = ", ".join(f"'{n}'" for n in range(terms))
    assert SqlFilter(f"a NOT IN ({words})").matches({"a": "x"})


def test_an_evaluation_error_tells_the_value():
    with pytest.raises(FilterEvaluationError) as caught:
        SqlFilter("a > 5").evaluate({"a": "5.5", "b": "5.5"})
    assert str(caught.value) == (
        "SQL filter a > 5: the value '5.5' of property a is no whole number of 32 bits, as 5 is"
    )
    with pytest.raises(FilterEvaluationError, match="value 'x' of property b cannot be compared"):
        SqlFilter("(a = 1) = b").evaluate({"a": "1", "b": "x"})
    with pytest.raises(FilterEvaluationError, match=r"value 'x' is no number$"):
        SqlFilter("'x' = 5.5").evaluate({})
