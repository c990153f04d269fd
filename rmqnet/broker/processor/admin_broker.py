"""Requests of administrators.

Source: RocketMQ ``AdminBrokerProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from rmqnet.broker.processor.admin_groups import AdminClients, AdminGroups
from rmqnet.broker.processor.admin_offsets import AdminOffsets, AdminResets
from rmqnet.broker.processor.admin_runtime import AdminRuntime, AdminTimers
from rmqnet.broker.processor.admin_topics import AdminQueues, AdminTopics
from rmqnet.broker.processor.message_checks import RefusedError
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.errors import StoreError

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools
    from rmqnet.broker.processor.bodies import AdminHandler
    from rmqnet.remoting.remoting_server import RemotingServer
    from rmqnet.remoting.server_connection import ServerConnection

logger = logging.getLogger(__name__)


class AdminBrokerProcessor:
    """Answers administrators; each kind of question has a class of its own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def register(self, server: RemotingServer, pools: Pools) -> None:
        """Have the server bring the requests."""
        broker = self._broker
        parts = (
            AdminTopics(broker),
            AdminGroups(broker),
            AdminClients(broker),
            AdminOffsets(broker),
            AdminResets(broker),
            AdminQueues(broker),
            AdminTimers(broker),
            AdminRuntime(broker, pools),
        )
        for part in parts:
            for code, handler in part.handlers().items():
                server.register([code], functools.partial(_answer, handler), pools.admin)


def _answer(
    handler: AdminHandler, connection: ServerConnection, request: RemotingCommand
) -> RemotingCommand:
    logger.debug("%s asks for %s", connection.address, request_name(request.code))
    try:
        return handler(request)
    except RefusedError as err:
        return err.answer_to(request)
    except (ClientError, StoreError, ValueError) as err:
        return RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, str(err))
