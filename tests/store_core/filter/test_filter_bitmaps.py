from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core import SqlFilter
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import RecordFrames
from store_core.filter.bloom_filter import BloomFilter
from store_core.filter.consumer_filter_manager import ConsumerFilterManager
from store_core.filter.filter_bitmaps import FilterBitmaps
from tests.store_factory import StoreFactory

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
