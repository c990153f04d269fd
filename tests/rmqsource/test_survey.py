from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.errors import DamagedStoreError
from rmqsource.options import options_for
from rmqsource.survey import Survey, class_bounds, class_of, quantile, survey
from tests.golden_store import GoldenStore, golden


def survey_of(store: GoldenStore, **options: str) -> Survey:
    return survey(options_for(str(store.root), {**store.options, **options}))


def messages_of(store: GoldenStore) -> list[dict[str, Any]]:
    """Return the dispatched records that are no inner batches."""
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
        assert low <= value * (1 + 1e-9) if value > 0 else low <= value
        assert value < high * (1 + 1e-9)


def test_classes_have_no_gap_between_them() -> None:
    for number in range(200):
        assert class_bounds(number)[1] == pytest.approx(class_bounds(number + 1)[0])
        low, high = class_bounds(number)
        assert math.ceil(low) < high  # a whole number lies in each


@given(st.lists(st.integers(0, 10**9), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_are_at_most_a_tenth_off(values: list[int], share: float) -> None:
    classes, counts = np.unique(class_of(np.array(values, np.int64)), return_counts=True)
    exact = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    assert quantile(classes, counts, share) == pytest.approx(exact, rel=0.1)


def test_no_number_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no number"):
        quantile(np.array([], np.int64), np.array([], np.int64), 0.5)
