# SPDX-License-Identifier: Apache-2.0
"""Option ``where`` gives the same rows as Spark's own WHERE for the same text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.golden_store import golden
from tests.rmqsource.options.where_texts import COLUMNS, conditions, where_text
from tests.rmqsource.reading import read_rows

TEXTS = 10


@pytest.mark.parametrize(("name", "table"), [("cluster-5x", "keys"), ("batch-5x", "messages")])
def test_option_and_spark_agree(spark, read, name, table):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    store = golden(name)
    columns = ("key", *COLUMNS) if table == "keys" else COLUMNS
    place = ("commit_log_offset", "queue_offset", *(("key",) if table == "keys" else ()))
    rows = read_rows(store.root, columns, table=table, **store.options)
    full = read(store.root, table=table, **store.options).select(*columns).localCheckpoint()

    # No shrinking: a job for each try would take minutes, and a failure names its text.
    @settings(
        max_examples=2,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(conditions(rows, columns), min_size=TEXTS, max_size=TEXTS))
    def run(asked):
        texts = [where_text(one) for one in asked]
        # One job answers all: Spark evaluates each text for each row.
        said = full.selectExpr(*place, *(f"({text}) IS TRUE" for text in texts)).collect()
        for number, text in enumerate(texts):
            wanted = [row[: len(place)] for row in said if row[len(place) + number]]
            read_by = {**store.options, "table": table, "where": text}
            found = read_rows(store.root, place, **read_by)
            found = [tuple(row[column] for column in place) for row in found]
            assert sorted(found) == sorted(map(tuple, wanted)), text

    run()


def test_through_spark(pushing_read):
    store = golden("cluster-5x")
    where = "topic = 'orders' AND store_timestamp < TIMESTAMP '9999-12-31T23:59:59-12:00'"
    frame = pushing_read(store.root, "queue_id int", where=where, **store.options)
    assert frame.where("queue_id = 1").count() < 236 == frame.count()
    nothing = {"table": "plan", "where": "commit_log_offset < 0", **store.options}
    assert pushing_read(store.root, **nothing).first().access_path == "none"
    keys = {"table": "keys", "where": "topic = 'readings' AND key = 'F0'", **store.options}
    found = pushing_read(store.root, "key string, topic string", **keys).collect()
    assert {tuple(row) for row in found} == {("F0", "readings")}
