from __future__ import annotations

import pytest

from store_core.config.consumer_filter_file import load_consumer_filters
from store_core.files.store_directory import StoreDirectory
from store_core.filter.bloom_filter import BloomFilter, murmur3_64
from tests.golden_store import CLUSTER_NAMES, golden


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
