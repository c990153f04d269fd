from __future__ import annotations

import pickle
import warnings

import pytest

import store_core
from store_core import FilterEvaluationError, FilterSyntaxError, IgnoredInputWarning, SqlFilter
from store_core.errors import StoreConfigError
from store_core.filter.sql_parser import MAX_NESTING

ERROR = "error"


def outcome(sql_filter: SqlFilter, properties: dict[str, str]) -> bool | str | None:
    try:
        result = sql_filter.evaluate(properties)
    except FilterEvaluationError:
        result = ERROR
    assert sql_filter.matches(properties) is (result is True)
    return result


@pytest.mark.parametrize(
    ("expression", "properties", "result"),
    [
        # a lone property is no truth value
        ("a", {}, None),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NULL", {}, None),
        ("NOT NULL", {}, None),
        ("tRuE aNd Not fAlSe", {}, True),
        # names are exact
        ("A = 'x'", {"a": "x"}, None),
        ("$_1 = 'x'", {"$_1": "x"}, True),
        # a text is read as the type of the number beside it
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5.5"}, ERROR),
        ("a > 5", {"a": "3000000000"}, ERROR),
        ("a > 5L", {"a": "3000000000"}, ERROR),  # a Long that fits an Integer becomes one
        ("a > 2147483648", {"a": "3000000000"}, True),
        ("a > -2147483648", {"a": "3000000000"}, True),  # a Long before the minus
        ("a > -2147483647", {"a": "3000000000"}, ERROR),
        ("a > 5.", {"a": "5.5"}, True),
        ("a > 5.", {"a": " 0x1p3 "}, True),
        ("a > 5.", {"a": "NaN"}, True),
        ("a < .5e1", {"a": "4d"}, True),
        ("5 < a", {"a": "x"}, ERROR),
        ("a >= -1", {"a": "-1"}, True),
        ("a <= +1", {"a": "+1"}, True),
        ("a > 5", {}, None),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a > b", {"a": "10", "b": "x"}, ERROR),
        ("a > b", {"a": "x"}, None),
        ("a < b", {"a": "-0.0", "b": "0"}, True),
        # a minus before what is no number makes NULL
        ("a > -b", {"a": "1", "b": "-5"}, None),
        ("a = -'x'", {}, True),
        ("-(b = 5) IS NULL", {"b": "x"}, ERROR),
        ("a < -(b = 5)", {"b": "x"}, None),  # the left is NULL: the right is not looked at
        ("a < -(b = 5)", {"a": "1", "b": "x"}, ERROR),
        ("- -5 = a", {"a": "5"}, True),
        # equality
        ("a = '5'", {"a": "5.0"}, False),
        ("a = 5", {"a": "05"}, True),
        ("'5' = 5", {}, True),
        ("5 = 5.0", {}, True),
        ("5 = TRUE", {}, False),
        ("9007199254740993 = 9007199254740992.0", {}, True),
        ("'true' = TRUE", {}, True),
        ("a = TRUE", {"a": "TrUe"}, True),
        ("a = FALSE", {"a": "yes"}, True),
        ("TRUE = a", {"a": "true"}, ERROR),
        ("TRUE = a", {}, False),
        ("TRUE = (a IS NULL)", {}, True),
        ("(a = 1) = 5", {"a": "1"}, False),
        ("(a = 1) = b", {"a": "1", "b": "true"}, ERROR),
        ("b = (a = 1)", {"a": "1", "b": "true"}, True),
        ("a = b", {}, True),
        ("a = b", {"a": "1"}, False),
        ("a = b", {"b": "1"}, None),
        ("a <> b", {}, False),
        ("a <> 'x'", {}, None),
        ("a <> 'x'", {"a": "y"}, True),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a = ''", {"a": ""}, True),
        # NULL
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": ""}, True),
        ("a = b IS NULL", {"b": "1"}, True),  # (a = b) IS NULL
        ("5 IS NULL", {}, False),
        ("a IS NULL IS NULL", {}, False),
        # NOT binds tighter than comparisons
        ("NOT a = 5", {"a": "5"}, False),
        ("NOT a IS NULL", {}, True),
        ("NOT (a = 5)", {"a": "6"}, True),
        ("NOT NOT (a = 5)", {"a": "5"}, True),
        # ranges
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a BETWEEN 1 AND 3 AND b = 'x'", {"a": "3", "b": "x"}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
        ("a NOT BETWEEN 3 AND 1", {"a": "2"}, True),
        ("a BETWEEN -1 AND -3", {"a": "-2"}, False),
        ("a BETWEEN 1 AND b", {"a": "0", "b": "x"}, False),  # decided by the lower bound
        ("a BETWEEN 1 AND b", {"a": "1", "b": "x"}, ERROR),
        ("a BETWEEN b AND 1", {"a": "0"}, None),
        ("a BETWEEN b AND 1", {"a": "2"}, False),
        ("a NOT BETWEEN b AND 1", {"a": "2"}, True),
        ("5 BETWEEN a AND 9", {"a": "3"}, True),
        # IN
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x')", {"a": "y"}, True),
        ("a NOT IN ('x')", {}, None),
        ("+(a) IN ('x')", {"a": "x"}, True),
        # searches
        ("a CONTAINS 'b'", {"a": "abc"}, True),
        ("a STARTSWITH 'ab'", {"a": "abc"}, True),
        ("a ENDSWITH 'ab'", {"a": "abc"}, False),
        ("a NOT ENDSWITH 'ab'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'b'", {}, False),
        ("a NOT CONTAINS ''", {"a": "b"}, False),
        ("(a = 5) CONTAINS ''", {"a": "x"}, False),
        ("(a = 5) CONTAINS 'x'", {"a": "x"}, ERROR),
        ("5 CONTAINS '5'", {}, False),
        ("'abc' CONTAINS 'b'", {}, True),
        # the left may decide, the right not
        ("a IS NULL OR a > 5", {"a": "x"}, ERROR),
        ("a IS NOT NULL OR a > 5", {"a": "x"}, True),
        ("a IS NULL AND a > 5", {"a": "x"}, False),
        ("a > 5 AND FALSE", {"a": "x"}, ERROR),
        ("b AND a > 5", {"a": "x"}, ERROR),
        ("b OR a > 5", {"a": "6"}, True),
        ("b AND a > 5", {"a": "5"}, False),
        ("b OR c", {"c": "1"}, None),
        # comments and blanks
        ("a/**/= --x\n'b'/* ' */", {"a": "b"}, True),
        ("a --b\r= 5", {"a": "5"}, True),
        ("a\f=\t5L", {"a": "5"}, True),
    ],
)
def test_results_are_those_of_rocketmq(expression, properties, result):
    assert outcome(SqlFilter(expression), properties) is result


@pytest.mark.parametrize(
    ("expression", "position", "token"),
    [
        ("", 0, ""),
        ("a >", 3, ""),
        ("5", 0, "5"),
        ("'x'", 0, "'x'"),
        ("-a", 1, "a"),
        ("a AND 5", 6, "5"),
        ("a > 'x'", 4, "'x'"),
        ("a > TRUE", 4, "TRUE"),
        ("NULL < a", 0, "NULL"),
        ("a = NULL", 4, "NULL"),
        ("TRUE = 'true'", 7, "'true'"),
        ("(a = 1) > 5", 1, "a"),
        ("NOT a > 5", 4, "a"),
        ("a BETWEEN 5 AND 4.5", 16, "4.5"),
        ("a BETWEEN 5 OR 6", 12, "OR"),
        ("a IN (5)", 6, "5"),
        ("a IN ()", 6, ")"),
        ("a IN ('x'", 9, ""),
        ("'x' IN ('x')", 4, "IN"),
        ("NOT a IN ('x')", 6, "IN"),
        ("a IS 5", 5, "5"),
        ("a NOT NULL", 6, "NULL"),
        ("a CONTAINS b", 11, "b"),
        ("(a = 5", 6, ""),
        ("(a LIKE 'x')", 3, "LIKE"),
        ("a = 0.0", 4, "0.0"),
        ("a = 1e-400", 4, "1e-400"),
        ("a = 1e400", 4, "1e400"),
        ("a = 9223372036854775808", 4, "9223372036854775808"),
        ("a = -9223372036854775808", 5, "9223372036854775808"),
        ("a = 'x", 4, "'"),
        ("a = 5 #", 6, "#"),
        ("a != 5", 2, "!"),
        ('a = "x"', 4, '"'),
        ("a = 5 /* x", 6, "/"),
        ("größe = 5", 2, "ö"),
        ("a = 5\x00", 5, "\x00"),
    ],
)
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


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("a LIKE 'x%'", "'a', a lone property, which matches no message"),
        ("a + 1 > 5", "'a', a lone property, which matches no message"),
        ("a = 007", "'a = 0'"),
        ("a = 5)", "'a = 5'"),
        ("a = 5 b #", "'a = 5'"),
        ("a IS NULL > 5", "'a IS NULL'"),
        ("a = 1 -- no end of line", "'a = 1'"),
        ("a = 5.5f", "'a = 5.5'"),
    ],
)
def test_what_rocketmq_ignores_is_a_warning_given_once(expression, read):
    with pytest.warns(IgnoredInputWarning) as caught:
        sql_filter = SqlFilter(expression)
    assert str(caught[0].message).endswith(f"reads the SQL filter as {read}")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(sql_filter)) == sql_filter


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
    with pytest.raises(FilterEvaluationError, match=r"a > 5: '5.5' is no whole number of 32 bits"):
        SqlFilter("a > 5").evaluate({"a": "5.5"})
