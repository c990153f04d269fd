# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqnet.client.received_messages import messages_from_body
from rmqnet.errors import RemotingFormatError
from store_core import MessageStoreConfig, StoreSnapshot
from store_core.codec.compression import CorruptBodyError, deflate
from store_core.codec.message_codec import decode_message, encode_message
from store_core.codec.message_id import parse_host
from store_core.errors import CorruptRecordError
from store_core.layout import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH_FLAG,
    MESSAGE_MAGIC_CODE_V2,
)
from store_core.message import Message, messages_from_record
from tests.both_paths import KERNEL, by_both, needs_kernel
from tests.examples import examples
from tests.golden_store import golden

STORE = "broker-a@10.0.0.1:10911"


def _record(body: bytes = b"body", **fields: object) -> bytes:
    settings: dict[str, object] = {
        "topic": b"orders",
        "body": body,
        "properties_raw": b"TAGS\x01red\x02",
        "commit_log_offset": 4711,
        "queue_offset": 7,
        "queue_id": 3,
        "born_timestamp": 1,
        "born_host": parse_host("10.0.0.9:5000"),
        "store_timestamp": 2,
        "store_host": parse_host("10.0.0.1:10911"),
    }
    return encode_message(**{**settings, **fields})  # type: ignore[arg-type]


def test_records_become_messages() -> None:
    first, second = messages_from_body(_record() + _record(b"", commit_log_offset=9), STORE)
    assert (first.body, first.tags, first.queue_offset, first.queue_id) == (b"body", "red", 7, 3)
    assert (first.commit_log_offset, second.commit_log_offset) == (4711, 9)
    assert first.store == STORE
    assert messages_from_body(b"", STORE) == []


@pytest.mark.parametrize("kind", [0, COMPRESSION_LZ4, COMPRESSION_ZSTD, COMPRESSION_ZLIB])
def test_bodies_are_inflated(kind: int) -> None:
    sys_flag = COMPRESSED_FLAG | kind
    record = _record(deflate(b"x" * 5000, sys_flag), sys_flag=sys_flag)
    (message,) = messages_from_body(record, STORE)
    assert message.body == b"x" * 5000


def test_hosts_may_be_ipv6_and_topics_long() -> None:
    host = parse_host("[2001:db8:0:0:0:0:0:17]:5000")
    record = _record(
        topic=b"t" * 200, born_host=host, store_host=host, magic_code=MESSAGE_MAGIC_CODE_V2
    )
    (message,) = messages_from_body(record, STORE)
    assert (message.topic, message.born_host) == ("t" * 200, "[2001:db8:0:0:0:0:0:17]:5000")


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-4x", "batch-5x"])
def test_records_of_real_brokers(name: str) -> None:
    """A broker answers a pull with the records of its log, unchanged."""
    store = golden(name)
    config = MessageStoreConfig.from_properties(store.config_properties)
    count = 0
    with StoreSnapshot(store.root, config) as snapshot:
        for topic, queue_id in [*snapshot.queue_paths, *snapshot.batch_queue_paths]:
            first = snapshot.queue_range(topic, queue_id).min_offset
            expected = snapshot.get_message("group", topic, queue_id, first, 32).messages
            body = b"".join(_stored_bytes(store.root, expected))
            assert messages_from_body(body, str(store.root)) == list(expected)
            count += len(expected)
    assert count > 100


def _stored_bytes(root: Path, messages: Sequence[Message]) -> Iterator[bytes]:
    """Yield the bytes of each record; the messages of an inner batch share one."""
    places = {message.commit_log_offset: message.store_size for message in messages}
    segments = {int(path.name): path for path in (root / "commitlog").iterdir()}
    for offset, size in places.items():
        base = max(each for each in segments if each <= offset)
        with segments[base].open("rb") as file:
            file.seek(offset - base)
            yield file.read(size)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (_record()[:-1], "byte 0, after 0 messages: a record of"),
        (_record() + b"\x00\x00", "after 1 messages: only 2 bytes are left"),
        (_record() + bytes(200), "magic code 0x00000000"),
        (
            _record(b"no batch", sys_flag=COMPRESSED_FLAG | INNER_BATCH_FLAG),
            "the zlib body of 8 bytes is damaged",
        ),
    ],
)
def test_a_damaged_body_is_named(body: bytes, named: str) -> None:
    with pytest.raises(RemotingFormatError, match=f"^{STORE}: its answer for queue 3") as caught:
        messages_from_body(body, STORE, "queue 3 from offset 7")
    assert named in str(caught.value)


def test_a_body_that_cannot_be_inflated_is_given_as_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged = _record(b"no zlib", sys_flag=COMPRESSED_FLAG)
    first, second, third = messages_from_body(_record() + damaged + _record(), STORE, "queue 3")
    assert (first.body, second.body, third.body) == (b"body", b"no zlib", b"body")
    assert second.sys_flag & COMPRESSED_FLAG
    assert second.tags == "red"
    assert "for queue 3: the body at offset 7 is returned as stored" in caplog.text


def test_a_cut_at_each_byte_is_seen() -> None:
    body = _record() + _record(b"another")
    whole = {0, len(_record()), len(body)}
    for length in set(range(len(body))) - whole:
        with pytest.raises(RemotingFormatError):
            messages_from_body(body[:length], STORE)


_BYTES = st.binary(max_size=40)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "topic": st.sampled_from([b"orders", b"\xff\xed\xa0\x80", b"t" * 127, b"t" * 128]),
                "body": _BYTES,
                "properties_raw": st.sampled_from(
                    [b"", b"TAGS\x01a\x02KEYS\x01x y\x02", b"\x01\x02"]
                ),
                "commit_log_offset": st.integers(0, 2**62),
                "queue_offset": st.integers(0, 2**62),
                "queue_id": st.integers(-1, 99),
                "flag": st.integers(-9, 9),
                "sys_flag": st.sampled_from([0, 4, 8]),
                "born_timestamp": st.integers(0, 2**40),
                "born_host": st.sampled_from(
                    [parse_host("1.2.3.4:5"), parse_host("[2001:db8:0:0:0:0:0:17]:5000")]
                ),
                "reconsume_times": st.integers(0, 16),
                "prepared_transaction_offset": st.integers(0, 2**50),
            }
        )
    ),
    st.randoms(use_true_random=False),
)
def test_the_short_way_is_the_general_way(records, random) -> None:
    body = b"".join(_record(**each) for each in records)
    general = [
        each
        for record in records
        for each in messages_from_record(
            decode_message(_record(**record), 0, record["commit_log_offset"], STORE), STORE
        )
    ]
    assert messages_from_body(body, STORE) == general
    assert general == messages_from_body(body, STORE)
    for each, wanted in zip(messages_from_body(body, STORE), general):
        names = list(vars(wanted))
        random.shuffle(names)
        assert {name: getattr(each, name) for name in names} == vars(wanted)
        assert (each.tags, each.keys, repr(each)) == (wanted.tags, wanted.keys, repr(wanted))


def test_kept_and_sent_to_other_processes() -> None:
    (message,) = messages_from_body(_record(), STORE)
    message.topic = "other"
    for same in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert same == message
        assert (same.topic, same.tags, same.born_host) == ("other", "red", "10.0.0.9:5000")
    with pytest.raises(AttributeError, match="nonsense"):
        message.nonsense  # noqa: B018
    assert message != messages_from_body(_record(b"else"), STORE)[0]
    assert message != "message"


@given(st.integers(0, 2 * len(_record()) - 1), st.integers(0, 255))
def test_damage_is_what_the_general_way_finds(position: int, value: int) -> None:
    size = len(_record())
    body = bytearray(_record() * 2)
    body[position] = value
    first = position // size * size  # of the record that is damaged
    at = int.from_bytes(body[first + 28 : first + 36], "big", signed=True)
    try:
        wanted = messages_from_record(decode_message(body, first, at, STORE), STORE)
    except CorruptBodyError:
        return  # returned as stored, see above
    except CorruptRecordError:
        with pytest.raises(RemotingFormatError):
            messages_from_body(bytes(body), STORE)
        return
    if wanted[0].store_size != size:
        return  # the start of the next record cannot be known
    assert messages_from_body(bytes(body), STORE)[first // size] == wanted[0]


def _outcome(body: bytes) -> object:
    """Return the messages of a body, or the text of its error."""
    try:
        return messages_from_body(body, STORE)
    except RemotingFormatError as err:
        return str(err)


@needs_kernel
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_the_kernel_finds_the_records_that_python_finds(drawn: st.DataObject) -> None:
    v6 = parse_host("[2001:db8:0:0:0:0:0:17]:5000")
    kinds: list[dict[str, object]] = [
        {},
        {"body": b"", "topic": b"", "properties_raw": b""},
        {"topic": "t\u00e9".encode() * 40, "queue_offset": -1},
        {"topic": b"t" * 200, "magic_code": MESSAGE_MAGIC_CODE_V2},
        {"sys_flag": COMPRESSED_FLAG | COMPRESSION_ZLIB},
        {"store_host": v6},
    ]
    chosen = drawn.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    body = bytearray(b"".join(_record(**fields) for fields in chosen))
    for _ in range(drawn.draw(st.integers(0, 2))):
        body[drawn.draw(st.integers(0, len(body) - 1))] = drawn.draw(st.integers(0, 255))
    data = bytes(body[: drawn.draw(st.just(len(body)) | st.integers(0, len(body)))])
    numpy, kernel = by_both(lambda: _outcome(data))
    assert kernel == numpy


@needs_kernel
def test_the_kernel_finds_all_plain_records_itself() -> None:
    body = _record() + _record(b"") + _record(sys_flag=COMPRESSED_FLAG) + _record()
    size = len(_record())
    first, second = KERNEL.plain_records(body, 0, COMPRESSED_FLAG)
    assert (first[0], first[-2], second[0], first[-1]) == (0, size, size, 7)
    assert KERNEL.plain_records(body, len(body), 0) == []
    for begin in (-1, len(body) + 1):
        with pytest.raises(ValueError, match="inside the data"):
            KERNEL.plain_records(body, begin, 0)
    with pytest.raises(TypeError, match="expected 3"):
        KERNEL.plain_records(body)


def test_an_attribute_that_was_set_is_kept() -> None:
    (message,) = messages_from_body(_record(reconsume_times=3, flag=5), STORE)
    message.flag = 6
    assert (message.reconsume_times, message.flag, message.store_size) == (3, 6, len(_record()))
    message.reconsume_times += 1
    assert message.reconsume_times == 4
