# SPDX-License-Identifier: Apache-2.0
"""Registration of a broker with all its name servers, periodically and when topics change.

Source: RocketMQ ``BrokerOuterAPI``, ``BrokerController.registerBrokerAll`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from rmqnet.broker.stoppable_calls import StoppableCalls
from rmqnet.errors import RemotingError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqnet.remoting.registration_body import (
    RegistrationBody,
    body_crc32,
    encode_registration_body,
)
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.state.topic_config_manager import TopicConfigManager
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.remoting_client import RemotingClient

logger = logging.getLogger(__name__)

_PERM_READ, _PERM_WRITE = 4, 2
_LEAVE_S = 1.0
"""Timeout of the farewell; a name server also notices the end of the connection."""


class Registration(ServiceThread):
    """Registers a broker with its name servers.

    Attributes
    ----------
    ha_address
        ``host:port`` where slaves connect; empty if there is none.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        credentials: AclCredentials | None = None,
    ) -> None:
        super().__init__(config.register_period_ms, first_delay_ms=config.register_period_ms)
        self._config, self._topics, self.ha_address = config, topics, ""
        self._calls = StoppableCalls("broker-registration", credentials)
        self.answers: dict[str, RegisterBrokerResponseHeader] = {}
        self.in_process: dict[str, Callable[[RemotingCommand], RemotingCommand]] = {}

    @property
    def broker_address(self) -> str:
        """Address of the broker for clients, ``host:port``."""
        return f"{self._config.broker_ip1}:{self._config.listen_port}"

    def open(self) -> None:
        """Connect; `run_once` may be called from now on."""
        self._calls.start()

    def give_up(self) -> None:
        """Stop registering until the next `open`; calls in progress end."""
        self._calls.give_up()

    def shutdown(self) -> None:
        """End the thread, without waiting for name servers to answer."""
        self.give_up()
        super().shutdown()

    def close(self) -> None:
        """Unregister from name servers, and close the connections."""
        remoting = self._calls.remoting
        self._calls.shutdown(None if remoting is None else self._leave(remoting))

    def run_once(self) -> bool:
        """Register with all name servers; return whether one of them answered."""
        remoting = self._calls.remoting
        if remoting is None or not self._config.name_servers:
            return False
        try:
            return self._calls.run(self._register(remoting))
        except RemotingError as err:
            logger.info("cannot register this broker: %s", err)
            return False

    async def _register(self, remoting: RemotingClient) -> bool:
        body = self._body()
        header = RegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self.broker_address,
            cluster_name=self._config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=self._config.broker_id,
            enable_acting_master=False,
            compressed=self._config.compressed_register,
            body_crc32=body_crc32(body),
        )
        timeout_s = self._config.register_broker_timeout_mills / 1000
        requests = [RemotingCommand.request(header, body) for _ in self._config.name_servers]
        answered = await self._ask_all(remoting, requests, timeout_s)
        if answered:  # answers of those that are silent now may be outdated
            self.answers = {
                address: decode_header(RegisterBrokerResponseHeader, answer.ext_fields)
                for address, answer in answered.items()
            }
        return bool(answered)

    async def _leave(self, remoting: RemotingClient) -> None:
        header = UnRegisterBrokerRequestHeader(
            broker_name=self._config.broker_name,
            broker_addr=self.broker_address,
            cluster_name=self._config.broker_cluster_name,
            broker_id=self._config.broker_id,
        )
        requests = [RemotingCommand.request(header) for _ in self._config.name_servers]
        await self._ask_all(remoting, requests, _LEAVE_S)

    async def _ask_all(
        self, remoting: RemotingClient, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> dict[str, RemotingCommand]:
        """Send a request to each name server; return the successful answers."""
        addresses = self._config.name_servers
        answers = await asyncio.gather(
            *(
                self._ask(remoting, address, request, timeout_s)
                for address, request in zip(addresses, requests)
            ),
            return_exceptions=True,
        )
        done = {}
        for address, answer in zip(addresses, answers):
            if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
                done[address] = answer
            elif isinstance(answer, (RemotingError, RemotingCommand)):
                logger.warning("name server %s does not know this broker: %s", address, answer)
            elif isinstance(answer, BaseException):
                raise answer
        return done

    async def _ask(
        self, remoting: RemotingClient, address: str, request: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        answer = self.in_process.get(address)
        if answer is None:
            return await remoting.invoke(address, request, timeout_s)
        return answer(request)

    def _body(self) -> bytes:
        permission = self._config.broker_permission
        topics = self._topics.all()
        if permission & (_PERM_READ | _PERM_WRITE) != _PERM_READ | _PERM_WRITE:
            topics = {
                name: replace(config, perm=config.perm & permission)
                for name, config in topics.items()
            }
        content = RegistrationBody(topics, self._topics.data_version)
        return encode_registration_body(content, compressed=self._config.compressed_register)
