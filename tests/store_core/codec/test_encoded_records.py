from __future__ import annotations

import pytest
from hypothesis import given

from store_core.codec.properties import verify_property_crc
from store_core.codec.record_encoder import patch_record, reserve_property_crc
from tests.store_core.codec.test_record_encoder import place, row, scalar


@given(row, place)
def test_a_single_record_is_patched(fields, at):
    record = bytearray(scalar(fields, 1, 2, 3))
    patch_record(record, *at)
    assert record == scalar(fields, *at)


def test_the_property_crc_covers_place_and_time():
    fields = {
        "topic": b"T",
        "body": b"x",
        "properties_raw": reserve_property_crc(b"a\1b"),
        "queue_id": 0,
        "born_timestamp": 1,
        "born_host": bytes(20),
        "store_host": bytes(8),
    }
    record = bytearray(scalar(fields, 0, 0, 0))
    patch_record(record, 1, 2, 3, property_crc=True)
    assert verify_property_crc(bytes(record)) is True
    for position in (27, 35, 75):  # last bytes of queue offset, physical offset, store time
        changed = bytearray(record)
        changed[position] ^= 1
        assert verify_property_crc(bytes(changed)) is False


@pytest.mark.parametrize(
    ("given_bytes", "kept"),
    [
        (b"", b""),
        (b"a\1b", b"a\1b\2"),
        (b"a\1b\2", b"a\1b\2"),
        (b"__CRC32#\0017\2a\1b", b"a\1b\2"),
        (b"a\1b\2__CRC32#\0017", b"a\1b\2"),
        (b"x__CRC32#\0017\2", b"x__CRC32#\0017\2"),
        (b"__CRC32#\1\2__CRC32#\0017\2", b""),
    ],
)
def test_room_for_the_property_crc(given_bytes, kept):
    reserved = reserve_property_crc(given_bytes)
    assert reserved == kept + b"__CRC32#\0010000000000\2"
