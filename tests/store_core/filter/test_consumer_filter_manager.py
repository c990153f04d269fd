# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import SqlFilter
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import RecordFrames
from store_core.config.consumer_filter_file import ConsumerFilterData, load_consumer_filters
from store_core.errors import StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.filter.bloom_filter import BloomFilter, murmur3_64
from store_core.filter.consumer_filter_manager import ConsumerFilterManager
from store_core.filter.filter_bitmaps import FilterBitmaps
from tests.golden_store import CLUSTER_NAMES, golden
from tests.store_factory import StoreFactory

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
EXPRESSIONS = ("a > 3", "a IS NULL OR b = 'x'", "a > 3 AND NOT (b IN ('y'))")
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("TUV"),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "5", "x", "y", "5.5"])),
    ),
    min_size=1,
    max_size=20,
)
GROUPS = st.lists(st.tuples(st.sampled_from("TU"), st.sampled_from(EXPRESSIONS)), max_size=5)


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def saved():
    return []


@pytest.fixture
def manager(clock, saved):
    return ConsumerFilterManager(BloomFilter(), clock, on_change=saved.append)


def stored(**fields):
    """A broker's data of a group that existed when it stopped."""
    positions = BloomFilter().positions("g", "t")
    given = ConsumerFilterData(
        "t", "g", "a > 1", born_timestamp=NOW - 90_000, client_version=5, bit_count=112,
        bit_positions=positions,
    )  # fmt: skip
    return replace(given, **fields)


def test_a_registered_filter_has_its_bits_and_is_saved(manager, saved):
    assert manager.register("t", "g", "a > 1", client_version=7)
    data = manager.get("t", "g").data
    assert data == stored(born_timestamp=NOW, client_version=7)
    assert not data.is_dead
    assert saved == [(data,)]
    assert manager.get("t", "g").compiled.expression == "a > 1"
    assert (manager.get("u", "g"), manager.get("t", "h")) == (None, None)
    assert manager.of_topic("u") == ()


@pytest.mark.parametrize("expression", ["", "a >", None])
def test_what_does_not_parse_is_not_taken(manager, expression, saved):
    assert not manager.register("t", "g", expression)
    assert manager.of_topic("t") == ()
    assert saved == []


def test_what_does_not_parse_is_logged_once_however_often_it_is_said(manager, caplog):
    for version in range(5):
        assert not manager.register("T", "g", "a = = 1", client_version=version)
        assert not manager.register("T", "h", "a = = 1", client_version=version)
    assert [m for m in caplog.messages if "cannot parse" in m and "group g " in m]
    assert len([m for m in caplog.messages if "cannot parse" in m]) == 2
    assert manager.register("T", "g", "a = 1", client_version=5)
    assert not manager.register("T", "g", "a = = 1", client_version=6)
    assert manager.get("T", "g") is None


def test_what_does_not_parse_takes_the_known_filter_away(manager, saved):
    manager.register("t", "g", "a > 1", client_version=1)
    assert not manager.register("t", "g", "a >", client_version=2)
    assert manager.get("t", "g") is None
    assert saved[-1] == ()


def test_a_version_that_is_not_newer_changes_nothing(manager, clock):
    manager.register("t", "g", "a > 1", client_version=5)
    known = manager.get("t", "g")
    clock.now += 1
    assert not manager.register("t", "g", "b > 1", client_version=5)
    assert not manager.register("t", "g", "b > 1", client_version=4)
    assert manager.get("t", "g") is known


def test_a_dead_group_comes_back_to_life(manager, clock):
    manager.register("t", "g", "a > 1", client_version=5)
    born = clock.now
    clock.now += 10
    manager.unregister("g")
    assert manager.get("t", "g").data.dead_timestamp == clock.now
    assert manager.get("t", "g").data.is_dead
    assert not manager.register("t", "g", "a > 1", client_version=4)
    assert manager.get("t", "g").data.is_dead
    assert manager.register("t", "g", "a > 1", client_version=5)
    assert not manager.get("t", "g").data.is_dead
    manager.unregister("g")
    assert manager.register("t", "g", "a > 1", client_version=6)
    data = manager.get("t", "g").data
    assert (data.born_timestamp, data.dead_timestamp, data.client_version) == (born, 0, 6)


def test_another_expression_is_born_anew(manager, clock):
    manager.register("t", "g", "a > 1", client_version=5)
    clock.now += 10
    assert manager.register("t", "g", "a > 2", client_version=6)
    found = manager.get("t", "g")
    assert (found.data.expression, found.data.born_timestamp) == ("a > 2", clock.now)


def test_groups_that_are_dead_for_a_day_go(manager, clock):
    manager.register("t", "g", "a > 1")
    manager.register("t", "h", "a > 2")
    manager.register("u", "g", "a > 1")
    manager.unregister("g")
    clock.now += DAY - 1
    assert len(manager.all()) == 3
    clock.now += 1
    assert [data.consumer_group for data in manager.all()] == ["h"]
    assert manager.get("u", "g") is None


def test_who_was_alive_is_dead_when_the_file_is_loaded(manager):
    assert manager.load([stored()])
    assert manager.get("t", "g").data.dead_timestamp == NOW - 30_000
    assert manager.load([stored(born_timestamp=NOW - 7)])
    assert manager.get("t", "g").data.dead_timestamp == NOW - 7
    assert manager.get("t", "g").data.is_dead
    assert manager.load([stored(dead_timestamp=NOW - 5)])
    assert manager.get("t", "g").data.dead_timestamp == NOW - 5


@pytest.mark.parametrize(
    "fields", [{"bit_count": 216}, {"bit_positions": (1, 2)}, {"bit_positions": None}]
)
def test_bits_of_another_filter_let_nothing_be_loaded(manager, fields):
    assert not manager.load([stored(topic="other"), stored(**fields)])
    assert manager.all() == ()


def test_an_expression_that_does_not_parse_stays_without_a_filter(manager):
    assert manager.load([stored(expression="a >"), stored(topic="u", expression_type="OTHER")])
    assert manager.get("t", "g").compiled is None
    assert manager.get("u", "g").compiled is None


def test_bitmaps_speak_of_the_filter_of_before_until_the_change_is_saved():
    """Whichever version a crash leaves in the file, no bitmap lacks the bits of it."""
    seen = []

    def expressions():
        return [entry.data.expression for entry in manager.of_topic("t")]

    manager = ConsumerFilterManager(
        BloomFilter(), lambda: NOW, on_change=lambda _: seen.append(expressions())
    )
    manager.load([stored()])
    manager.register("t", "g", "a > 2", client_version=6)
    assert (seen.pop(), expressions()) == (["a > 2", "a > 1"], ["a > 2"])
    with manager.saved_together():
        manager.register("t", "g", "a > 3", client_version=7)
        assert expressions() == ["a > 3", "a > 2"]
    assert (seen.pop(), expressions()) == (["a > 3", "a > 2"], ["a > 3"])
    manager.register("t", "g", "a >", client_version=8)
    assert (seen.pop(), expressions()) == (["a > 3"], [])


def test_a_change_that_cannot_be_saved_leaves_bitmaps_of_both():
    def refuse(_):
        raise StoreWriteError("config/consumerFilter.json", "no space")

    manager = ConsumerFilterManager(BloomFilter(), lambda: NOW, on_change=refuse)
    manager.load([stored()])
    with pytest.raises(StoreWriteError):
        manager.register("t", "g", "a > 2")
    assert [entry.data.expression for entry in manager.of_topic("t")] == ["a > 2", "a > 1"]


def test_a_group_may_leave_some_of_its_topics():
    manager = ConsumerFilterManager(BloomFilter(), lambda: 10)
    for topic in ("t", "u"):
        manager.register(topic, "g", "a > 5", client_version=1)
    manager.unregister("g", kept_topics=["t"])
    assert not manager.get("t", "g").data.is_dead
    assert manager.get("u", "g").data.is_dead


@pytest.mark.parametrize(
    ("error_rate", "consumers", "hashes", "bits"),
    [(20, 32, 3, 112), (20, 64, 3, 216), (10, 128, 4, 616), (1, 1, 7, 16), (99, 1, 1, 8)],
)
def test_size_of_a_filter(error_rate, consumers, hashes, bits):
    bloom = BloomFilter(error_rate, consumers)
    assert (bloom.hashes, bloom.bits) == (hashes, bits)
    assert len(bloom.positions("g", "t")) == hashes
    assert len(bloom.bitmap(())) == bits // 8


def test_bits_of_a_consumer():
    bloom = BloomFilter()
    positions = bloom.positions("GroupA", "TopicA")
    assert positions == (29, 107, 11)
    bitmap = bloom.bitmap(positions)
    assert bitmap.hex() == "0008002000000000000000000008"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"GroupA#TopicA", -8794353966826142199),
        # Guava's own vectors: murmur3_128().hashString("abc", ASCII) and of a longer text.
        (b"abc", 0xB4963F3F3FAD7867),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur_hash(data, expected):
    assert murmur3_64(data) == expected % 2**64


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_bits_are_those_that_brokers_gave(name):
    filters = load_consumer_filters(StoreDirectory(str(golden(name).root)))
    bloom = BloomFilter()
    assert len(filters) == 7
    for data in filters:
        assert data.bit_positions == bloom.positions(data.consumer_group, data.topic)
        assert bloom.fits(data.bit_count, data.bit_positions)


@pytest.mark.parametrize(
    ("bits", "positions"), [(216, (1, 2, 3)), (112, (1, 2)), (112, (1, 2, 112)), (112, (-1, 2, 3))]
)
def test_bits_of_another_filter_do_not_fit(bits, positions):
    assert not BloomFilter().fits(bits, positions)


def columns_of(messages):
    store = StoreFactory(Path("nowhere"), segment_bytes=1 << 16)
    for topic, properties in messages:
        store.add(topic, properties=properties)
    data = np.frombuffer(bytes(store.data), np.uint8)
    places = np.array([record.commit_log_offset for record in store.records], np.int64)
    return MessageColumns(RecordFrames(data, 0, places))


@given(MESSAGES, GROUPS)
def test_bits_are_set_as_for_one_message_after_the_other(messages, groups):
    bloom = BloomFilter()
    manager = ConsumerFilterManager(bloom, lambda: 7)
    for number, (topic, expression) in enumerate(groups):
        manager.register(topic, f"g{number}", expression)
    found = FilterBitmaps(manager)(columns_of(messages))
    expected = []
    for topic, properties in messages:
        bits = [
            bit
            for number, (of_topic, expression) in enumerate(groups)
            if of_topic == topic and SqlFilter(expression).matches(properties)
            for bit in bloom.positions(f"g{number}", topic)
        ]
        has_filters = any(of_topic == topic for of_topic, _ in groups)
        expected.append(bloom.bitmap(bits) if has_filters else None)
    assert (found is None) == (not any(bitmap is not None for bitmap in expected))
    assert expected == ([None] * len(messages) if found is None else found.tolist())
