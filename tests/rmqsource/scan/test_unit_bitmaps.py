"""Reads with a SQL filter through queues whose extension units say which groups want a message."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from rmqsource.scan import planner, unit_bitmaps
from rmqsource.scan.splits import SegmentPositions
from store_core import Message, SqlFilter
from store_core.config.consumer_filter_file import load_consumer_filters
from store_core.files.store_directory import StoreDirectory
from store_core.filter.bloom_filter import BloomFilter, has_bits
from store_core.read import dispatch_proof
from tests.golden_store import golden
from tests.rmqsource.reading import PLACE, name_queues, plan, read_places, read_rows
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.test_golden_filters import SQL_NAMES, group_of, sql_filter
from tests.store_core.test_message_store_filters import FilteringStore

QUEUES, LOG = "consumequeue", "commitlog"


def named(plans):
    """Return where the records lie that the splits of one store name."""
    parts = [part for split in plans[0].splits for part in split.parts]
    singles = [part for part in parts if isinstance(part, SegmentPositions)]
    return sorted(offset for part in singles for offset in part.array().tolist())


def filter_options(store, name):
    """Return the options of a read of the golden topic that consumers filtered."""
    topic = store.config["topics"]["filter"]
    return {**store.options, "topic": topic, "sqlFilter": sql_filter(store, name).expression}


def with_the_bits(store, name):
    """Return where records lie that have no bitmap, or all bits of a group in it."""
    topic, bloom = store.config["topics"]["filter"], BloomFilter()
    filters = load_consumer_filters(StoreDirectory(str(store.root)))
    bits = {data.consumer_group: data.bit_positions for data in filters if data.topic == topic}
    registered = max(data.born_timestamp for data in filters)
    columns = ("commit_log_offset", "store_timestamp", "properties")
    found = []
    for row in read_rows(store.root, columns, topic=topic, access=LOG, **store.options):
        properties = dict(row["properties"])
        wanted = [n for n in SQL_NAMES if sql_filter(store, n).matches(properties)]
        bitmap = bloom.bitmap(bit for n in wanted for bit in bits[group_of(store, n)])
        is_later = round(row["store_timestamp"].timestamp() * 1000) > registered
        if not is_later or has_bits(bitmap, bits[group_of(store, name)]):
            found.append(row["commit_log_offset"])
    return found


@pytest.mark.parametrize("name", SQL_NAMES)
def test_rows_are_those_of_a_scan_and_fewer_records_are_read(name):
    store = golden("cluster-5x-ext")
    options = filter_options(store, name)
    expected = read_rows(store.root, access=LOG, **options)
    assert read_rows(store.root, access=QUEUES, **options) == expected
    assert read_rows(store.root, **options) == expected
    plans = plan(store.root, access=QUEUES, **options)
    if name == "sql6":  # a 4.x broker would have set these bits otherwise
        assert len(named(plans)) == 144
        assert "are not used: no group's bits speak of this expression" in plans[0].reason
        return
    assert named(plans) == with_the_bits(store, name)
    left_out = 144 - len(named(plans))
    assert left_out > 20
    assert f"bitmaps of extension units leave out {left_out} records more" in plans[0].reason
    without = plan(store.root, access=QUEUES, topic=options["topic"], **store.options)
    assert plans[0].bytes_to_read < without[0].bytes_to_read


def test_the_table_of_keys():
    store = golden("cluster-5x-ext")
    options = {"table": "keys", **filter_options(store, "sql1")}
    expected = read_rows(store.root, access=LOG, **options)
    assert expected
    assert read_rows(store.root, access=QUEUES, **options) == expected


def test_many_units_are_looked_at_in_blocks(monkeypatch):
    store = golden("cluster-5x-ext")
    monkeypatch.setattr(unit_bitmaps, "_BLOCK_BYTES", 300)
    found = plan(store.root, access=QUEUES, **filter_options(store, "sql1"))
    assert named(found) == with_the_bits(store, "sql1")


def test_a_batch_of_a_stream(monkeypatch):
    store = golden("cluster-5x-ext")
    options = {"path": str(store.root), **filter_options(store, "sql1")}
    found, read = [], planner.read_queue_units

    def noted(*args, **more):
        found.append(read(*args, **more))
        return found[-1]

    monkeypatch.setattr(planner, "_SCANNED_AT_ONCE", 0)
    monkeypatch.setattr(planner, "read_queue_units", noted)
    checkpoint = Checkpoint()
    SimulatedQuery(checkpoint, options, PLACE).all_available()
    rows = sorted((row["commit_log_offset"], row["queue_offset"]) for row in checkpoint.rows)
    options.pop("path")
    assert rows == read_places(store.root, access=LOG, **options)
    assert found[0].offsets.tolist() == with_the_bits(store, "sql1")


@pytest.fixture
def filtered(tmp_path):
    """Twice ten messages of T, the second ten noted for group low, and 100 others."""
    filtering = FilteringStore(tmp_path / "store")
    filtering.root = tmp_path / "store"
    with without_threads(), filtering.store:
        filtering.put(range(10))
        filtering.put([30] * 100, topic="U")
        filtering.store.consumer_filters.register("T", "low", "n < 5")
        filtering.put(range(10))
    name_queues(filtering.root)
    return filtering


ALL = [*range(10), *range(10)]
NOT_LEFT_OUT = [*range(10), *range(5)]


def numbers_read(root, expression="n < 5", topic="T", **options):
    """Return property n of the records that a plan names, and why; rows must be those of a scan."""
    given = {"topic": topic, "sqlFilter": expression, **options}
    assert read_rows(root, **given) == read_rows(root, access=LOG, **given)
    columns = ("commit_log_offset", "properties")
    every = read_rows(root, columns, topic=topic)
    number_at = {row["commit_log_offset"]: int(dict(row["properties"])["n"]) for row in every}
    plans = plan(root, **given)
    assert plans[0].access_path == QUEUES
    return [number_at[offset] for offset in named(plans)], plans[0].reason


def saved_filter(root):
    path = root / "config" / "consumerFilter.json"
    content = json.loads(path.read_text())
    return path, content, content["filterDataByTopic"]["T"]["groupFilterData"]["low"]


def test_messages_of_before_the_registration_are_read(filtered):
    assert numbers_read(filtered.root) == (
        NOT_LEFT_OUT,
        "the consume queues name 15 records of the topics; bitmaps of extension units leave out 5 "
        "records more; each message is read for option sqlFilter",
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"expression": "n <  5"},
        {"expression": "n < 6"},
        {"expression": "n < 5", "sqlDialect": "4"},
    ],
)
def test_bits_of_another_expression_say_nothing(asked, filtered):
    found, reason = numbers_read(filtered.root, **asked)
    assert found == ALL
    assert (
        "bitmaps of extension units are not used: no group's bits speak of this expression"
        in reason
    )


def test_bits_of_another_topic_say_nothing(filtered):
    found = plan(filtered.root, topic="U", sqlFilter="n < 5", access=QUEUES)
    assert len(named(found)) == 100
    found = plan(filtered.root, sqlFilter="n < 5", access=QUEUES)
    assert len(named(found)) == 115
    assert "leave out 5 records more; bitmaps" in found[0].reason
    assert "this expression (topic U)" in found[0].reason


def test_a_store_that_was_not_stopped(tmp_path):
    store = golden("cluster-5x-ext")
    root, options = store.copy_to(tmp_path), filter_options(store, "sql1")
    (root / "abort").touch()  # killed: the file may be 10 s older than the bitmaps
    plans = plan(root, access=QUEUES, **options)
    options.pop("sqlFilter")
    assert named(plans) == named(plan(root, access=QUEUES, **options))
    assert len(named(plans)) > 60
    why = "what groups registered is not known, as the store was not stopped cleanly"
    assert why in plans[0].reason


def test_a_store_that_is_open(filtered, monkeypatch):
    monkeypatch.setattr(dispatch_proof, "ROUND_BYTES", 0)
    again = FilteringStore(filtered.root)
    again.now = filtered.now
    with without_threads(), again.store:
        found = plan(filtered.root, topic="T", sqlFilter="n < 5", access=QUEUES)
        assert len(named(found)) == 20
        assert "as the store was not stopped cleanly" in found[0].reason


def test_a_message_as_old_as_the_registration_is_read(filtered):
    path, content, of_group = saved_filter(filtered.root)
    columns = ("store_timestamp",)
    times = read_rows(filtered.root, columns, topic="T")
    of_group["bornTime"] = round(times[17]["store_timestamp"].timestamp() * 1000)
    path.write_text(json.dumps(content))
    assert numbers_read(filtered.root)[0] == [*range(10), *range(8)]


def test_bitmaps_of_another_length_say_nothing(filtered, tmp_path):
    path, content, of_group = saved_filter(filtered.root)
    bloom = BloomFilter(consumers=64)
    bits = {"bitNum": bloom.bits, "bitPos": bloom.positions("low", "T")}
    config = tmp_path / "broker.conf"
    config.write_text("expectConsumerNumUseFilter=64\n")
    found, reason = numbers_read(filtered.root, config=config)  # the file is of another length
    assert (found, "no group's bits speak of this expression" in reason) == (ALL, True)
    of_group["bloomFilterData"] = bits
    path.write_text(json.dumps(content))
    found, reason = numbers_read(filtered.root, config=config)  # only the units are
    assert (found, "leave out 0 records" in reason) == (ALL, True)


def test_groups_that_are_gone_count(filtered):
    """A broker goes on setting their bits until it forgets their filter."""
    again = FilteringStore(filtered.root)
    again.now = filtered.now
    with without_threads(), again.store:
        again.store.consumer_filters.unregister("low")
        again.put(range(3, 7))
    assert numbers_read(filtered.root)[0] == [*NOT_LEFT_OUT, 3, 4]


def test_any_group_with_the_expression_counts(filtered):
    again = FilteringStore(filtered.root)
    again.now = filtered.now
    with without_threads(), again.store:
        again.store.consumer_filters.register("T", "odd", "n IN ('7', '9')")
        again.store.consumer_filters.register("T", "twin", "n < 5")
        again.put(range(10))
    for group in ("low", "twin"):
        path, content, _ = saved_filter(filtered.root)
        groups = content["filterDataByTopic"]["T"]["groupFilterData"]
        kept = path.read_text()
        del groups["low" if group == "twin" else "twin"]
        path.write_text(json.dumps(content))
        alone = numbers_read(filtered.root)[0]
        path.write_text(kept)
        assert set(numbers_read(filtered.root)[0]) <= set(alone)
        assert alone == ([*NOT_LEFT_OUT, *range(5)] if group == "low" else [*ALL, *range(5)])
    assert numbers_read(filtered.root)[0] == [*NOT_LEFT_OUT, *range(5)]


def zeroed(directory):
    for path in directory.iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def strange(directory):
    (directory / ("0" * 19 + "7")).mkdir()


@pytest.mark.parametrize("damage", [shutil.rmtree, zeroed, strange])
def test_extension_units_that_are_lost(damage, filtered):
    damage(filtered.root / "consumequeue_ext" / "T" / "0")
    found, reason = numbers_read(filtered.root)
    assert found == ALL
    assert (damage is not strange) or "bitmaps of extension units are not used: " in reason


def test_a_read_without_extension_units_says_nothing_of_them(tmp_path):
    store = golden("cluster-5x")
    topic = store.config["topics"]["filter"]
    found = plan(store.root, topic=topic, sqlFilter="n < 100", access=QUEUES, **store.options)
    assert "bitmaps" not in found[0].reason
    found = plan(golden("cluster-5x-ext").root, topic=topic, access=QUEUES)
    assert "bitmaps" not in found[0].reason


def test_messages_without_a_result_are_not_counted_where_they_are_left_out(filtered, caplog):
    again = FilteringStore(filtered.root)
    again.now = filtered.now
    with without_threads(), again.store:
        again.store.put_message(Message("T", b"", queue_id=0, properties={"n": "x"}))
        dispatch_all(again.store)
    options = {"topic": "T", "sqlFilter": "n < 5"}
    assert not SqlFilter("n < 5").matches({"n": "x"})
    with caplog.at_level(logging.WARNING):
        rows = read_rows(filtered.root, access=QUEUES, **options)
        assert caplog.records == []
        assert read_rows(filtered.root, access=LOG, **options) == rows
    assert len(caplog.records) == 1
