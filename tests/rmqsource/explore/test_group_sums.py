from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.explore import log_survey as tally
from rmqsource.explore.log_survey import Tally, counted_pairs

PAIRS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(st.integers(-3, 3), st.integers(-(2**40), 2**40)),
        st.integers(0, 2**31 - 1),
    ),
    min_size=1,
)


@given(PAIRS)
def test_counted_pairs_are_those_of_a_counter(rows: list[tuple[int, int, int]]) -> None:
    first, second, weights = (np.array(column, np.int64) for column in zip(*rows))
    found = counted_pairs(first, second, weights)
    counts: Counter[tuple[int, int]] = Counter((a, b) for a, b, _ in rows)
    sums: Counter[tuple[int, int]] = Counter()
    for a, b, weight in rows:
        sums[a, b] += weight
    *_, greatest = counted_pairs(first, second, weights, weights * 3)
    got = list(zip(*(column.tolist() for column in found)))
    largest = {pair: max(3 * w for a, b, w in rows if (a, b) == pair) for pair in counts}
    assert greatest.tolist() == [largest[a, b] for a, b, *_ in got]
    assert sorted(got) == sorted((a, b, n, sums[a, b]) for (a, b), n in counts.items())


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), min_size=1), min_size=1))
def test_sums_over_parts(parts: list[list[str]]) -> None:
    counts = Tally(("word",), ("messages",))
    for part in parts:
        counts.add(pa.table({"word": part, "messages": [1] * len(part)}))
    expected = Counter(word for part in parts for word in part)
    rows = counts.table().to_pylist()
    assert {row["word"]: row["messages"] for row in rows} == dict(expected)
    assert [row["messages"] for row in rows] == sorted(expected.values(), reverse=True)


@given(st.lists(st.lists(st.sampled_from("abcdefghijkl"), min_size=1), min_size=2))
def test_what_is_let_go_is_never_larger_than_missed(parts: list[list[str]]) -> None:
    counts = Tally(("word",), ("messages",), limit=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "_MERGE_ROWS", 3)
        for part in parts:
            counts.add(pa.table({"word": part, "messages": [1] * len(part)}))
    expected = Counter(word for part in parts for word in part)
    kept = {row["word"]: row["messages"] for row in counts.table().to_pylist()}
    assert len(kept) <= 4
    for word, count in expected.items():
        assert count - counts.missed <= kept.get(word, 0) <= count


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), min_size=1), min_size=1))
def test_the_greatest_over_parts(parts: list[list[tuple[str, int]]]) -> None:
    found = Tally(("word",), ("messages",), greatest=("value",))
    expected: dict[str, int] = {}
    for part in parts:
        rows = [(word, value % 1000) for word, value in part]
        words, values = zip(*rows)
        found.add(pa.table({"word": words, "messages": [1] * len(rows), "value": values}))
        for word, value in rows:
            expected[word] = max(value, expected.get(word, value))
    assert {r["word"]: r["value"] for r in found.table().to_pylist()} == expected


def test_nothing_was_added() -> None:
    assert Tally(("word",), ("messages",)).table() is None
