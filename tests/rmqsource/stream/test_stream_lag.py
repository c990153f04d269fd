# SPDX-License-Identifier: Apache-2.0
"""How far behind a query is, from progress reports of Spark 4.0 and 4.3."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

import rmqsource
from rmqsource.stream.stream_lag import store_lags

RECORDED = json.loads(Path(__file__).with_name("recorded_progress.json").read_text("utf-8"))
LIMITED, OLD = RECORDED["4.3, limits, three sources"], RECORDED["4.0"]


@pytest.fixture
def progress():
    """Return the first progress: of two stores of a limited source, one of them again, and rate."""
    return copy.deepcopy(LIMITED[0])


def behind(lags):
    return [(lag.source, lag.store, lag.messages_behind, lag.bytes_behind) for lag in lags]


def event(progress):
    return SimpleNamespace(progress=StreamingQueryProgress.fromJson(progress))


def test_each_store_of_each_source_has_its_lag(progress):
    lags = store_lags(progress)
    assert behind(lags) == [
        (0, "/data/a", 36, 6762),
        (0, "/data/b", 15, 2695),
        (1, "/data/a", 0, 0),
    ]
    assert [lag.ms_behind for lag in lags] == [1570 - 490, 2180 - 1730, 0]
    first = lags[0]
    assert (first.query_name, first.batch, first.end_offset) == ("many", 0, 2510)
    assert first.query_id == progress["id"]
    assert first.store_timestamp == 1_700_000_000_490
    assert first.at == datetime(2026, 11, 22, 22, 16, 48, 506_000, tzinfo=timezone.utc)


def test_lag_goes_down_from_batch_to_batch():
    found = [[lag.messages_behind for lag in store_lags(progress)] for progress in LIMITED]
    assert [messages[0] for messages in found] == [36, 22, 9, 0]


def test_a_spark_that_gives_all_that_waits_leaves_nothing_behind():
    (progress,) = OLD
    lags = store_lags(progress)
    assert [lag[-3:] for lag in lags] == [(0, 0, 0)] * 3


@pytest.mark.parametrize("recorded", [LIMITED[0], *OLD], ids=["4.3", "4.0"])
def test_a_progress_of_spark_is_as_good_as_its_json(recorded):
    assert store_lags(StreamingQueryProgress.fromJson(recorded)) == store_lags(recorded)


def test_offsets_may_be_texts(progress):
    expected = store_lags(progress)
    for source in progress["sources"]:
        for name in ("endOffset", "latestOffset"):
            source[name] = json.dumps(source[name])
    assert store_lags(progress) == expected


@pytest.mark.parametrize("latest", [None, "None", "null", "", {"version": 2}])
def test_what_is_not_known_is_none(progress, latest):
    progress["sources"][0]["latestOffset"] = latest
    lags = store_lags(progress)
    assert [lag[-3:] for lag in lags] == [(None,) * 3, (None,) * 3, (0, 0, 0)]
    assert lags[0].end_offset == 2510


def test_a_store_that_is_not_reported_and_queues_in_a_database(progress):
    latest = progress["sources"][0]["latestOffset"]["stores"]
    del latest["/data/a"], latest["/data/b"]["waiting"]
    assert [lag[-3:] for lag in store_lags(progress)] == [(None,) * 3, (None, 2695, 450), (0, 0, 0)]


def test_a_store_of_which_nothing_was_read_and_a_clock_that_stepped_back(progress):
    source = progress["sources"][0]
    del source["endOffset"]["stores"]["/data/a"]["last"]
    source["latestOffset"]["stores"]["/data/b"]["last"]["store_timestamp"] = 1
    found = [(lag.store_timestamp, lag.ms_behind) for lag in store_lags(progress)[:2]]
    assert found == [(None, None), (1_700_000_001_730, 0)]


def test_the_listener_reports_the_lags_of_a_batch_at_once(progress):
    reported = []
    listener = rmqsource.StreamLagListener(reported.append)
    listener.onQueryStarted(None)
    listener.onQueryProgress(event(progress))
    listener.onQueryIdle(None)
    listener.onQueryTerminated(None)
    assert reported == [store_lags(progress)]


def test_the_listener_passes_over_queries_of_other_sources(progress):
    reported = []
    progress["sources"] = progress["sources"][2:]
    rmqsource.StreamLagListener(reported.append).onQueryProgress(event(progress))
    assert reported == []


def test_the_listener_prints_one_line(progress, capsys):
    listener = rmqsource.StreamLagListener()
    del progress["sources"][1]
    listener.onQueryProgress(event(progress))
    progress["name"] = None
    progress["sources"][0]["latestOffset"] = None
    del progress["sources"][0]["endOffset"]["stores"]["/data/a"]
    listener.onQueryProgress(event(progress))
    assert capsys.readouterr().out.splitlines() == [
        "many, batch 0: 36 messages, 6,762 bytes, 1,080 ms behind /data/a; "
        "15 messages, 2,695 bytes, 450 ms behind /data/b",
        f"{progress['id']}, batch 0: lag not known, at offset 895 of /data/b",
    ]


def test_the_listener_raises_nothing_into_spark(progress, caplog):
    def fail(lags):
        raise RuntimeError("the pager is down")

    rmqsource.StreamLagListener(fail).onQueryProgress(event(progress))
    assert "the lag of a stream was not reported" in caplog.text
    assert "the pager is down" in caplog.text
    caplog.clear()
    rmqsource.StreamLagListener(fail).onQueryProgress(SimpleNamespace(progress={}))
    assert "KeyError" in caplog.text


def test_the_listener_is_imported_when_it_is_asked_for():
    code = (
        "import sys, rmqsource; assert 'pyspark' not in sys.modules; "
        "rmqsource.StreamLagListener; assert 'pyspark' in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=Path(rmqsource.__file__).parents[1]
    )
    with pytest.raises(AttributeError, match="has no attribute 'StreamLag'"):
        rmqsource.StreamLag  # noqa: B018
