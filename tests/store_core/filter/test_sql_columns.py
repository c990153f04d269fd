from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core import SqlFilter
from store_core.codec.properties import string_to_properties
from store_core.codec.property_columns import PropertyColumns
from store_core.filter.sql_columns import double_column, integer_column
from store_core.filter.sql_scalar import double_order, parse_double, parse_integer
from tests.store_core.filter.sql_answers import column_answers, parsed, scalar_answers
from tests.store_core.filter.sql_cases import EXAMPLES, VALUES, Cases

NUMBER_LIKE = st.text("0123456789+-.eEdx ٥", max_size=24)
TEXTS = st.lists(
    st.none() | st.sampled_from(VALUES) | NUMBER_LIKE | st.text(max_size=4), max_size=8
)


@pytest.mark.parametrize("expression", sorted({example[0] for example in EXAMPLES}))
def test_columns_are_evaluated_as_single_messages(expression):
    maps = [properties for _, properties, _ in EXAMPLES]
    sql_filter = SqlFilter(expression)
    assert column_answers(sql_filter, maps) == scalar_answers(sql_filter, maps)


@settings(max_examples=300)
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
    """Of repeated names the last counts; entries without a name or a value are none."""
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
