# SPDX-License-Identifier: Apache-2.0
"""Ends of producers' transactions.

Source: RocketMQ ``EndTransactionProcessor`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import EndTransactionRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.layout import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_NOT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from store_core.transaction.end_results import EndStatus
from store_core.transaction_forms import TransactionState

if TYPE_CHECKING:
    from rmqnet.remoting.server_connection import ServerConnection

_STATES = {
    TRANSACTION_NOT_TYPE: TransactionState.UNKNOW,
    TRANSACTION_COMMIT_TYPE: TransactionState.COMMIT_MESSAGE,
    TRANSACTION_ROLLBACK_TYPE: TransactionState.ROLLBACK_MESSAGE,
}
_CODES = {
    EndStatus.ENDED: ResponseCode.SUCCESS,
    EndStatus.ALREADY_ENDED: ResponseCode.SUCCESS,
    EndStatus.ILLEGAL_OPERATION: ResponseCode.ILLEGAL_OPERATION,
}


class RequestedHalf(NamedTuple):
    """Location of a half message."""

    queue_offset: int
    commit_log_offset: int


class EndTransactionProcessor(BrokerProcessor):
    """Commits and rolls back transactions for producers."""

    pool = "transaction"

    @answers(RequestCode.END_TRANSACTION, with_peer=True)
    def process(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """End a transaction; a request with an unknown outcome gets no answer."""
        header = decode_header(EndTransactionRequestHeader, request.ext_fields)
        state = _STATES.get(header.commit_or_rollback)
        if state is None or state is TransactionState.UNKNOW:
            if not request.is_oneway:
                self._broker.server.release(connection, request)
            return None
        result = self._broker.transactions.end_transaction(
            RequestedHalf(header.tran_state_table_offset, header.commit_log_offset),
            state,
            from_check=bool(header.from_transaction_check),
            producer_group=header.producer_group,
        )
        if result.status is EndStatus.ENDED:
            self._broker.traffic.ended(is_commit=state is TransactionState.COMMIT_MESSAGE)
        code = _CODES.get(result.status, ResponseCode.SYSTEM_ERROR)
        return RemotingCommand.response_to(request, code, result.reason or None)
