from __future__ import annotations

import pytest

from store_core.codec.properties import verify_property_crc
from store_core.message import Message
from store_core.results import PutMessageStatus
from tests.store_core.putting import Log

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
TOO_MANY = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED


def batch(count, size=10, **fields):
    return [Message("T", bytes([n]) * size, **fields) for n in range(count)]


def test_a_batch_lies_in_one_segment(log):
    log.put_ok(body=bytes(700))
    before = log.queue.max_offset
    result = log.putter.put_messages(batch(3, born_host="[::1]:5", properties={"WAIT": "false"}))
    appended = result.append_result
    size = appended.store_size // 3
    assert (appended.commit_log_offset, appended.queue_offset, appended.message_num) == (1024, 1, 3)
    ids = [f"C0A8070800002A9F{offset:016X}" for offset in (1024, 1024 + size, 1024 + 2 * size)]
    assert appended.message_id == ",".join(ids)
    assert [r.queue_offset for r in log.records()] == [0, 1, 2, 3]
    assert [r.body[:1] for r in log.records()[1:]] == [b"\0", b"\1", b"\2"]
    assert before < 1024
    assert log.flush.calls[1:] == [(1024 + 3 * size, False)]
    assert log.stats.puts[1:] == [(3, 3 * size, 0)]
    assert log.put_ok().queue_offset == 4


def test_the_property_crc_of_every_record_is_right(tmp_path):
    log = Log(tmp_path, enabled_append_prop_crc=True)
    messages = [
        Message("T", b"x", properties_raw=raw) for raw in (b"", b"a\1b", b"__CRC32#\0011\2")
    ]
    log.putter.put_messages(messages)
    data = log.bytes()
    for record in log.records():
        at = record.commit_log_offset
        assert verify_property_crc(data[at : at + record.total_size]) is True
    assert [len(r.properties_raw) for r in log.records()] == [20, 24, 20]


@pytest.mark.parametrize(
    ("bad", "status", "reason"),
    [
        (Message("U"), ILLEGAL, "one topic and one queue"),
        (Message("T", queue_id=1), ILLEGAL, "one topic and one queue"),
        (Message("T", sys_flag=8), ILLEGAL, "transaction"),
        (Message("T", sys_flag=0x80), ILLEGAL, "inner batch"),
        (Message("T", properties={"DELAY": "3"}), ILLEGAL, "delayed"),
        (Message("T", properties={"DELAY": "three"}), ILLEGAL, "whole number"),
        (Message("T", properties={"TRAN_MSG": "True"}), ILLEGAL, "transaction"),
        (Message("T", properties={"INNER_NUM": "3"}), ILLEGAL, "INNER_NUM"),
        (Message("T", None), ILLEGAL, "None"),
        (Message("T", properties={"a": "v" * 33000}), TOO_MANY, "fit"),
        (Message("T", bytes(900)), ILLEGAL, "the messages of the batch have 966 bytes"),
        (Message("T", flag=1 << 40), ILLEGAL, "does not fit its field"),
    ],
)  # fmt: skip
def test_all_or_none(tmp_path, bad, status, reason):
    log = Log(tmp_path, 1 << 16, max_message_size=950)
    result = log.putter.put_messages([Message("T"), Message("T"), bad])
    assert (result.status, result.append_result) == (status, None)
    assert reason in result.reason
    assert (log.records(), log.offsets.simple, log.stats.failures) == ([], {}, 1)
    log.queue.close()


def test_a_level_of_zero_is_no_delay(log):
    assert log.putter.put_messages([Message("T", properties={"DELAY": "0"})]).is_appended


def test_a_batch_that_no_segment_holds_changes_nothing(log):
    log.put_ok()
    before = log.bytes()
    result = log.putter.put_messages(batch(10, 50))
    assert (result.status, log.bytes()) == (ILLEGAL, before)
    assert log.put_ok().queue_offset == 1


def test_an_empty_batch_and_a_store_that_is_shut_down(log):
    with pytest.raises(ValueError, match="at least one"):
        log.putter.put_messages([])
    log.refusal = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert log.putter.put_messages(batch(1)).status is log.refusal
