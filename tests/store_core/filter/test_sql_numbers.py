from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.filter.sql_scalar import double_order, parse_double, parse_integer


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
