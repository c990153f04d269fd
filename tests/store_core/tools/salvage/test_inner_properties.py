from __future__ import annotations

import pytest

from store_core.codec.message_codec import decode_message, encode_message
from store_core.tools.salvage.inner_rows import (
    batch_size,
    light_offsets,
    with_new_offsets,
    with_properties,
)
from tests.store_factory import BORN_HOST, STORE_HOST

INNER = 0x80
LIGHT = b"a\1b\2INNER_MULTI_DISPATCH\1%LMQ%x,other,%LMQ%y\2INNER_MULTI_QUEUE_OFFSET\x0112,,7\2"


@pytest.mark.parametrize(
    ("sys_flag", "raw", "count"),
    [
        (INNER, b"INNER_NUM\x0112\2INNER_BASE\1100\2", 12),
        (0, b"INNER_NUM\x0112\2", 0),
        (INNER, b"INNER_NUM\x01-2\2", 0),
        (INNER, b"INNER_NUM\x0140000\2", 0),
        (INNER, b"", 0),
    ],
)
def test_batch_size(sys_flag, raw, count):
    assert batch_size(sys_flag, raw) == count


def test_light_offsets():
    assert light_offsets(LIGHT) == {"%LMQ%x": 12, "%LMQ%y": 7}
    assert light_offsets(LIGHT.replace(b"12,,7", b"12,7")) == {}
    assert light_offsets(b"INNER_MULTI_DISPATCH\1%LMQ%x\2") == {}


def test_new_offsets_stand_where_the_old_ones_stood():
    new = with_new_offsets(LIGHT, 0, {"%LMQ%x": 9, "%LMQ%y": 100}, in_batch_queue=False)
    assert new == LIGHT.replace(b"12,,7", b"9,,100")
    batch = b"x\1y\2INNER_BASE\1100\2INNER_NUM\x0112\2"
    assert with_new_offsets(batch, 98, {}, in_batch_queue=True) == batch.replace(b"100", b"98")
    assert with_new_offsets(batch, 98, {}, in_batch_queue=False) == batch
    assert with_new_offsets(b"x\1y", 98, {}, in_batch_queue=True) == b"x\1y"


@pytest.mark.parametrize("topic", [b"T", b"t" * 200])
def test_with_properties(topic):
    record = encode_message(
        topic=topic,
        body=b"body",
        properties_raw=b"old\1v\2",
        queue_id=3,
        commit_log_offset=70,
        queue_offset=5,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        born_timestamp=1,
        store_timestamp=2,
    )
    longer = with_properties(bytes(record), len(b"old\1v\2"), b"a much longer name\1value\2")
    found = decode_message(longer, 0, 70, "")
    assert (found.body, found.topic_bytes, found.queue_offset) == (b"body", topic, 5)
    assert found.properties_raw == b"a much longer name\1value\2"
    assert found.total_size == len(longer)
    with pytest.raises(ValueError, match="32768 bytes"):
        with_properties(bytes(record), len(b"old\1v\2"), b"x" * 32768)
