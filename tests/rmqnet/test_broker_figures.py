"""What exporters and consoles ask a served broker, and whether it is of this moment."""

from __future__ import annotations

import json

import pytest

from rmqnet import Admin, Message, Producer, serve
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import GetMaxOffsetRequestHeader, ViewBrokerStatsDataRequestHeader
from tests.rmqnet.remoting.raw_client import RawClient

SETTINGS = {"brokerName": "b", "mappedFileSizeCommitLog": "4194304"}
# Those that rocketmq-exporter takes for numbers (BrokerRuntimeStats): without one it shows none.
EXPORTED = {
    "msgPutTotalTodayNow",
    "putMessageDistributeTime",
    "putTps",
    "getMissTps",
    "getTransferredTps",
    "getTotalTps",
    "getFoundTps",
    "commitLogDirCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "remainHowManyDataToFlush",
    "msgGetTotalTodayNow",
    "queryThreadPoolQueueSize",
    "bootTimestamp",
    "pullThreadPoolQueueSize",
    "commitLogMinOffset",
    "runtime",
    "dispatchMaxBuffer",
    "brokerVersion",
    "consumeQueueDiskRatio",
    "pageCacheLockTimeMills",
    "commitLogDiskRatio",
    "commitLogMaxOffset",
    "getMessageEntireTimeMax",
    "putMessageTimesTotal",
    "brokerVersionDesc",
    "sendThreadPoolQueueSize",
    "startAcceptSendRequestTimeStamp",
    "putMessageEntireTimeMax",
    "earliestMessageTimeStamp",
    "remainTransientStoreBufferNumbs",
    "queryThreadPoolQueueCapacity",
    "putMessageAverageSize",
    "dispatchBehindBytes",
    "putMessageSizeTotal",
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueCapacity",
    "msgPutTotalYesterdayMorning",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgGetTotalTodayMorning",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    with serve(tmp_path_factory.mktemp("store"), settings=SETTINGS) as served:
        yield served


@pytest.fixture
def raw(served):
    with RawClient(int(served.address.rpartition(":")[2])) as client:
        yield client


def test_all_that_exporters_need_is_there(served) -> None:
    with Admin(served.namesrv_addr) as admin:
        figures = admin.broker_stats("b")
    assert set(figures) >= EXPORTED
    assert figures["sendThreadPoolQueueHeadWaitTimeMills"] == "0"
    assert figures["remainTransientStoreBufferNumbs"] == str(2**31 - 1)


def test_a_queue_ends_after_the_message_that_was_acknowledged(served, raw: RawClient) -> None:
    with Admin(served.namesrv_addr) as admin, Producer("p", served.namesrv_addr) as producer:
        admin.create_topic("ends", 1)
        for _ in range(20):
            for _ in range(24):
                sent = producer.send(Message("ends", b"x" * 100))
            answer = raw.request(GetMaxOffsetRequestHeader("ends", 0))
            assert answer.ext_fields["offset"] == str(sent.queue_offset + 1)
            (stats,) = admin.topic_stats("ends").values()
            assert stats.max_offset == sent.queue_offset + 1


def test_what_was_counted_of_a_topic_is_told(served, raw: RawClient) -> None:
    with Producer("p", served.namesrv_addr) as producer:
        producer.send(Message("counted", b"x" * 100))
    answer = raw.request(ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "counted"))
    assert answer.code == ResponseCode.SUCCESS
    told = json.loads(answer.body)
    assert set(told) == {"statsMinute", "statsHour", "statsDay"}
    assert all(part["sum"] == 1 and part["avgpt"] == 1 for part in told.values())
    answer = raw.request(ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "never"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The stats <TOPIC_PUT_NUMS> <never> not exist"
