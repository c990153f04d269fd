# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.errors import DamagedStoreError
from rmqsource.explore import log_survey as tally
from rmqsource.explore.log_survey import (
    Survey,
    Tally,
    class_bounds,
    class_of,
    counted_pairs,
    quantile,
    survey_log,
)
from rmqsource.options.source_options import options_for
from tests.golden_store import GoldenStore, golden
from tests.store_factory import StoreFactory

PAIRS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(st.integers(-3, 3), st.integers(-(2**40), 2**40)),
        st.integers(0, 2**31 - 1),
    ),
    min_size=1,
)


def survey_of(store: GoldenStore, **options: str) -> Survey:
    return survey_log(options_for(str(store.root), {**store.options, **options}))


def messages_of(store: GoldenStore) -> list[dict[str, Any]]:
    """Return the dispatched records that are not inner batches."""
    return [
        m for m in store.dump("messages") if "blank" not in m and m["sys_flag"] & 0xC not in {4, 12}
    ]


def sums(table: Any, *keys: str) -> dict[Any, tuple[int, int]]:
    found: dict[Any, list[int]] = {}
    for row in table.to_pylist():
        pair = found.setdefault(tuple(row[k] for k in keys), [0, 0])
        pair[0] += row["messages"]
        pair[1] += row.get("bytes", 0)
    return {key: (pair[0], pair[1]) for key, pair in found.items()}


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-4x", "classic-5x", "onefile-5x"])
def test_counts_are_those_of_the_messages(name: str) -> None:
    store = golden(name)
    found, expected = survey_of(store), messages_of(store)
    assert found.messages == len(expected)
    assert found.bytes == sum(m["store_size"] for m in expected)
    times = [m["store_timestamp"] for m in expected]
    assert (found.first_ms, found.last_ms) == (min(times), max(times))
    for table, keys in ((found.queues, ("topic", "queue_id")), (found.tags, ("topic", "tags"))):
        counts = Counter(tuple(m[k] for k in keys) for m in expected)
        assert {key: n for key, (n, _) in sums(table, *keys).items()} == dict(counts)
    words = Counter((m["topic"], w) for m in expected for w in (m["keys"] or "").split(" ") if w)
    assert {key: n for key, (n, _) in sums(found.keys, "topic", "key").items()} == dict(words)
    assert (found.keys_missed, found.tags_missed, found.gaps) == (0, 0, 0)
    steps = Counter((m["topic"], m["store_timestamp"] // found.step_ms) for m in expected)
    assert {k: n for k, (n, _) in sums(found.traffic, "topic", "step").items()} == dict(steps)
    for table in (found.sizes, found.latency, found.traffic, found.queues):
        assert sum(n for n, _ in sums(table, "topic").values()) == len(expected)
        assert sum(size for _, size in sums(table, "topic").values()) == found.bytes


def test_bytes_of_an_inner_batch_count_once() -> None:
    store = golden("batch-5x")
    found = survey_of(store)
    records = messages_of(store)
    assert found.messages == sum(len(m.get("inner_messages") or [0]) for m in records)
    assert found.bytes == sum(m["store_size"] for m in records)


def test_options_select() -> None:
    found = survey_of(golden("cluster-5x"), topic="orders")
    assert (found.messages, set(found.queues["topic"].to_pylist())) == (236, {"orders"})


def test_an_empty_store_has_empty_tables() -> None:
    found = survey_of(golden("empty-5x"))
    assert (found.messages, found.first_ms) == (0, None)
    assert found.traffic.column_names == ["topic", "step", "messages", "bytes"]
    assert found.keys.column_names == ["topic", "key", "messages"]


def test_damage_is_counted_or_an_error() -> None:
    store = golden("torn-5x")
    with pytest.raises(DamagedStoreError):
        survey_of(store)
    found = survey_of(store, mode="DROPMALFORMED")
    assert found.gaps == len(found.damage) > 0
    assert found.gap_bytes == sum(gap["bytes_lost"] for gap in found.damage)


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1))
def test_every_number_lies_in_its_class(values: list[int]) -> None:
    for value, number in zip(values, class_of(np.array(values, np.int64)).tolist()):
        low, high = class_bounds(number)
        assert low <= value < high
        assert high - low == 1 or (high - low) * 256 <= abs(value)


def test_classes_have_no_gap_between_them() -> None:
    for number in range(-3000, 3000):
        low, high = class_bounds(number)
        assert low < high == class_bounds(number + 1)[0]
        assert class_of(np.array([low, high - 1])).tolist() == [number, number]


def counted(values: list[int]) -> tuple[Any, Any]:
    """Return the survey's summary of some numbers: greatest and count of each class."""
    numbers = np.array(values, np.int64)
    classes = class_of(numbers)
    nothing = np.zeros(len(numbers), np.int64)
    *_, counts, _, greatest = counted_pairs(nothing, classes, nothing, numbers)
    return greatest, counts


@given(st.lists(st.integers(-(10**6), 10**12), min_size=1), st.integers(1, 100))
def test_a_quantile_is_a_number_of_them_that_so_many_are_at_most(
    values: list[int], percent: int
) -> None:
    exact = sorted(values)[-(-percent * len(values) // 100) - 1]
    found = quantile(*counted(values), percent)
    assert found in values
    assert exact <= found <= exact + abs(exact) / 256
    assert quantile(*counted(values), 100) == max(values)


@pytest.mark.parametrize("seed", range(6))
def test_quantiles_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [
        rng.lognormal(7, 3, 20_001),
        rng.exponential(2_000, 20_001),
        rng.normal(0, 50_000, 20_001),  # half of the clocks are ahead
        rng.integers(0, 100, 20_001),
        np.full(20_001, 123_457),
        np.concatenate([rng.integers(0, 5, 20_000), [10**9]]),
    ][seed].astype(np.int64)
    halves = [counted(part.tolist()) for part in np.array_split(values, 2)]
    greatest, counts = (np.concatenate(columns) for columns in zip(*halves))
    found = [quantile(greatest, counts, percent) for percent in (1, 50, 95, 99, 100)]
    expected = np.percentile(values, [1, 50, 95, 99, 100], method="inverted_cdf")
    assert found == pytest.approx(expected, rel=0.004)
    assert found == sorted(found)
    assert found[-1] == values.max()


def test_messages_without_a_born_time_take_no_time(tmp_path: Path) -> None:
    store = StoreFactory(tmp_path)
    for _ in range(3):
        store.add()
    store.add(born_timestamp=0)
    found = survey_log(options_for(str(store.write())))
    assert (found.messages, found.latency["messages"].to_pylist()) == (4, [3])
    assert found.latency["greatest"].to_pylist() == [5]


def test_no_number_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no number"):
        quantile(np.array([], np.int64), np.array([], np.int64), 50)


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
