# SPDX-License-Identifier: Apache-2.0
"""Requests of administrators.

Source: RocketMQ ``AdminBrokerProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.remoting_command import RemotingCommand
from store_core.errors import StoreError

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_server import Handler
    from rmqnet.remoting.server_connection import ServerConnection

logger = logging.getLogger(__name__)


class AdminProcessor(BrokerProcessor):
    """Answers administrators, also if a request fails; one class per kind of request."""

    pool = "admin"

    def _run(
        self, handler: Handler, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        logger.debug("%s asks for %s", connection.address, request_name(request.code))
        try:
            return super()._run(handler, connection, request)
        except (ClientError, StoreError, ValueError) as err:
            return request.refusal(ResponseCode.SYSTEM_ERROR, str(err))
