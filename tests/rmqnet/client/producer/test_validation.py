from __future__ import annotations

import pytest

from rmqnet.client.producer.validation import (
    MAX_MESSAGE_SIZE,
    check_group,
    check_message,
    check_properties,
    check_topic,
)
from rmqnet.errors import ClientError
from store_core.message import Message

# Which names Validators of RocketMQ 5.3.3 let pass: as a topic to send to, as a group.
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
    check_topic("%DLQ%" + "a" * 250)  # as brokers of 5.5 take it
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
