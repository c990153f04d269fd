# SPDX-License-Identifier: Apache-2.0
"""The data frames of questions; their contents are tested where they are computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from rmqsource import explore, extras, plots
from rmqsource.explore.log_survey import Survey, is_later
from store_core.topics import topic_kind
from tests.golden_store import GoldenStore, golden
from tests.store_factory import small_store

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def store() -> GoldenStore:
    return golden("cluster-5x")


@pytest.fixture(scope="module")
def counts(store: GoldenStore) -> Survey:
    return explore.survey(str(store.root), store.options)


def test_traffic_is_in_even_steps(counts: Survey) -> None:
    frame = explore.traffic(counts)
    assert frame["messages"].sum() == counts.messages
    assert frame["bytes"].sum() == counts.bytes
    step = frame.attrs["step_ms"]
    assert (frame["time"].diff().dropna().dt.total_seconds() * 1000 % step == 0).all()
    assert str(frame["time"].dt.tz) == "UTC"
    assert frame["time"].nunique() <= 120
    few = explore.traffic(counts, most_steps=10)
    assert few["time"].nunique() <= 11
    assert few["messages"].sum() == counts.messages


@pytest.mark.parametrize("damaged_ms", [72_164_112_840_397, 253_402_300_799_999])
def test_a_damaged_time_is_in_the_traffic_and_in_its_picture(
    tmp_path: Path, damaged_ms: int
) -> None:
    store = small_store(tmp_path / "store", 30)
    path = store.write() / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    at = store.records[3].commit_log_offset + 56
    data[at : at + 8] = damaged_ms.to_bytes(8, "big")
    path.write_bytes(data)
    frame = explore.traffic(explore.survey(str(store.root)))
    assert frame["messages"].sum() == 30
    assert frame["time"].max().year > 2100
    assert plots.traffic(frame).has_data()


def test_skew(counts: Survey) -> None:
    frame = explore.queue_skew(counts)
    orders = frame[frame["topic"] == "orders"]
    assert orders["messages"].tolist() == [59, 59, 59, 59]
    assert orders["times_even"].tolist() == [1, 1, 1, 1]
    assert frame.groupby("topic")["share"].sum().round(9).eq(1).all()
    assert set(frame.loc[frame["topic"] == "SCHEDULE_TOPIC_XXXX", "kind"]) == {"delay"}


def test_latency_and_sizes(counts: Survey) -> None:
    summary = explore.latency_summary(counts).set_index("topic")
    assert (summary["p50_ms"] <= summary["p99_ms"]).all()
    assert summary.loc["orders", "messages"] == 236
    assert summary["clock_ahead"].sum() == 0
    for frame in (explore.latency(counts), explore.sizes(counts)):
        assert (frame["low"] < frame["high"]).all()
        assert frame["messages"].sum() == counts.messages


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-4x"])
def test_what_a_broker_stored_again_is_no_latency(name: str) -> None:
    store = golden(name)
    records = [m for m in store.dump("messages") if "blank" not in m]
    frame = explore.latency(explore.survey(str(store.root), store.options))
    direct = frame[frame["is_direct"]].groupby("topic")["messages"].sum().to_dict()
    expected: dict[str, int] = {}
    for m in records:
        meant = "REAL_TOPIC" in m["properties"] or m["sys_flag"] & 0xC == 8
        if topic_kind(m["topic"]) == "normal" and not meant:
            expected[m["topic"]] = expected.get(m["topic"], 0) + 1
    assert direct == expected
    later = set(frame[~frame["is_direct"]]["topic"])
    delayed, committed = {"cluster-5x": ("reminders", "transfers")}.get(name, ("alarms", "payouts"))
    assert {delayed, committed, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= later
    assert not {delayed, committed} & set(direct)


@pytest.mark.parametrize(
    ("properties", "sys_flag", "expected"),
    [
        (b"KEYS\x01k\x02", 0, False),
        (b"REAL_TOPIC\x01t\x02", 0, True),
        (b"KEYS\x01k\x02REAL_TOPIC\x01t\x02", 0, True),
        (b"UNREAL_TOPIC\x01t\x02", 0, False),
        (b"KEYS\x01REAL_TOPIC\x02", 0, False),
        (b"", 0x8, True),
        (b"", 0x4, False),
        (b"", 0xC, False),
    ],
)
def test_which_records_were_stored_again(properties: bytes, sys_flag: int, expected: bool) -> None:
    flags, texts = pa.array([sys_flag, 0], pa.int32()), pa.array([properties, b""], pa.binary())
    assert is_later(flags, texts).tolist() == [expected, False]


def test_one_topic_with_both_has_two_rows(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store", 4)
    counts = explore.survey(str(store.write()))
    way = counts.latency.slice(0, 1)
    other = way.set_column(1, "is_later", pa.array([True]))
    summary = explore.latency_summary(replace(counts, latency=pa.concat_tables([way, other])))
    assert sorted(summary["is_direct"]) == [False, True]


def test_keys_and_tags(counts: Survey) -> None:
    keys = explore.top_keys(counts, 2)
    assert keys.to_dict("records")[0] == {"topic": "orders", "key": "shared-key", "messages": 30}
    assert len(keys) == 2
    assert keys.attrs["missed"] == 0
    tags = explore.tags(counts)
    assert tags["messages"].sum() == counts.messages
    assert set(tags.loc[tags["topic"].str.startswith("%RETRY%"), "kind"]) == {"retry"}


def test_copies_of_the_broker_are_not_counted_as_keys_again(counts: Survey) -> None:
    every = {topic for topic in counts.keys["topic"].to_pylist() if topic_kind(topic) != "normal"}
    assert "SCHEDULE_TOPIC_XXXX" in every
    assert not every & set(explore.top_keys(counts, 10_000)["topic"])


def test_lag_is_what_the_admin_tools_said(cluster_golden_store: GoldenStore) -> None:
    store = cluster_golden_store
    frame = explore.consumer_lag(str(store.root), store.options)
    lags = frame.groupby("group")["lag"].sum()
    compared = 0
    for group in store.document("lag"):
        if group.get("total_lag", 0) > 0 and group["group"] != "CID_RMQ_SYS_TRANS":
            compared += 1
            assert lags[group["group"]] == group["total_lag"]
    assert compared > 0
    behind = frame.loc[frame["lag"] > 0, "lag_ms"]
    assert (behind >= 0).all()
    assert frame["group"].iloc[0] == lags.idxmax()


def test_whole_numbers_stay_whole(store: GoldenStore) -> None:
    path, options = str(store.root), store.options
    frame = explore.transactions(path, options)
    assert str(frame["commit_commit_log_offset"].dtype) == "Int64"
    assert len(frame) == 23
    assert len(explore.delayed(path, options)) == 31
    events = explore.trace(path, key="R0", options=options)
    assert events["event"].iloc[-1] == "dead_lettered"
    assert events["queue_offset"].isna().tolist() == [True] + [False] * 6
    assert events["wait_ms"].sum() == 27845
    assert len(explore.dead_letters(path, options)) == 4
    assert explore.trace(path, key="none", options=options).empty
    assert "growth" in explore.topics(path, options)


def test_lookup_and_scan_find_the_same(store: GoldenStore) -> None:
    frame = explore.lookup_and_scan(str(store.root), "orders", "shared-key", store.options)
    assert frame["access_path"].tolist() == ["index", "commitlog"]
    assert frame["messages"].tolist() == [30, 30]
    assert frame["bytes_to_read"].iloc[0] < frame["bytes_to_read"].iloc[1]


def test_a_missing_package_is_named() -> None:
    with pytest.raises(extras.MissingExtraError, match=r"pip install '\.\[notebook\]' in a clone"):
        extras.notebook_package("no_such_package_at_all.module")
