# SPDX-License-Identifier: Apache-2.0
"""A broker's registration at name servers, some of which come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.registration import Registration
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.errors import RemotingConnectError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import RegisterBrokerResponseHeader
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class NameServers:
    """Two scripted name servers by their masters; one with None is gone."""

    def __init__(self, registration: Registration) -> None:
        self.masters: dict[str, str | None] = {"a:1": "old:10911", "b:1": "old:10911"}
        for address in self.masters:
            registration.in_process[address] = lambda request, address=address: self._answer(
                address, request
            )

    def _answer(self, address: str, request: RemotingCommand) -> RemotingCommand:
        master = self.masters[address]
        if master is None:
            raise RemotingConnectError(f"{address} is gone")
        header = RegisterBrokerResponseHeader(master_addr=master, ha_server_addr="")
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS, header=header)


@pytest.fixture
def registration(tmp_path: Path) -> Iterator[Registration]:
    config = BrokerConfig()
    config.namesrv_addr = "a:1;b:1"
    found = Registration(config, TopicConfigManager(config, str(tmp_path), lambda: 0))
    found.open()
    yield found
    found.close()


def masters(registration: Registration) -> Any:
    return {address: each.master_addr for address, each in registration.answers.items()}


def test_what_a_name_server_said_that_is_gone_does_not_count(registration: Registration) -> None:
    """Otherwise a slave would keep following the master it named, which may have been replaced."""
    servers = NameServers(registration)
    assert registration.run_once() is True
    servers.masters.update({"a:1": None, "b:1": "new:10911"})
    assert registration.run_once() is True
    assert masters(registration) == {"b:1": "new:10911"}


def test_while_none_answers_the_last_word_stands(registration: Registration) -> None:
    servers = NameServers(registration)
    registration.run_once()
    servers.masters.update({"a:1": None, "b:1": None})
    assert registration.run_once() is False
    assert masters(registration) == {"a:1": "old:10911", "b:1": "old:10911"}
