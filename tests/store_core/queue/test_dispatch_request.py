# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec import message_batch_codec
from store_core.codec.java_string import decode_utf8, string_hash
from store_core.codec.message_codec import string_to_properties
from store_core.codec.record_frames import RecordFrames
from store_core.queue import dispatch_request
from store_core.queue.dispatch_request import DispatchDecoder, concat_requests
from tests.examples import examples
from tests.store_factory import START_MS, StoreFactory

DELAYS = (1000, 5000, 60_000)
LMQ = "INNER_MULTI_DISPATCH"
LMQ_OFFSET = "INNER_MULTI_QUEUE_OFFSET"


@pytest.fixture(autouse=True, scope="module", params=[0, 1000], ids=["columns", "one by one"])
def _way(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_batch_codec, "_FEW_ROWS", request.param)
        patch.setattr(dispatch_request, "_FEW_ROWS", request.param)
        yield


@pytest.fixture
def store(tmp_path):
    return StoreFactory(tmp_path, segment_bytes=1 << 20)


def frames_of(store):
    positions = [r.commit_log_offset - store.first_offset for r in store.records]
    data = np.frombuffer(bytes(store.data), np.uint8)
    frames = RecordFrames(data, store.first_offset, np.array(positions, np.int64))
    assert frames.ok.all()
    return frames


def decode(store, decoder=None):
    return (decoder or DispatchDecoder(DELAYS)).decode(frames_of(store))


def queues(requests):
    """(topic, queue id, queue offset, light) of each row."""
    names = [requests.topics[code] for code in requests.topic_code.tolist()]
    columns = (requests.queue_id, requests.queue_offset, requests.light)
    return list(zip(names, *(column.tolist() for column in columns)))


def test_columns_are_those_of_the_records(store):
    for number in range(300):
        properties = {"KEYS": "k"} if number % 3 else {"TAGS": f"täg{number % 7}\U0001f600"}
        store.add(f"topic-{number % 5}", queue_id=number % 4, properties=properties)
    requests = decode(store)
    for row, record in enumerate(store.records):
        tags = string_to_properties(record.properties_raw).get("TAGS", "")
        assert requests.topics[requests.topic_code[row]] == record.topic_bytes.decode()
        assert requests.queue_id[row] == record.queue_id
        assert requests.queue_offset[row] == requests.base_queue_offset[row] == record.queue_offset
        assert requests.commit_log_offset[row] == record.commit_log_offset
        assert requests.message_size[row] == record.total_size
        assert requests.tags_code[row] == string_hash(tags)
        assert requests.store_timestamp[row] == record.store_timestamp
        assert requests.batch_size[row] == 1
    assert not requests.light.any()


raw_texts = st.binary(min_size=1, max_size=8).map(lambda raw: raw.translate(None, b"\1\2"))


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(raw_texts))
def test_tags_codes_are_those_of_the_scalar_codec(tmp_path_factory, tags):
    store = StoreFactory(tmp_path_factory.getbasetemp(), segment_bytes=1 << 20)
    for raw in tags:
        store.add(properties_raw=b"TAGS\1x\2A\1b\2TAGS\1%s\2" % raw)
    read = [string_to_properties(record.properties_raw) for record in store.records]
    assert decode(store).tags_code.tolist() == [string_hash(each["TAGS"]) for each in read]


def test_topics_that_decode_alike_are_one(store):
    for topic in (b"a\xff", b"a\xfe", b"b"):
        store.add(topic=topic.decode("latin-1"), dispatched=False)
    data = (
        bytes(store.data)
        .replace("a\xff".encode(), b"a\xff\xff")
        .replace("a\xfe".encode(), b"a\xfe\xfe")
    )
    store.data[:] = data
    requests = decode(store)
    assert requests.topics == [decode_utf8(b"a\xff\xff"), "b"]
    assert requests.topic_code.tolist() == [0, 0, 1]


def test_topics_keep_their_codes_from_batch_to_batch(store, tmp_path):
    other = StoreFactory(tmp_path, segment_bytes=1 << 20)
    for topic in "ab":
        store.add(topic)
    for topic in "cb":
        other.add(topic)
    decoder = DispatchDecoder(DELAYS)
    both = concat_requests([decode(store, decoder), decode(other, decoder)])
    assert [both.topics[code] for code in both.topic_code] == ["a", "b", "c", "b"]


@pytest.mark.parametrize(
    ("level", "delay"),
    [("1", 1000), ("+2", 5000), ("3", 60_000), ("99", 60_000), ("0", None), ("-1", None),
     ("x", None), ("4294967297", None), (None, None)],
)  # fmt: skip
def test_tags_code_of_delayed_messages_is_the_time_of_delivery(store, level, delay):
    properties = {"TAGS": "TagA", **({} if level is None else {"DELAY": level})}
    store.add("SCHEDULE_TOPIC_XXXX", properties=properties)
    store.add("other", properties=properties)
    hashed = string_hash("TagA")
    expected = hashed if delay is None else START_MS + 1000 + delay
    assert decode(store).tags_code.tolist() == [expected, hashed]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [({"INNER_NUM": "7", "INNER_BASE": "40"}, (40, 7)), ({"INNER_NUM": "7"}, (0, 1)),
     ({"INNER_BASE": "40"}, (0, 1)), ({"INNER_NUM": "70000", "INNER_BASE": "40"}, (0, 1)),
     ({"INNER_NUM": "7", "INNER_BASE": "4O"}, (0, 1)),
     ({"INNER_NUM": "7", "INNER_BASE": "9223372036854775808"}, (0, 1))],
)  # fmt: skip
def test_inner_batches_say_their_base_and_size(store, properties, expected):
    store.add(properties=properties)
    requests = decode(store)
    assert (requests.base_queue_offset[0], requests.batch_size[0]) == expected


def test_multi_dispatch_adds_rows_behind_their_record(store):
    store.add("fan", queue_id=3, properties={LMQ: "%LMQ%a,plain,%LMQ%b", LMQ_OFFSET: "5,9,0"})
    store.add("fan", queue_id=3)
    requests = decode(store)
    assert queues(requests) == [
        ("fan", 3, 0, False),
        ("%LMQ%a", 0, 5, True),
        ("plain", 3, 9, True),
        ("%LMQ%b", 0, 0, True),
        ("fan", 3, 1, False),
    ]
    assert requests.commit_log_offset[:4].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("topic", "names", "offsets", "kept"),
    [("fan", "%LMQ%a,b", "1,", []), ("fan", "%LMQ%a,,", "1", ["%LMQ%a"]),
     ("fan", "b,%LMQ%a", ",1", ["%LMQ%a"]), ("fan", "%LMQ%../a", "1", []),
     ("fan", "%LMQ%a", "x", []), ("fan", ",", "1", []), ("fan", "%LMQ%a", None, []),
     ("%RETRY%g", "%LMQ%a", "1", []), ("rmq_sys_x", "%LMQ%a", "1", []),
     ("SCHEDULE_TOPIC_XXXX", "%LMQ%a", "1", [])],
)  # fmt: skip
def test_multi_dispatch_that_is_none(store, topic, names, offsets, kept):
    store.add(topic, properties={LMQ: names, **({} if offsets is None else {LMQ_OFFSET: offsets})})
    assert [name for name, *_ in queues(decode(store))] == [topic, *kept]


def test_prepared_and_rolled_back_messages_get_no_unit(store):
    for kind in (0, 4, 8, 12):
        store.add(sys_flag=kind)
    requests = decode(store)
    assert requests.transaction_type.tolist() == [0, 4, 8, 12]
    assert requests.queued().transaction_type.tolist() == [0, 8]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 3)), max_size=60))
def test_rows_of_a_queue_stay_in_order(tmp_path_factory, puts):
    store = StoreFactory(tmp_path_factory.getbasetemp(), segment_bytes=1 << 20)
    for topic, queue_id in puts:
        store.add(topic, queue_id=queue_id)
    wanted: dict[tuple[str, int], list[int]] = {}
    for record in store.records:
        key = (record.topic_bytes.decode(), record.queue_id)
        wanted.setdefault(key, []).append(record.commit_log_offset)
    found = decode(store).by_queue()
    assert {(t, q): rows.commit_log_offset.tolist() for t, q, rows in found} == wanted
