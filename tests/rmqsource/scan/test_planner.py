# SPDX-License-Identifier: Apache-2.0
"""Any predicate on any path gives the filtered rows of a whole scan; planning is cheap."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqsource.errors import DataLossError, SourceOptionError
from rmqsource.scan.planner import indexed_keys
from rmqsource.scan.predicate import ScanPredicate
from store_core.codec.message_codec import encode_blank
from store_core.errors import StoreFormatError
from store_core.files.byte_source import LocalByteSource
from store_core.layout import BLANK_RECORD_BYTES, INDEX_HEADER
from tests.golden_store import CLUSTER_NAMES, STORE_NAMES, golden
from tests.rmqsource.reading import (
    HAS_FILTERS,
    expected_rows,
    name_queues,
    parsed,
    places,
    plan,
    read_places,
    read_rows,
)
from tests.store_factory import START_MS, StoreFactory, small_store

ROW_COLUMNS = (
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "store_timestamp"),
    *("keys", "unique_key", "tags", "message_id"),
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SOURCES = ("classic-5x", "batch-5x", "cluster-5x", "expired-5x", "crashed-5x", "ext-5x", "small")
MOST_ANSWERS = 64
"""RocketMQ's cap (maxMsgsNumBatch)."""
NAMES = [name for name in (*STORE_NAMES, *CLUSTER_NAMES) if name not in {"empty-5x", "torn-5x"}]


@functools.cache
def scanned(name):
    """Return a store with named queues, its options, and all rows of a plain scan."""
    target = Path(tempfile.mkdtemp(prefix="planner-"))
    if name == "small":
        root, options = small_store(target / "store", 150).write(), {}
    else:
        store = golden(name)
        root, options = store.copy_to(target), store.options
        if not store.is_cluster:
            name_queues(root)
    rows = read_rows(root, (*ROW_COLUMNS, "sys_flag"), access="commitlog", **options)
    return root, options, [row for row in rows if row["sys_flag"] & 12 in {0, 8}]


@pytest.fixture(scope="module", autouse=True)
def _remove_copies():
    yield
    for name in SOURCES:
        shutil.rmtree(scanned(name)[0].parent)
    scanned.cache_clear()


def ms(row):
    return (row["store_timestamp"] - EPOCH) // timedelta(milliseconds=1)


def _some(draw, values, most=3):
    return draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=most, unique=True))


KINDS = [
    *("topic", "topicPattern", "queueId", "time", "offsets", "keys"),
    *("uniqueKeys", "tags", "messageIds"),
]


@st.composite
def predicates(draw, name):  # noqa: C901 (a kind of option a branch)
    """Return (options, tests of a row): each option with its meaning."""
    _, _, rows = scanned(name)
    options, tests = {}, []

    def take(option, value, test):
        options[option] = value
        tests.append(test)

    kinds = draw(
        st.lists(
            st.sampled_from(KINDS),
            max_size=3,
            unique=True,
        )
    )
    row = draw(st.sampled_from(rows))
    if "topic" in kinds:
        topics = {*_some(draw, {r["topic"] for r in rows}), row["topic"]}
        take("topic", json.dumps(sorted(topics)), lambda r: r["topic"] in topics)
    elif "topicPattern" in kinds:
        letter = row["topic"][0]
        take("topicPattern", f"[{letter}%].*", lambda r: r["topic"][0] in f"{letter}%")
    if "queueId" in kinds:
        ids = {*_some(draw, {r["queue_id"] for r in rows}), row["queue_id"]}
        take("queueId", ",".join(map(str, ids)), lambda r: r["queue_id"] in ids)
    if "time" in kinds:
        low, high = sorted((ms(row), ms(draw(st.sampled_from(rows)))))
        high += draw(st.integers(0, 1))
        take("startingTimestamp", low, lambda r: ms(r) >= low)
        take("endingTimestamp", high, lambda r: ms(r) < high)
    elif "offsets" in kinds and "queueId" not in kinds and not options:
        bound = draw(st.integers(0, row["queue_offset"]))
        queue = (row["topic"], row["queue_id"])
        given_offsets = json.dumps({row["topic"]: {str(row["queue_id"]): bound}})
        side = draw(st.sampled_from(["startingOffsets", "endingOffsets"]))
        take(side, given_offsets, lambda r: _within(r, queue, side, bound))
        options["failOnDataLoss"] = "false"
    if "keys" in kinds:
        words = {w for r in rows for w in r["keys"] or ()}
        if words:
            wanted = {*_some(draw, words), *(row["keys"] or ())[:1]}
            take("keys", json.dumps(sorted(wanted)), lambda r: wanted & {*(r["keys"] or ())})
    if "uniqueKeys" in kinds:
        unique = {r["unique_key"] for r in rows} - {None}
        if unique:
            chosen = {*_some(draw, unique), row["unique_key"] or "x"}
            take("uniqueKeys", json.dumps(sorted(chosen)), lambda r: r["unique_key"] in chosen)
    if "tags" in kinds:
        tags = {t for t in {r["tags"] for r in rows} - {None} if t == t.strip() and "|" not in t}
        tags -= {"", "*"}
        if tags:
            some = set(_some(draw, tags))
            take("tags", " || ".join(sorted(some)), lambda r: r["tags"] in some)
    if "messageIds" in kinds:
        ids_wanted = {row["message_id"], draw(st.sampled_from(rows))["message_id"]}
        take("messageIds", json.dumps(sorted(ids_wanted)), lambda r: r["message_id"] in ids_wanted)
    return options, tests


def _within(row, queue, side, bound):
    if (row["topic"], row["queue_id"]) != queue:
        return True
    at_or_after = row["queue_offset"] >= bound
    return at_or_after if side == "startingOffsets" else not at_or_after


SIZES = st.fixed_dictionaries(
    {},
    optional={
        "maxPartitionBytes": st.sampled_from(["1k", "5000", "40k"]),
        "minPartitions": st.integers(1, 40),
        "maxPartitions": st.integers(40, 50),
        "batchRows": st.integers(1, 100),
        "batchBytes": st.sampled_from(["1k", "64k"]),
    },
)


QUIET = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("name", SOURCES)
def test_options_mean_scan_then_filter(name):
    root, options, rows = scanned(name)
    taken = set()

    @QUIET
    @given(predicates(name), SIZES)
    def run(asked, sizes):
        given_options, tests = asked
        wanted = sorted(places(row for row in rows if all(test(row) for test in tests)))
        read = {**options, **given_options, **sizes}
        assert read_places(root, **read) == wanted
        taken.update(p.access_path for p in plan(root, **read))
        for access in ("consumequeue", "index"):
            try:
                found = read_places(root, **{**read, "access": access})
            except SourceOptionError:
                continue
            assert found == wanted, access

    run()
    assert "commitlog" in taken


@st.composite
def filters(draw, name):
    """Return (Spark's filters, tests of a row)."""
    from pyspark.sql import datasource as ds

    _, _, rows = scanned(name)
    row = draw(st.sampled_from(rows))
    pushed, tests = [], []
    for column in draw(
        st.lists(st.sampled_from(ROW_COLUMNS[:5] + ROW_COLUMNS[6:]), min_size=1, max_size=3)
    ):
        value = row[column]
        if value is None:
            continue
        if type(value) is str:
            kind = draw(st.sampled_from(["EqualTo", "In"]))
        else:
            names = ["EqualTo", "In", "LessThan", "LessThanOrEqual", "GreaterThan"]
            kind = draw(st.sampled_from([*names, "GreaterThanOrEqual"]))
        if kind == "In":
            other = draw(st.sampled_from(rows))[column]
            value = tuple({value, other} - {None})
        pushed.append(getattr(ds, kind)((column,), value))
        tests.append(functools.partial(_compare, kind, column, value))
    return pushed, tests


def _compare(kind, column, value, row):
    found = row[column]
    if found is None:
        return False
    if kind == "In":
        return found in value
    return {
        "EqualTo": found == value,
        "LessThan": type(found) is not str and found < value,
        "LessThanOrEqual": type(found) is not str and found <= value,
        "GreaterThan": type(found) is not str and found > value,
        "GreaterThanOrEqual": type(found) is not str and found >= value,
    }[kind]


@pytest.mark.skipif(not HAS_FILTERS, reason="Spark 4.0 has no filters")
@pytest.mark.parametrize("name", SOURCES)
def test_filters_mean_scan_then_filter(name):
    root, options, rows = scanned(name)

    @QUIET
    @given(filters(name), predicates(name), SIZES)
    def run(pushed, asked, sizes):
        wanted = [row for row in rows if all(test(row) for test in pushed[1] + asked[1])]
        read = {**options, **asked[0], **sizes}
        assert read_places(root, filters=pushed[0], **read) == sorted(places(wanted))

    run()


@pytest.mark.parametrize("name", ["classic-5x", "cluster-5x", "crashed-5x"])
def test_named_queues_lead_through_the_queues(name):
    root, options, rows = scanned(name)
    sizes = {}
    for row in rows:
        sizes[row["topic"]] = sizes.get(row["topic"], 0) + 1
    rare = [
        topic for topic, count in sizes.items() if count < len(rows) / 5 and "SCHED" not in topic
    ]
    ways = [plan(root, topic=json.dumps([topic]), **options)[0] for topic in rare or sizes]
    assert "consumequeue" in {way.access_path for way in ways}
    for way in ways:
        assert way.access_path in {"consumequeue", "commitlog"}, way.reason
        assert way.bytes_to_read + way.bytes_skipped == way.end_offset - _log_start(root)


def _log_start(root):
    return min(int(path.name) for path in (root / "commitlog").iterdir())


def test_splits_of_any_size_partition_the_log():
    root, options, rows = scanned("small")
    for size in (1, 97, 1000, 4096, 10**6):
        (way,) = plan(root, maxPartitionBytes=size, maxPartitions=10**5, **options)
        cuts = sorted(
            (part.start, min(part.stop, part.end_offset)) for s in way.splits for part in s.parts
        )
        assert cuts[0][0] == 0
        assert cuts[-1][1] == way.end_offset
        assert all(a[1] == b[0] for a, b in zip(cuts, cuts[1:]))
    assert len(rows) == 150


def test_how_many_splits():
    root, options, _ = scanned("classic-5x")
    assert len(plan(root, **options)[0].splits) == 1
    assert len(plan(root, minPartitions=7, **options)[0].splits) >= 7
    for most in (1, 2, 3, 5, 12):
        read = {"maxPartitionBytes": 2000, "maxPartitions": most, **options}
        assert len(plan(root, **read)[0].splits) <= most
        assert len(plan(root, topic="Collide", **read)[0].splits) <= most


def test_offsets_that_are_gone():
    root, options, rows = scanned("expired-5x")
    first = min(r["queue_offset"] for r in rows if (r["topic"], r["queue_id"]) == ("Busy", 0))
    assert first == 209
    asked = '{"Busy":{"0":206}}'
    with pytest.raises(DataLossError, match="offsets 206 to 208 of topic 'Busy' queue 0"):
        plan(root, startingOffsets=asked, **options)
    (way,) = plan(root, startingOffsets=asked, failOnDataLoss=False, **options)
    assert way.missing_offsets == (("Busy", 0, 206, 209),)
    (exact,) = plan(root, startingOffsets='{"Busy":{"0":209}}', **options)
    assert exact.missing_offsets == ()
    with pytest.raises(DataLossError, match="OnlyOld"):
        plan(root, startingOffsets='{"OnlyOld":{"0":39}}', **options)
    plan(root, startingOffsets='{"OnlyOld":{"0":40}}', **options)
    with pytest.raises(DataLossError, match="queue offsets 40 to 40"):
        plan(root, startingOffsets='{"OnlyOld":{"0":41}}', **options)


def test_offsets_of_messages_that_are_not_dispatched_yet_are_not_gone():
    root, options, rows = scanned("crashed-5x")
    ends = {}
    for row in rows:
        ends[row["topic"], row["queue_id"]] = row["queue_offset"]
    for (topic, queue_id), last in ends.items():
        asked = json.dumps({topic: {str(queue_id): last}})
        found = read_places(
            root, startingOffsets=asked, topic=json.dumps([topic]), queueId=queue_id, **options
        )
        assert [offset for _, offset in found] == [last]
        with pytest.raises(DataLossError):
            plan(root, startingOffsets=json.dumps({topic: {str(queue_id): last + 2}}), **options)


@pytest.mark.parametrize(("step_ms", "slack"), [(5_000, 600_000), (3_600_000, 3_600_000)])
@pytest.mark.parametrize("steps", [1, 3])
def test_time_is_exact_for_clock_steps_within_the_slack(step_ms, slack, steps, tmp_path):
    factory = StoreFactory(
        tmp_path / "store", segment_bytes=1 << 18, units_per_file=1000, step_ms=400_000
    )
    for number in range(1200):
        if number % (1200 // (steps + 1)) == 1200 // (steps + 1) - 1 and number < 1199:
            factory._clock_ms -= step_ms + factory.step_ms
        factory.add("TopicA" if number % 40 else "Rare", os.urandom(800))
    root = factory.write()
    times = [(r.store_timestamp, r.commit_log_offset) for r in factory.records]
    assert sum(a > b for (a, _), (b, _) in zip(times, times[1:])) == steps
    skipped = 0
    for at in range(0, 1200, 97):
        low = times[at][0]
        for high in (low + 1, low + 1_000_000, low + step_ms + 400_000):
            read = {"startingTimestamp": low, "endingTimestamp": high, "storeTimeSlackMs": slack}
            wanted = sorted(o for t, o in times if low <= t < high)
            assert [o for o, _ in read_places(root, **read)] == wanted
            where = f"store_timestamp >= '{_iso(low)}' AND store_timestamp < '{_iso(high)}'"
            found = read_places(root, where=where, storeTimeSlackMs=slack)
            assert [o for o, _ in found] == wanted
            skipped += plan(root, **read)[0].bytes_skipped
    assert skipped > 0, "nothing was pruned"


def _iso(at_ms):
    return (EPOCH + timedelta(milliseconds=at_ms)).isoformat()


def test_time_narrows_inside_a_segment(tmp_path):
    factory = StoreFactory(
        tmp_path / "store", segment_bytes=1 << 21, units_per_file=2000, step_ms=10_000
    )
    for _ in range(1500):
        factory.add(body=os.urandom(1000))
    root = factory.write()
    low = START_MS + 14_000_000
    (way,) = plan(root, startingTimestamp=low, endingTimestamp=low + 10_000)
    assert way.bytes_to_read < 0.2 * way.end_offset


SEGMENTS = 10_000


SEGMENT_BYTES = 1 << 30


@pytest.fixture(scope="module")
def huge_store(tmp_path_factory):
    """Return 10,000 sparse segments of 1 GiB: a record, then a blank record to the end."""
    root = tmp_path_factory.mktemp("huge") / "store"
    log = root / "commitlog"
    log.mkdir(parents=True)
    factory = StoreFactory(root, segment_bytes=SEGMENT_BYTES)
    size = factory.add(body=b"one").total_size
    for number in range(SEGMENTS):
        factory.first_offset, factory.data = number * SEGMENT_BYTES, bytearray()
        factory._clock_ms = START_MS + 60_000 * number
        factory.add(body=b"one")
        blank = encode_blank(SEGMENT_BYTES - size)
        path = log / f"{number * SEGMENT_BYTES:020d}"
        path.write_bytes(bytes(factory.data[:size]) + blank[:BLANK_RECORD_BYTES])
        os.truncate(path, SEGMENT_BYTES)
    (root / "checkpoint").write_bytes(bytes(4096))
    return root


def test_ten_thousand_segments(huge_store, monkeypatch, capsys):
    opened = []
    real = LocalByteSource.__init__

    def counting(self, path, *args, **kwargs):
        opened.append(path)
        real(self, path, *args, **kwargs)

    monkeypatch.setattr(LocalByteSource, "__init__", counting)
    begin = time.perf_counter()
    (way,) = plan(huge_store)
    took = time.perf_counter() - begin
    assert len(way.splits) <= 4000
    assert sum(len(split.parts) for split in way.splits) == SEGMENTS
    assert len([path for path in opened if "commitlog" in path]) <= 4
    opened.clear()
    low = START_MS + 60_000 * 7000
    begin = time.perf_counter()
    (narrow,) = plan(huge_store, startingTimestamp=low, endingTimestamp=low + 1)
    narrow_took = time.perf_counter() - begin
    assert len([path for path in opened if "commitlog" in path]) <= 64
    touched = {part.path for split in narrow.splits for part in split.parts}
    assert len(touched) <= 30, "a minute a segment, ten minutes of slack at both ends, and probes"
    with capsys.disabled():
        print(
            f"\n10,000 segments: planned in {took:.2f} s, with a time filter {narrow_took:.2f} s, "
            f"{len(opened)} files opened"
        )
    rows = read_rows(
        huge_store, ("store_timestamp",), startingTimestamp=low, endingTimestamp=low + 62_000
    )
    assert len(rows) == 2


def test_segments_of_wrong_size(tmp_path):
    root = small_store(tmp_path / "store", 100).write()
    segments = sorted((root / "commitlog").iterdir())
    os.truncate(segments[1], 1000)
    with pytest.raises(
        StoreFormatError, match="has 1000 bytes, but segments of this store have 4096"
    ):
        plan(root)
    assert plan(root, mode="PERMISSIVE")
    os.truncate(segments[1], 9000)
    with pytest.raises(StoreFormatError, match="so 4904 bytes at its end are not part of the log"):
        plan(root)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_that_is_too_long_is_read_without_the_surplus(tmp_path, which):
    factory = small_store(tmp_path / "store", 100)
    root = factory.write()
    path = sorted((root / "commitlog").iterdir())[which]
    with path.open("ab") as file:
        file.write(b"ten bytes.")
    with pytest.raises(StoreFormatError, match=r"so 10 bytes at its end .* mode PERMISSIVE"):
        plan(root)
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        for more in ({}, {"maxPartitionBytes": "1k"}):
            rows = read_rows(root, mode=mode, **more)
            found = [row["commit_log_offset"] for row in rows if row["topic"]]
            assert sorted(found) == [r.commit_log_offset for r in factory.records]
            damage = [r["_corrupt_record"] for r in rows if r.get("_corrupt_record")]
            if mode == "PERMISSIVE":
                (gap,) = damage
                assert (json.loads(gap)["position"], json.loads(gap)["bytes_lost"]) == (4096, 10)
                assert json.loads(gap)["file"] == str(path)


def test_files_that_are_longer_than_an_unproved_size_are_refused(tmp_path):
    root = small_store(tmp_path / "store", 100).write()
    for mode in ("FAILFAST", "PERMISSIVE"):
        with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog") as caught:
            plan(root, mode=mode, mappedFileSizeCommitLog=2048)
        assert "PERMISSIVE" not in str(caught.value)


def test_nothing_can_match():
    root, options, _ = scanned("classic-5x")
    from_then = {"startingTimestamp": 5, "endingTimestamp": 5}
    (way,) = plan(root, **from_then, **options)
    assert (way.access_path, way.splits) == ("none", ())
    (past,) = plan(root, endingTimestamp=1000, **options)
    assert past.bytes_to_read < 70_000, "the first record may be late by the slack"


def test_a_range_of_the_log():
    root, options, rows = scanned("classic-5x")
    options = {**options, "where": "commit_log_offset >= 100001 AND commit_log_offset < 140000"}
    wanted = sorted(p for p in places(rows) if 100_001 <= p[0] < 140_000)
    for more in ({}, {"topic": "TopicTest"}, {"access": "consumequeue"}):
        (way,) = plan(root, **options, **more)
        assert way.bytes_to_read <= 2 * 39_999
        if "topic" not in more:
            assert read_places(root, **options, **more) == wanted


def test_parsed_options_are_plain_values():
    assert parsed("/x", maxPartitions=3).max_partitions == 3


@functools.cache
def rows_of(name):
    return expected_rows(golden(name))


def asked_keys(store):
    """Return the keys of the queries to RocketMQ, by topic."""
    keys = defaultdict(set)
    dump = "query_by_key" if store.is_cluster else "index_query"
    for line in store.dump(dump):
        keys[line["topic"]].add(line["key"])
    return keys


def with_keys(rows, topic, keys):
    return sorted(
        places(
            row for row in rows if row["topic"] == topic and not keys.isdisjoint(row["keys"] or ())
        )
    )


def with_unique_keys(rows, topic, keys):
    return sorted(
        places(row for row in rows if row["topic"] == topic and row["unique_key"] in keys)
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_asked_keys_at_once(name):
    store = golden(name)
    for topic, keys in asked_keys(store).items():
        read = {**store.options, "topic": json.dumps([topic])}
        words = with_keys(rows_of(name), topic, keys)
        unique = with_unique_keys(rows_of(name), topic, keys)
        asked = json.dumps(sorted(keys))
        assert read_places(store.root, **read, keys=asked) == words
        assert read_places(store.root, **read, uniqueKeys=asked) == unique


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "cluster-5x", "expired-5x"])
def test_single_keys_through_the_forced_index(name):
    store = golden(name)
    for topic, keys in asked_keys(store).items():
        if topic == "NoSuchTopic":
            continue
        for key in sorted(keys)[:: max(len(keys) // 5, 1)]:
            read = {**store.options, "topic": json.dumps([topic]), "access": "index"}
            found = read_places(store.root, **read, keys=json.dumps([key]))
            assert found == with_keys(rows_of(name), topic, {key})


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x"])
def test_rocketmq_finds_the_same_messages(name):
    """Cases with a complete answer of RocketMQ: below its cap of 64, all times, no collision."""
    store = golden(name)
    compared = 0
    for line in store.dump("index_query"):
        topic, key = line["topic"], line["key"]
        all_times = line["begin"] <= 0 and line["end"] >= 1 << 62
        if not all_times or len(line["phy_offsets"]) >= min(line["max_num"], MOST_ANSWERS):
            continue
        rows = [row for row in rows_of(name) if row["topic"] == topic]
        ours = {o for o, _ in with_keys(rows, topic, {key}) + with_unique_keys(rows, topic, {key})}
        prepared = set(line["message_offsets"]) - {row["commit_log_offset"] for row in rows}
        if topic != "Collide":
            assert ours == set(line["message_offsets"]) - prepared, line
            compared += 1
        assert ours <= set(line["message_offsets"]), line
    assert compared > 100


def test_the_hot_key_and_its_plan():
    store = golden("classic-5x")
    wanted = with_keys(rows_of("classic-5x"), "TopicTest", {"hot"})
    assert len(wanted) > 400
    read = {**store.options, "topic": "TopicTest", "keys": "hot"}
    assert read_places(store.root, **read) == wanted
    rare = plan(store.root, **{**read, "keys": "order-17"})[0]
    assert rare.access_path == "index"
    assert " for 1 key;" in rare.reason
    assert rare.bytes_to_read < 0.2 * (rare.bytes_to_read + rare.bytes_skipped)
    assert rare.log_bytes_scanned <= rare.bytes_to_read


def test_colliding_keys_are_told_apart():
    store = golden("classic-5x")
    for key in ("Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa"):
        read = {**store.options, "topic": "Collide", "keys": key, "access": "index"}
        assert read_places(store.root, **read) == with_keys(rows_of("classic-5x"), "Collide", {key})


def index_files(root):
    return sorted((root / "index").iterdir())


def cut_first(files):
    files[0].unlink()


def cut_middle(files):
    files[len(files) // 2].unlink()


def cut_last(files):
    files[-1].unlink()


def cut_all(files):
    for path in files:
        path.unlink()


def cut_directory(files):
    shutil.rmtree(files[0].parent)


def zero_middle(files):
    files[len(files) // 2].write_bytes(bytes(files[0].stat().st_size))


def zero_last(files):
    files[-1].write_bytes(bytes(files[0].stat().st_size))


def truncate_middle(files):
    with files[len(files) // 2].open("r+b") as f:
        f.truncate(1000)


def empty_last(files):
    files[-1].write_bytes(b"")


def garbage_first(files):
    files[0].write_bytes(b"\xa5" * files[0].stat().st_size)


def garbage_entries(files):
    for path in files[::2]:
        data = bytearray(path.read_bytes())
        data[INDEX_HEADER.size + 400 :] = b"\x7f" * (len(data) - INDEX_HEADER.size - 400)
        path.write_bytes(data)


def forward_slots(files):
    for path in files:
        data = bytearray(path.read_bytes())
        data[INDEX_HEADER.size : INDEX_HEADER.size + 400] = b"\x00\x00\xff\xff" * 100
        path.write_bytes(data)


def zero_slots(files):
    """Lose some slots of each file: its entries remain, but no chain leads to them."""
    for path in files:
        with path.open("r+b") as f:
            f.seek(INDEX_HEADER.size + 80)
            f.write(bytes(120))


def looping_chains(files):
    for path in files[1:]:
        data = bytearray(path.read_bytes())
        for entry in range(1, 399):
            at = INDEX_HEADER.size + 400 + entry * 20 + 16
            data[at : at + 4] = entry.to_bytes(4, "big")
        path.write_bytes(data)


DAMAGES = [
    *(cut_first, cut_middle, cut_last, cut_all, cut_directory, zero_middle, zero_last),
    *(truncate_middle, empty_last, garbage_first, garbage_entries, forward_slots, looping_chains),
    zero_slots,
]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    store = golden("classic-5x")
    base = store.copy_to(tmp_path_factory.mktemp("whole"))

    def damage(change):
        shutil.rmtree(base / "index", ignore_errors=True)
        shutil.copytree(store.root / "index", base / "index")
        change(index_files(base))
        return base

    return damage


@pytest.mark.parametrize("change", DAMAGES, ids=lambda change: change.__name__)
def test_no_answer_is_short_where_the_index_is(change, damaged):
    store, root = golden("classic-5x"), damaged(change)
    rows = rows_of("classic-5x")
    for topic, keys in (
        ("TopicTest", {"hot"}),
        ("TopicTest", {"order-17", "order-170", "user-5"}),
        ("Collide", {"BBAa"}),
    ):
        read = {**store.options, "topic": topic, "keys": json.dumps(sorted(keys))}
        assert read_places(root, **read) == with_keys(rows, topic, keys)
    some = {row["unique_key"] for row in rows if row["topic"] == "TopicTest"} - {None}
    some = set(sorted(some)[::40])
    read = {**store.options, "topic": "TopicTest", "uniqueKeys": json.dumps(sorted(some))}
    assert read_places(root, **read) == with_unique_keys(rows, "TopicTest", some)


def test_lag_of_the_index_is_scanned():
    store = golden("crashed-5x")
    tail = rows_of("crashed-5x")[-80:]
    keys = {word for row in tail if row["topic"] == "TopicTest" for word in row["keys"] or ()}
    read = {**store.options, "topic": "TopicTest", "keys": json.dumps(sorted(keys))}
    assert read_places(store.root, **read) == with_keys(rows_of("crashed-5x"), "TopicTest", keys)


def test_batches_are_scanned_as_the_index_does_not_know_their_messages():
    store = golden("batch-5x")
    rows = rows_of("batch-5x")
    keys = {word for row in rows if row["topic"] == "BatchTopic" for word in row["keys"] or ()}
    unique = {row["unique_key"] for row in rows if row["topic"] == "BatchTopic"} - {None}
    assert unique
    for option, asked, wanted in (
        ("keys", keys, with_keys(rows, "BatchTopic", keys)),
        ("uniqueKeys", unique, with_unique_keys(rows, "BatchTopic", unique)),
    ):
        read = {**store.options, "topic": "BatchTopic", option: json.dumps(sorted(asked))}
        assert plan(store.root, **read)[0].access_path == "commitlog"
        assert read_places(store.root, **read) == wanted
    with pytest.raises(SourceOptionError, match="BatchTopic"):
        plan(store.root, topic="BatchTopic", keys="x", access="index", **store.options)


def test_forced_index_says_what_it_needs():
    store = golden("classic-5x")
    with pytest.raises(SourceOptionError, match="a key of a topic"):
        plan(store.root, keys="hot", access="index", **store.options)
    with pytest.raises(SourceOptionError, match="NoSuchTopic is not known"):
        plan(store.root, keys="hot", topic="NoSuchTopic", access="index", **store.options)


def test_unknown_index_sizes_fall_back_to_a_scan():
    store = golden("classic-5x")
    read = {"topic": "Collide", "keys": "Aa"}
    assert read_places(store.root, **read) == with_keys(rows_of("classic-5x"), "Collide", {"Aa"})


def test_records_that_share_a_hash_but_not_the_topic(tmp_path):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 16)
    for number in range(300):
        factory.add(("Aa", "BB")[number % 2], b"x" * 40, properties={"KEYS": f"k{number % 50}"})
    root = factory.write()
    read = {"topic": "Aa", "keys": "k4", "access": "index", "maxHashSlotNum": 8, "maxIndexNum": 64}
    rows = read_rows(root, ("topic", "keys"), **read)
    assert rows == 6 * [{"topic": "Aa", "keys": ["k4"]}]


def test_the_smallest_set_of_keys_is_looked_up():
    few, many = frozenset("a"), frozenset("abc")
    assert indexed_keys(ScanPredicate(keys=many, unique_keys=few)) == few
    assert indexed_keys(ScanPredicate(keys=many)) == many
    assert indexed_keys(ScanPredicate(tags=many)) is None
