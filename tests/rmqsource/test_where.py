"""Conditions in SQL become the filters that Spark would push."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from pyspark.sql import datasource

import rmqsource
from rmqsource.errors import SourceOptionError
from rmqsource.where import parse_where
from tests.golden_store import golden

pytestmark = pytest.mark.skipif(
    not hasattr(datasource, "EqualTo"), reason="Spark 4.0 has no filter classes"
)


def filters(text: str, table: str = "messages") -> list[tuple[str, str, Any]]:
    return [(type(f).__name__, f.attribute[0], f.value) for f in parse_where(text, table)]


def test_conjunction_of_every_kind() -> None:
    text = "topic = 'orders' AND queue_id IN (0, 2) and `QUEUE_OFFSET` >= 5 AND key='it''s'"
    assert filters(text, "keys") == [
        ("EqualTo", "topic", "orders"),
        ("In", "queue_id", (0, 2)),
        ("GreaterThanOrEqual", "queue_offset", 5),
        ("EqualTo", "key", "it's"),
    ]


@pytest.mark.parametrize(
    ("sign", "name"), [("<", "LessThan"), ("<=", "LessThanOrEqual"), (">", "GreaterThan")]
)
def test_signs(sign: str, name: str) -> None:
    assert filters(f"commit_log_offset {sign} -7") == [(name, "commit_log_offset", -7)]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31 09:00:00",
        "2026-01-31T09:00:00Z",
        "2026-01-31 09:00:00.0 Z",
        "2026-01-31 17:00:00+08:00",
        "2026-01-31T09:00:00.000",
    ],
)
def test_times_without_offset_are_utc(text: str) -> None:
    found = filters(f"store_timestamp < timestamp '{text}'")
    assert found == [("LessThan", "store_timestamp", datetime(2026, 1, 31, 9, tzinfo=timezone.utc))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it ends too early"),
        ("topic", "it ends too early"),
        ("topic = 'a' OR topic = 'b'", "expected AND; found 'OR'"),
        ("topic = 'a' AND", "it ends too early"),
        ("(topic = 'a')", "'(' is not a column"),
        ("body = 'a'", "'body' is not a column"),
        ("topic < 'a'", "topic cannot be compared with <"),
        ("topic LIKE 'a%'", "found 'LIKE'"),
        ("topic = orders", "expected a text in single quotes"),
        ("topic = 'a\\'b'", "cannot read"),
        ("topic = 'open", "cannot read"),
        ("queue_id = '1'", "compared with an integer"),
        ("queue_id = 1.5", "cannot read '1.5'"),
        ("queue_id IN (1 2)", "expected , or )"),
        ("queue_id IN ()", "compared with an integer"),
        ("store_timestamp > 5", "compared with TIMESTAMP"),
        ("store_timestamp > TIMESTAMP 'noon'", "'noon' is not a time"),
        ("store_timestamp > TIMESTAMP '2026-01-01T24:00:00Z'", "is not a time"),
        ("key = 'a'", "give option table=keys"),
    ],
)
def test_anything_else_says_what_is_allowed(text: str, reason: str) -> None:
    with pytest.raises(SourceOptionError, match="allowed are comparisons joined by AND") as found:
        parse_where(text)
    assert reason in str(found.value)


def test_tables_without_filters_are_refused() -> None:
    with pytest.raises(SourceOptionError, match="not to 'queues'"):
        parse_where("topic = 'a'", "queues")


def test_old_spark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(datasource, "EqualTo")
    with pytest.raises(SourceOptionError, match=r"needs Spark 4\.1"):
        parse_where("topic = 'a'")


def test_explain_takes_text_and_filters_alike() -> None:
    store = golden("cluster-5x")
    text = "topic = 'orders' AND key = 'shared-key'"
    options = {**store.options, "table": "keys"}
    explained = rmqsource.explain(str(store.root), options, where=text)
    assert explained == rmqsource.explain(str(store.root), options, parse_where(text, "keys"))
    assert "access path      index" in explained
