# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.java_string import string_hash
from store_core.errors import StoreConfigError
from store_core.filter.tag_filter import TagFilter
from store_core.layout import MAX_EXT_ADDRESS

TAG_A = 2598919


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything_passes(expression):
    tag_filter = TagFilter(expression)
    assert tag_filter.tags is None
    assert tag_filter.codes == frozenset()
    assert tag_filter.matches_tag(None)
    assert tag_filter.matches_tag("x")
    assert tag_filter.matches_code(7)
    assert tag_filter.matches_codes(np.array([0, 7])).tolist() == [True, True]


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA ||\tTagB || ", {"TagA", "TagB"}),
        ("a|b||c", {"a|b", "c"}),
        ("|||", {"|"}),
        ("|| * ||x", {"*", "x"}),  # a star counts only alone
        ("\u00a0a\u00a0", {"\u00a0a\u00a0"}),  # Java trims ASCII only
    ],
)
def test_splits_as_rocketmq(expression, tags):
    tag_filter = TagFilter(expression)
    assert tag_filter.tags == tags
    assert tag_filter.codes == {string_hash(tag) for tag in tags}


@pytest.mark.parametrize("expression", ["||", " ", " || ", "||||"])
def test_an_expression_without_tags_is_an_error(expression):
    with pytest.raises(StoreConfigError, match="no tag"):
        TagFilter(expression)


def test_tags_are_compared_exactly_and_codes_by_hash():
    tag_filter = TagFilter("Aa")
    assert tag_filter.matches_tag("Aa")
    assert not tag_filter.matches_tag("BB")  # the same hash
    assert not tag_filter.matches_tag(None)
    assert tag_filter.matches_code(string_hash("BB"))
    assert not tag_filter.matches_code(0)


@pytest.mark.parametrize(
    ("tags_code", "answer"),
    [
        (TAG_A, True),
        (TAG_A + 1, False),
        (TAG_A + (5 << 32), True),  # only the low 32 bits count
        (None, True),
        (MAX_EXT_ADDRESS, True),
        (-(2**63), True),
        (MAX_EXT_ADDRESS + 1, False),
    ],
)
def test_compares_low_bits_and_passes_unknown_codes(tags_code, answer):
    assert TagFilter("TagA").matches_code(tags_code) is answer


def test_negative_hashes_match():
    tag = "polygenelubricants"
    code = string_hash(tag)
    assert code == -(2**31)
    assert TagFilter(tag).matches_code(code)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4).map(lambda i: TAG_A + (i << 32)))
)
def test_column_equals_scalar(tags_codes):
    tag_filter = TagFilter("TagA || Tag\u00e9")
    want = [tag_filter.matches_code(code) for code in tags_codes]
    assert tag_filter.matches_codes(np.array(tags_codes, np.int64)).tolist() == want
