# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
import struct
import threading
import time
import zlib

import pytest

from rmqnet.client.producer import unique_keys
from rmqnet.client.producer.message_batch import encoded_batch, outgoing_batch
from rmqnet.client.producer.outgoing_message import outgoing_message
from rmqnet.client.producer.producer_config import Compression, ProducerConfig
from rmqnet.client.producer.unique_keys import UniqueKeys
from rmqnet.client.producer.validation import (
    MAX_MESSAGE_SIZE,
    check_group,
    check_message,
    check_properties,
    check_topic,
)
from rmqnet.errors import ClientError
from store_core.codec.compression import inflate
from store_core.codec.inner_columns import split_inner_batch
from store_core.codec.message_codec import string_to_properties
from store_core.codec.message_id import month_start_ms
from store_core.message import Message

MIB = 1 << 20
KEYS = UniqueKeys(b"\x0a\x00\x00\x07")
PLAIN = Compression()
ADDRESS = b"\x0a\x00\x00\x07"
# Names that Validators of RocketMQ 5.3.3 accept: as a topic to send to, as a group.
NAMES = [
    ("orders", True, True),
    ("%RETRY%g", True, True),
    ("%DLQ%g", True, True),
    ("a|b-c_D9", True, True),
    ("", False, False),
    ("  ", False, False),
    ("\t\n", False, False),
    ("a b", False, False),
    ("a.b", False, False),
    ("a/b", False, False),
    ("\u00e4", False, False),
    ("a\U0001f600", False, False),
    ("a" * 127, True, True),
    ("a" * 128, False, True),
    ("a" * 255, False, True),
    ("a" * 256, False, False),
    ("a\n", False, False),
    ("SCHEDULE_TOPIC_XXXX", False, True),
    ("RMQ_SYS_TRANS_HALF_TOPIC", False, True),
    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", False, True),
    ("TRANS_CHECK_MAX_TIME_TOPIC", False, True),
    ("SELF_TEST_TOPIC", False, True),
    ("OFFSET_MOVED_EVENT", False, True),
    ("TBW102", True, True),
    ("BenchmarkTest", True, True),
    ("rmq_sys_wheel_timer", True, True),
    ("RMQ_SYS_TRACE_TOPIC", True, True),
    ("CHECKPOINT_TOPIC", True, True),
]


def properties_of(text: str) -> dict[str, str]:
    return string_to_properties(text.encode())


def outgoing(message: Message, compression: Compression = PLAIN, **more: str):
    return outgoing_message(message, KEYS, compression, 4 * MIB, more)


def test_a_message_is_sent_as_java_sends_it():
    message = Message("t", b"body", tags="a", keys=["k1", "k2"], flag=7, properties={"c": "ä"})
    sent = outgoing(message)
    assert properties_of(sent.properties) == {
        "WAIT": "true",
        "TAGS": "a",
        "KEYS": "k1 k2",
        "c": "ä",
        "UNIQ_KEY": message.unique_key,
    }
    assert sent.properties.endswith("\x02")
    assert (sent.topic, sent.body, sent.flag, sent.sys_flag) == ("t", b"body", 7, 0)
    assert sent.message_id == message.unique_key
    assert not sent.batch


def test_a_message_keeps_its_own_unique_key_and_wait():
    message = Message("t", b"x", unique_key="MINE", properties={"WAIT": "false"})
    sent = outgoing(message)
    assert sent.message_id == "MINE"
    assert properties_of(sent.properties)["WAIT"] == "false"


def test_more_properties_are_of_this_time_only():
    message = Message("t", b"x", properties={"DELAY": "1"})
    assert properties_of(outgoing(message, DELAY="3").properties)["DELAY"] == "3"
    assert message.properties["DELAY"] == "1"


def test_half_messages_have_their_flag():
    assert outgoing(Message("t", b"x"), TRAN_MSG="true").sys_flag == 4
    assert outgoing(Message("t", b"x", properties={"TRAN_MSG": "false"})).sys_flag == 0


@pytest.mark.parametrize("length", [3, 5000])
def test_what_is_sent_is_what_a_buffer_held_then(length):
    buffer = bytearray(random.Random(1).randbytes(length))
    before = bytes(buffer)
    sent = outgoing(Message("t", buffer))
    buffer[:] = bytes(length)
    assert sent.body == before


@pytest.mark.parametrize(("kind", "flag"), [("ZLIB", 0x301), ("LZ4", 0x101), ("ZSTD", 0x201)])
def test_long_bodies_are_compressed(kind, flag):
    compression = Compression(kind=kind)
    body = b"0123456789abcdef" * 256
    sent = outgoing(Message("t", body), compression)
    assert sent.sys_flag == flag
    assert len(sent.body) < len(body)
    assert inflate(sent.body, sent.sys_flag) == body
    assert outgoing(Message("t", body[:-1]), compression).sys_flag == 0


def test_the_level_counts():
    body = bytes(range(256)) * 64
    sent = outgoing(Message("t", body), Compression(level=9))
    assert sent.body == zlib.compress(body, 9)


def test_bodies_that_do_not_shrink_stay_as_they_are():
    import random

    body = random.Random(1).randbytes(5000)
    sent = outgoing(Message("t", body))
    assert (sent.body, sent.sys_flag) == (body, 0)


def test_settings_of_compression_are_checked():
    assert ProducerConfig().compression == PLAIN
    with pytest.raises(ClientError, match="compress_type='GZIP': expected one of ZLIB, LZ4, ZSTD"):
        ProducerConfig(compress_type="GZIP")
    with pytest.raises(ClientError, match="compress_level=10: must be 0 to 9"):
        ProducerConfig(compress_level=10)


def test_retry_topics_have_their_counters_in_the_header():
    properties = {"RECONSUME_TIME": "2", "MAX_RECONSUME_TIMES": "16"}
    sent = outgoing(Message("%RETRY%g", b"x", properties=properties))
    assert (sent.reconsume_times, sent.max_reconsume_times) == (2, 16)
    sent = outgoing(Message("t", b"x", properties=properties))
    assert (sent.reconsume_times, sent.max_reconsume_times) == (0, None)


@pytest.mark.parametrize("bad", [{"a\x01b": "1"}, {"a\x02": "1"}, {"a": "1\x022"}])
def test_separators_in_properties_are_refused(bad):
    with pytest.raises(ClientError, match=r"topic 't' holds U\+0001 or U\+0002"):
        outgoing(Message("t", b"x", properties=bad))


def test_a_value_may_hold_the_first_separator():
    sent = outgoing(Message("t", b"x", properties={"a": "1\x012"}))
    assert properties_of(sent.properties)["a"] == "1\x012"


def test_too_many_properties_are_refused():
    outgoing(Message("t", b"x", properties={"a": "b" * 32000}))
    with pytest.raises(ClientError, match="more than 32767"):
        outgoing(Message("t", b"x", properties={"a": "ä" * 16384}))


# MessageDecoder.encodeMessages of RocketMQ 5.3.3; its order of properties is that of a HashMap.
JAVA_BATCH = bytes.fromhex(
    "00000044000000000000000000000007000000056669727374002963c3a40176f09f9880024b455953016b31206b32"
    "025741495401747275650254414753017461674102"
    "000000210000000000000000ffffffff0000000178000a57414954017472756502"
)


def test_a_batch_holds_what_java_encodes():
    first = Message(
        "t",
        b"first",
        flag=7,
        properties={"cä": "v\U0001f600", "KEYS": "k1 k2", "WAIT": "true", "TAGS": "tagA"},
    )
    second = Message("t", b"x", flag=-1, properties={"WAIT": "true"})
    sent = outgoing_batch([first, second], KEYS, 4 * MIB)
    ours, javas = split_inner_batch(sent.body), split_inner_batch(JAVA_BATCH)
    assert [(item.flag, item.body) for item in ours] == [(item.flag, item.body) for item in javas]
    for item, java_item, message in zip(ours, javas, (first, second)):
        expected = string_to_properties(java_item.properties_raw)
        assert string_to_properties(item.properties_raw) == {
            **expected,
            "UNIQ_KEY": message.unique_key,
        }
        assert item.properties_raw.startswith(java_item.properties_raw)


def test_the_bytes_of_a_batch_are_those_of_java():
    item = Message("t", b"x", flag=-1, properties={"UNIQ_KEY": "K", "WAIT": "true"})
    plain = Message("t", b"x", flag=-1, properties={"WAIT": "true", "UNIQ_KEY": ""})
    del plain.properties["UNIQ_KEY"]
    sent = outgoing_batch([item], KEYS, MIB)
    # total size, magic, CRC, flag, body length, body, properties length, properties
    assert (
        sent.body
        == bytes.fromhex("0000002c0000000000000000ffffffff00000001780015")
        + b"UNIQ_KEY\x01K\x02WAIT\x01true\x02"
    )


def test_a_batch_has_the_ids_of_all():
    messages = [Message("t", b"1"), Message("t", b"2", unique_key="MINE")]
    sent = outgoing_batch(messages, KEYS, MIB)
    assert sent.message_id == f"{messages[0].unique_key},MINE"
    assert sent.batch
    own = properties_of(sent.properties)
    assert own == {"WAIT": "true"}


def test_a_batch_that_does_not_wait_says_so():
    messages = [Message("t", b"1", properties={"WAIT": "false"}) for _ in range(2)]
    sent = outgoing_batch(messages, KEYS, MIB)
    assert properties_of(sent.properties)["WAIT"] == "false"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "has no messages"),
        ([Message("t", b"1", properties={"TIMER_DELAY_MS": "1"})], "a delayed message"),
        ([Message("t", b"1", properties={"TIMER_DELAY_SEC": "1"})], "a delayed message"),
        (
            [Message("t", b"1", properties={"TIMER_DELIVER_MS": "4102444800000"})],
            "a delayed message",
        ),
        ([Message("t", b"1"), Message("u", b"1")], "'t' and to 'u': send one batch per topic"),
        ([Message("t", b"1", properties={"DELAY": "1"})], "'t' has a delayed message"),
        ([Message("%RETRY%g", b"1")], "retry topic '%RETRY%g'"),
        ([Message("t", b"1"), Message("t", b"1", properties={"WAIT": "false"})], "WAIT"),
        ([Message("t", b"1"), Message("t", b"")], "has no body"),
        ([Message("t", bytes(600)), Message("t", bytes(600))], r"of 2 messages .* 1000: send"),
        ([Message("t", b"1")] * 32_768, r"has 32768 messages, at most 32767"),
    ],
)
def test_what_is_no_batch_is_refused(messages, why):
    with pytest.raises(ClientError, match=why):
        outgoing_batch(messages, KEYS, 1000)


def test_a_batch_made_elsewhere_is_sent_as_it_is():
    sent = encoded_batch("t", JAVA_BATCH, ["A", "B"], MIB, wait=False)
    assert (sent.body, sent.message_id) == (JAVA_BATCH, "A,B")
    assert properties_of(sent.properties) == {"WAIT": "false"}


def test_an_id_says_who_and_when():
    before_ms = time.time_ns() // 1_000_000
    raw = bytes.fromhex(UniqueKeys(ADDRESS).next_key())
    after_ms = time.time_ns() // 1_000_000
    address, process, _, since_ms, count = struct.unpack(">4sHiIH", raw)
    assert (address, process, count) == (ADDRESS, os.getpid() & 0xFFFF, 0)
    assert before_ms <= month_start_ms(before_ms) + since_ms <= after_ms


def test_ids_are_upper_case_hex_also_of_long_addresses():
    key = UniqueKeys(bytes(range(0xF0, 0x100))).next_key()
    assert len(key) == 56
    assert key == key.upper()
    assert len(UniqueKeys(ADDRESS).next_key()) == 32


def test_ids_differ_in_all_threads():
    keys, given = UniqueKeys(ADDRESS), []
    threads = [
        threading.Thread(target=lambda: given.extend([keys.next_key() for _ in range(5000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == 20_000


def test_two_processes_of_one_number_differ():
    one, other = UniqueKeys(ADDRESS).next_key(), UniqueKeys(ADDRESS).next_key()
    assert one[8:12] == other[8:12]
    assert one[12:20] != other[12:20]


def test_a_new_month_begins_at_zero(monkeypatch):
    keys = UniqueKeys(ADDRESS)
    start = month_start_ms(time.time_ns() // 1_000_000)
    later_ms = month_start_ms(start + 40 * 86_400_000) + 1234
    monkeypatch.setattr(unique_keys.time, "time_ns", lambda: later_ms * 1_000_000)
    assert int(keys.next_key()[20:28], 16) == 1234


def test_the_counter_starts_anew_after_two_bytes():
    keys = UniqueKeys(ADDRESS)
    counts = [int(keys.next_key()[28:], 16) for _ in range(65_537)]
    assert counts[-2:] == [65_535, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_ids_of_its_own():
    keys = UniqueKeys(ADDRESS)
    keys.next_key()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, keys.next_key().encode())
        os._exit(0)
    os.waitpid(child, 0)
    given = os.read(read_end, 100).decode()
    os.close(read_end)
    os.close(write_end)
    assert given[:20] != keys.next_key()[:20]


def test_threads_of_a_forked_child_have_none_of_its_parents(monkeypatch):
    keys = UniqueKeys(ADDRESS)
    parents = keys.next_key()[:20]
    given = []

    class AskedMeanwhile(unique_keys.random.SystemRandom):
        def randrange(self, *bounds):
            if not given:  # as another thread does while the first one starts
                given.append("")
                given.append(keys.next_key())
            return super().randrange(*bounds)

    monkeypatch.setattr(unique_keys.random, "SystemRandom", AskedMeanwhile)
    child = os.getpid() + 1
    monkeypatch.setattr(unique_keys.os, "getpid", lambda: child)
    given.append(keys.next_key())
    assert len(given) == 3
    assert parents not in {key[:20] for key in given}


def passes(check, name: str) -> bool:
    try:
        check(name)
    except ClientError:
        return False
    return True


@pytest.mark.parametrize(("name", "as_topic", "as_group"), NAMES)
def test_names_pass_where_they_do_in_java(name, as_topic, as_group):
    assert passes(check_topic, name) is as_topic
    assert passes(check_group, name) is as_group


def test_the_default_group_is_refused():
    with pytest.raises(ClientError, match="DEFAULT_PRODUCER"):
        check_group("DEFAULT_PRODUCER")


def test_errors_name_what_is_wrong():
    with pytest.raises(ClientError, match=r"topic 'a b' has characters other than"):
        check_topic("a b")
    with pytest.raises(ClientError, match=r"topic has 128 characters, at most 127"):
        check_topic("a" * 128)
    check_topic("%DLQ%" + "a" * 250)  # as brokers of 5.5 read it
    with pytest.raises(ClientError, match=r"topic has 256 characters, at most 255"):
        check_topic("%RETRY%" + "a" * 249)
    with pytest.raises(ClientError, match=r"'SELF_TEST_TOPIC' is the broker's own"):
        check_topic("SELF_TEST_TOPIC")
    with pytest.raises(ClientError, match="the group is blank"):
        check_group(" ")


def test_bodies_have_one_byte_to_the_most_allowed():
    check_message(Message("t", b"x"), 1)
    check_message(Message("t", bytes(MAX_MESSAGE_SIZE)), MAX_MESSAGE_SIZE)
    with pytest.raises(ClientError, match="topic 't' has no body"):
        check_message(Message("t", b""), 1)
    with pytest.raises(ClientError, match=r"'t' has a body of 5 bytes, more than .* 4$"):
        check_message(Message("t", b"12345"), 4)


def test_flags_have_32_bits():
    check_message(Message("t", b"x", flag=-(1 << 31)), 9)
    for flag in (1 << 31, 0.5, "1"):
        with pytest.raises(ClientError, match="a number of 32 bits"):
            check_message(Message("t", b"x", flag=flag), 9)


def test_light_queues_have_no_slash():
    check_message(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}), 9)
    with pytest.raises(ClientError, match="INNER_MULTI_DISPATCH"):
        check_message(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a/b"}), 9)


def test_properties_have_a_bound():
    check_properties("t", 32767)
    with pytest.raises(ClientError, match="'t' has properties of 32768 bytes, more than 32767"):
        check_properties("t", 32768)
