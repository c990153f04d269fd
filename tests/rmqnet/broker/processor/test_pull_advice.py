"""Where consumers are told to read next, as RocketMQ 5.3.3 tells them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.processor.pull_advice import advise
from rmqnet.remoting.codes import ResponseCode
from store_core import GetMessageStatus, MessageStoreConfig
from store_core.config.config_files import SubscriptionGroupConfig
from store_core.read.pull_records import PulledRecords

GROUP = SubscriptionGroupConfig("g", broker_id=3, which_broker_when_consume_slowly=7)
FOUND = PulledRecords(GetMessageStatus.FOUND, 1, 0, 1, b"x", 1)
NOTHING = PulledRecords(GetMessageStatus.OFFSET_OVERFLOW_ONE, 1, 0, 1)
MOVED = PulledRecords(GetMessageStatus.OFFSET_TOO_SMALL, 1, 1, 1)
CODES = {
    FOUND: ResponseCode.SUCCESS,
    NOTHING: ResponseCode.PULL_NOT_FOUND,
    MOVED: ResponseCode.PULL_OFFSET_MOVED,
}
AGAIN = ResponseCode.PULL_RETRY_IMMEDIATELY


def advice(found, *, role="SLAVE", broker_id=1, reads=True, has_master=True, is_far=False):
    store = SimpleNamespace(config=MessageStoreConfig(broker_role=role))
    config = BrokerConfig(broker_name="b", broker_id=broker_id, slave_read_enable=reads)
    broker = SimpleNamespace(
        config=config, store=store, min_broker_id=0 if has_master else broker_id
    )
    code = CODES[found]
    found = found._replace(suggest_pulling_from_slave=is_far)
    return tuple(advise(broker, GROUP, found, code))


@pytest.mark.parametrize("found", CODES)
def test_a_master_without_slaves_to_read_from(found):
    expected = (CODES[found], 0)
    assert advice(found, role="ASYNC_MASTER", broker_id=0, reads=False, is_far=True) == expected


def test_a_master_that_lets_slaves_be_read():
    master = {"role": "ASYNC_MASTER", "broker_id": 0}
    assert advice(FOUND, **master) == (ResponseCode.SUCCESS, 3)
    assert advice(FOUND, **master, is_far=True) == (ResponseCode.SUCCESS, 7)
    assert advice(MOVED, **master) == (ResponseCode.PULL_OFFSET_MOVED, 3)


def test_a_slave_sends_readers_back_to_its_master():
    assert advice(FOUND) == (ResponseCode.SUCCESS, 0)
    assert advice(NOTHING) == (AGAIN, 0)
    assert advice(MOVED) == (AGAIN, 0)


def test_a_slave_keeps_those_that_are_far_behind():
    assert advice(FOUND, is_far=True) == (ResponseCode.SUCCESS, 7)


def test_a_slave_whose_master_is_gone_answers_itself():
    assert advice(FOUND, has_master=False) == (ResponseCode.SUCCESS, 3)
    assert advice(NOTHING, has_master=False) == (ResponseCode.PULL_NOT_FOUND, 3)
    assert advice(MOVED, has_master=False) == (AGAIN, 3)
