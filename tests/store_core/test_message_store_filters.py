# SPDX-License-Identifier: Apache-2.0
"""A store that records which consumers want a message, and their pulls."""

from __future__ import annotations

import json

import numpy as np
import pytest

from store_core import GetMessageStatus, Message, MessageStore, MessageStoreConfig, SqlFilter
from store_core.errors import StoreClosedError, StoreConfigError
from store_core.files.store_directory import StoreDirectory
from store_core.filter.bloom_filter import BloomFilter
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.queue.queue_writers import bitmaps_of, ext_reader

EXPRESSIONS = {"low": "n < 5", "even": "n IN ('0', '2', '4', '6', '8')", "odd": "n IN ('1', '3')"}


class FilteringStore:
    """A store in which groups can register; threads do nothing."""

    def __init__(self, root, **settings):
        self.root, self.now = root, 1_700_000_000_000
        config = MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 16,
            enable_consume_queue_ext=True,
            mapped_file_size_consume_queue_ext=1 << 12,
            max_hash_slot_num=16,
            max_index_num=64,
            **{"enable_calc_filter_bit_map": True, **settings},
        )
        self.store = MessageStore(config, clock=self.clock)

    def clock(self):
        self.now += 1
        return self.now

    def put(self, numbers, topic="T"):
        for number in numbers:
            self.store.put_message(
                Message(topic, b"", queue_id=0, properties={"n": str(number), "x": "y" * number})
            )
        dispatch_all(self.store)

    def bitmaps(self):
        with self.store._reading() as reading:
            queue = reading.queue("T", 0)
            codes = queue.queue.read_units(0, queue.max_offset)["tags_code"]
            read = ext_reader(StoreDirectory(str(self.root)), self.root / "consumequeue_ext/T/0")
            return bitmaps_of(read, np.ascontiguousarray(codes))

    def pull(self, group, expression):
        result = self.store.get_message(group, "T", 0, 0, 1000, SqlFilter(expression))
        return result.status, [int(m.properties["n"]) for m in result.messages]


@pytest.fixture
def opened(tmp_path):
    filtering = FilteringStore(tmp_path)
    with without_threads(), filtering.store:
        yield filtering


def bits_of(*groups):
    bloom = BloomFilter()
    return bloom.bitmap(bit for group in groups for bit in bloom.positions(group, "T"))


def test_bits_are_those_of_the_groups_that_want_a_message(opened):
    opened.put(range(2))
    for group, expression in EXPRESSIONS.items():
        opened.store.consumer_filters.register("T", group, expression)
    opened.put(range(7), topic="U")
    opened.put(range(7))
    assert opened.bitmaps() == [
        *(None, None),
        *(bits_of("low", "even" if n % 2 == 0 else "odd") for n in range(4)),
        *(bits_of("low", "even"), bits_of(), bits_of("even")),
    ]


def test_a_pull_that_finds_nothing_says_where_to_go_on(opened):
    opened.put(range(10))
    result = opened.store.get_message("g", "T", 0, 0, 32, SqlFilter("n > 100"))
    assert (result.status, result.next_begin_offset, result.messages) == (
        GetMessageStatus.NO_MATCHED_MESSAGE,
        10,
        (),
    )


def test_a_filter_of_ones_own(opened):
    class Even:
        reads_properties = True

        def matches_units(self, tags_codes):
            return np.ones(len(tags_codes), bool)

        def matches_properties(self, properties):
            return int(properties["n"]) % 2 == 0

    opened.put(range(5))
    result = opened.store.get_message("g", "T", 0, 0, 32, Even())
    assert [message.properties["n"] for message in result.messages] == ["0", "2", "4"]


def test_filters_are_kept_and_count_when_the_groups_are_gone(tmp_path):
    first = FilteringStore(tmp_path)
    with without_threads(), first.store:
        first.store.consumer_filters.register("T", "low", "n < 5")
    again = FilteringStore(tmp_path)
    again.now = first.now + 60_000
    with without_threads(), again.store:
        data = again.store.consumer_filters.get("T", "low").data
        assert first.now < data.dead_timestamp < again.now
        again.put(range(6))
        assert again.bitmaps() == [*[bits_of("low")] * 5, bits_of()]


def test_records_that_recovery_dispatches_get_bitmaps(tmp_path):
    first = FilteringStore(tmp_path)
    with without_threads(), first.store:
        first.store.consumer_filters.register("T", "low", "n < 5")
        first.put(range(6))
        expected = first.bitmaps()
    for name in ("consumequeue", "consumequeue_ext"):
        for path in (tmp_path / name / "T" / "0").iterdir():
            path.unlink()
    (tmp_path / "abort").touch()
    again = FilteringStore(tmp_path)
    with without_threads(), again.store:
        assert again.bitmaps() == expected


@pytest.mark.parametrize("off", ["enable_calc_filter_bit_map", "enable_consume_queue_ext"])
def test_without_the_switches_there_are_no_bitmaps(tmp_path, off):
    filtering = FilteringStore(tmp_path)
    filtering = FilteringStore(tmp_path, **({off: False} if off.startswith("enable_calc") else {}))
    if off == "enable_consume_queue_ext":
        config = MessageStoreConfig(
            store_path_root_dir=str(tmp_path),
            mapped_file_size_commit_log=1 << 16,
            enable_calc_filter_bit_map=True,
        )
        filtering.store = MessageStore(config, clock=filtering.clock)
    with without_threads(), filtering.store:
        filtering.store.consumer_filters.register("T", "low", "n < 5")
        filtering.put(range(6))
        assert filtering.pull("low", "n < 5") == (GetMessageStatus.FOUND, list(range(5)))
        if off == "enable_calc_filter_bit_map":
            assert filtering.bitmaps() == [None] * 6
        else:
            assert not (tmp_path / "consumequeue_ext").exists()


def test_a_file_that_no_broker_writes_counts_as_missing(tmp_path, caplog):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerFilter.json").write_text("{")
    without = FilteringStore(tmp_path, enable_calc_filter_bit_map=False)
    with without_threads(), without.store:
        without.put(range(3))
        assert without.pull("g", "n > 1") == (GetMessageStatus.FOUND, [2])
        without.store.consumer_filters.register("T", "g", "n > 1")
        assert "consumerFilter.json: not what a broker writes" in caplog.text


def test_filters_of_a_store_that_is_not_open(tmp_path):
    with pytest.raises(StoreClosedError):
        _ = FilteringStore(tmp_path).store.consumer_filters


def test_what_is_saved_is_a_brokers_file(opened, tmp_path):
    opened.store.consumer_filters.register("T", "low", "n < 5", client_version=7)
    saved = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
    data = saved["filterDataByTopic"]["T"]["groupFilterData"]["low"]
    assert (data["clientVersion"], data["dead"], data["deadTime"]) == (7, False, 0)
    opened.store.consumer_filters.unregister("low")
    saved = json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
    assert saved["filterDataByTopic"]["T"]["groupFilterData"]["low"]["dead"]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_error_rate_of_bloom_filter": 0},
        {"max_error_rate_of_bloom_filter": 100},
        {"expect_consumer_num_use_filter": 0},
        {"expect_consumer_num_use_filter": 25_001},
    ],
)
def test_bounds_of_the_bitmaps(settings, tmp_path):
    with pytest.raises(StoreConfigError, match="must be 1 to"):
        FilteringStore(tmp_path, **settings)
