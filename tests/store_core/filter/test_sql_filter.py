# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import pickle
import warnings

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store_core
from store_core import FilterEvaluationError, FilterSyntaxError, IgnoredInputWarning, SqlFilter
from store_core.codec.message_codec import string_to_properties
from store_core.codec.property_columns import PropertyColumns
from store_core.errors import StoreConfigError
from store_core.filter.sql_columns import double_column, integer_column
from store_core.filter.sql_parser import MAX_NESTING
from store_core.filter.sql_scalar import double_order, parse_double, parse_integer
from tests.examples import examples
from tests.store_core.filter.sql_cases import (
    EXAMPLES,
    IGNORED,
    REFUSED,
    VALUES,
    Cases,
    column_answers,
    parsed,
    scalar_answers,
)

NUMBER_LIKE = st.text("0123456789+-.eEdx ٥", max_size=24)
TEXTS = st.lists(
    st.none() | st.sampled_from(VALUES) | NUMBER_LIKE | st.text(max_size=4), max_size=8
)


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
        "SQL filter a > 5: the value '5.5' of property a is not a whole number of 32 bits, as 5 is"
    )
    with pytest.raises(FilterEvaluationError, match="value 'x' of property b cannot be compared"):
        SqlFilter("(a = 1) = b").evaluate({"a": "1", "b": "x"})
    with pytest.raises(FilterEvaluationError, match=r"value 'x' is not a number$"):
        SqlFilter("'x' = 5.5").evaluate({})


@pytest.mark.parametrize("expression", sorted({example[0] for example in EXAMPLES}))
def test_columns_are_evaluated_as_single_messages(expression):
    maps = [properties for _, properties, _ in EXAMPLES]
    sql_filter = SqlFilter(expression)
    assert column_answers(sql_filter, maps) == scalar_answers(sql_filter, maps)


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False))
def test_random_filters_are_evaluated_as_for_single_messages(random):
    cases = Cases(random)
    sql_filter = parsed(cases.expression())
    if sql_filter is not None:
        maps = [cases.properties() for _ in range(random.randrange(6))]
        assert column_answers(sql_filter, maps) == scalar_answers(sql_filter, maps)


@given(TEXTS, st.sampled_from([32, 64]))
def test_columns_of_integers_are_read_as_single_texts(texts, bits):
    keys, bad = integer_column(pa.array(texts, pa.string()), bits)
    for row, text in enumerate(texts):
        number = None if text is None else parse_integer(text, bits)
        assert bool(bad is not None and bad[row]) is (text is not None and number is None)
        assert number is None or keys[row] == number


@given(TEXTS)
def test_columns_of_doubles_are_read_as_single_texts(texts):
    keys, bad = double_column(pa.array(texts, pa.string()))
    for row, text in enumerate(texts):
        number = None if text is None else parse_double(text)
        assert bool(bad is not None and bad[row]) is (text is not None and number is None)
        assert number is None or keys[row] == double_order(number)


PAIRS = st.tuples(st.sampled_from(["a", "b", "", "ab"]), st.sampled_from(["5", "6", "", "x", "ü"]))
ENTRIES = PAIRS.map(lambda pair: f"{pair[0]}\x01{pair[1]}\x02".encode())
STORED = st.lists(ENTRIES | st.sampled_from([b"a\x02", b"\x02", b"a\x01\xff\x02", b"a\x015"]))


@given(st.lists(STORED.map(b"".join), min_size=1, max_size=6))
def test_stored_properties_are_filtered_as_decoded_ones(stored):
    """Of repeated names the last counts; entries without a name or a value do not count."""
    sql_filter = SqlFilter("a = 5 OR b > 5 AND a IS NOT NULL OR a = '\ufffd'")
    properties = PropertyColumns(pa.array(stored, pa.binary()))
    columns = {name: properties.values_of(name) for name in sql_filter.property_names}
    expected = [sql_filter.matches(string_to_properties(data)) for data in stored]
    assert sql_filter.matches_columns(columns, len(stored)).tolist() == expected


def test_slices_of_columns_are_read():
    values = pa.array(["x", "-5", None, "+7", "y"]).slice(1, 3)
    assert SqlFilter("a < 0").matches_columns({"a": values}, 3).tolist() == [True, False, False]
    assert SqlFilter("a > 0.5").matches_columns({"a": values}, 3).tolist() == [False, False, True]


def test_a_filter_without_properties_has_a_result_for_every_row():
    truth = SqlFilter("5 > 3 AND NOT FALSE").evaluate_columns({}, 2)
    assert [part.tolist() for part in truth] == [[True] * 2, [False] * 2, [False] * 2]
    truth = SqlFilter("'x' = 5 OR TRUE").evaluate_columns({}, 1)
    assert [part.tolist() for part in truth] == [[False], [False], [True]]


def test_columns_without_rows_are_evaluated():
    nothing = {"a": pa.array([], pa.string())}
    for text in ("a > 5", "a > 5.5", "a IN ('x')", "a = 'x'", "a CONTAINS 'x'", "NOT a"):
        assert len(SqlFilter(text).matches_columns(nothing, 0)) == 0


def test_a_column_that_is_missing_is_no_absent_property():
    with pytest.raises(KeyError, match="b"):
        SqlFilter("a = 1 OR b = 2").matches_columns({"a": pa.array(["1"])}, 1)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("+5", 5),
        ("-0", 0),
        ("007", 7),
        ("0" * 40 + "1", 1),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("٥٦", 56),  # digits of any script
        ("-１", -1),
        ("2147483648", None),
        ("-2147483649", None),
        ("", None),
        ("+", None),
        ("--5", None),
        (" 5", None),
        ("5L", None),
        ("5.0", None),
        ("0x5", None),
        ("1_0", None),
        ("\U0001d7d7", None),  # a digit of two UTF-16 units: Java sees two units
        ("²", None),
    ],
)
def test_integers_are_read_as_by_java(text, number):
    assert parse_integer(text, 32) == number


def test_longs_have_64_bits():
    assert parse_integer("9223372036854775807", 64) == 2**63 - 1
    assert parse_integer("-9223372036854775808", 64) == -(2**63)
    assert parse_integer("9223372036854775808", 64) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5.0),
        (" \t5\x00 ", 5.0),
        ("1d", 1.0),
        ("1.5F", 1.5),
        ("5.", 5.0),
        (".5", 0.5),
        ("+.5e-3D", 0.0005),
        ("1e400", math.inf),
        ("-1e-400", -0.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0X.8P+1f", -1.0),
        ("0x1p99999", math.inf),
        ("0x0.p1", 0.0),
    ],
)
def test_doubles_are_read_as_by_java(text, number):
    value = parse_double(text)
    assert value is not None
    assert double_order(value) == double_order(number)


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN"])
def test_there_is_one_nan_and_it_is_the_greatest(text):
    value = parse_double(text)
    assert value is not None
    assert math.isnan(value)
    assert double_order(value) == double_order(math.nan) > double_order(math.inf)


NO_DOUBLES = "|.|e5|1e|1e+|inf|nan|infinity|NaNd|1dd|1_0|0x10|0xp1|٥|\u00a05|1 2|--1|+|0x1p|1L|5,0"


@pytest.mark.parametrize("text", NO_DOUBLES.split("|"))
def test_other_texts_are_no_doubles(text):
    assert parse_double(text) is None


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_doubles_are_in_order_and_minus_zero_is_below_zero(left, right):
    keys = double_order(left), double_order(right)
    if left != right:
        assert (keys[0] < keys[1]) == (left < right)
    else:
        assert (keys[0] == keys[1]) == (math.copysign(1, left) == math.copysign(1, right))
