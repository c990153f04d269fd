"""Requests that are never answered take no room of those that come later."""

from __future__ import annotations

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.broker_controller import BrokerController
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.headers import EndTransactionRequestHeader
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RemotingCommand
from rmqnet.remoting.remoting_server import RemotingServerConfig
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout.message import TRANSACTION_NOT_TYPE
from tests.rmqnet.broker.small_broker import pull_header, send_header
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

_LIMIT = 4000
_WAITS = {"sys_flag": 6, "suspend_timeout_millis": 60_000}


@pytest.fixture
def controller(tmp_path):
    store_config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 20
    )
    limits = RemotingServerConfig(max_under_way_bytes=_LIMIT)
    with BrokerController(BrokerConfig(listen_port=0), store_config, limits=limits) as found:
        with RawClient(found.config.listen_port) as client:
            assert client.request(send_header("orders"), b"tea").code == ResponseCode.SUCCESS
        yield found


def _is_taken(controller):
    with RawClient(controller.config.listen_port) as client:
        return client.request(send_header("orders"), b"tea").code == ResponseCode.SUCCESS


def test_held_pulls_of_clients_that_are_gone(controller):
    holds = controller.broker.holds
    for _ in range(30):
        with RawClient(controller.config.listen_port) as client:
            client.send(RemotingCommand.request(pull_header("orders", 1, 0, **_WAITS)))
            wait_until(lambda: holds.waiting == 1, "the pull waits")
        wait_until(lambda: holds.waiting == 0, "it is forgotten")
    assert _is_taken(controller)


def test_one_way_pulls_wait_for_nothing(controller):
    with RawClient(controller.config.listen_port) as client:
        for _ in range(8):
            command = RemotingCommand.request(pull_header("orders", 1, 0, **_WAITS))
            command.flag |= ONEWAY_FLAG
            client.send(command)
            assert client.request(pull_header("orders", 1, 0)).code == ResponseCode.PULL_NOT_FOUND
    assert controller.broker.holds.waiting == 0


def test_transactions_whose_end_is_not_known(controller):
    header = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=0,
        commit_log_offset=0,
        commit_or_rollback=TRANSACTION_NOT_TYPE,
        from_transaction_check=False,
        msg_id="",
        transaction_id="",
    )
    with RawClient(controller.config.listen_port) as client:
        for _ in range(40):
            client.send(RemotingCommand.request(header, b"tea"))
        last = client.send(RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO)))
        while client.receive().opaque != last.opaque:
            pass
        wait_until(lambda: _is_taken(controller), "there is room again")
