# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import defaultdict

import pytest

from rmqsource.explore.topic_growth import GROWTH_COLUMNS, topic_growth
from rmqsource.options.source_options import parse_options
from tests.golden_store import GoldenStore, golden


def rows_of(store: GoldenStore, **extra: str) -> list[dict[str, object]]:
    options = {"path": str(store.root), "config": str(store.config_file), **extra}
    return list(topic_growth(parse_options({**options, "table": "topics"})))


def test_figures_are_those_of_the_messages(cluster_golden_store: GoldenStore) -> None:
    rows = {row["topic"]: row for row in rows_of(cluster_golden_store)}
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, list[int]] = defaultdict(list)
    for m in cluster_golden_store.dump("messages"):
        if "blank" not in m:
            sizes[m["topic"]] += m["store_size"]
            counts[m["topic"]] += 1
            times[m["topic"]].append(m["store_timestamp"])
    begin = min(min(t) for t in times.values())
    end = max(max(t) for t in times.values())
    for topic, size in sizes.items():
        row = rows[topic]
        assert tuple(row) == GROWTH_COLUMNS
        assert row["bytes"] == size
        assert row["messages"] == counts[topic]
        assert row["bytes_share"] == pytest.approx(size / sum(sizes.values()))
        assert row["messages_per_second"] == pytest.approx(counts[topic] * 1000 / (end - begin))
        assert row["bytes_per_day"] == pytest.approx(size * 86_400_000 / (end - begin))
        assert row["retention_seconds"] == pytest.approx((end - min(times[topic])) / 1000)
    order = [row["bytes"] for row in rows_of(cluster_golden_store)]
    assert order == sorted(order, key=lambda size: -int(str(size or 0)))


def test_growth_compares_the_halves_of_the_time() -> None:
    store = golden("classic-5x")
    rows = {row["topic"]: row for row in rows_of(store)}
    messages = [m for m in store.dump("messages") if m["sys_flag"] & 0xC not in {4, 12}]
    times = [m["store_timestamp"] for m in messages]
    middle = min(times) + (max(times) - min(times)) // 2
    compared = 0
    for topic, row in rows.items():
        mine = [m for m in messages if m["topic"] == topic]
        new = sum(m["store_size"] for m in mine if m["store_timestamp"] >= middle)
        old = sum(m["store_size"] for m in mine) - new
        if old:
            compared += 1
            # The offset in the middle is located to within 64 KiB.
            low, high = (new - 1) / old - 1, (new + (64 << 10)) / max(old - (64 << 10), 1) - 1
            assert low <= float(str(row["growth"])) <= max(high, low + 100)
    assert compared > 3


def test_topics_can_be_selected_and_a_store_can_be_empty() -> None:
    rows = rows_of(golden("cluster-5x"), topicPattern="orders|jobs")
    assert [row["topic"] for row in rows] == ["orders", "jobs"]
    assert sum(float(str(row["bytes_share"])) for row in rows) == pytest.approx(1)
    assert all(row["bytes_per_day"] is None for row in rows_of(golden("empty-5x")))
