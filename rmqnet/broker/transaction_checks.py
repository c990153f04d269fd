"""Producers are asked how their open transactions ended.

Source: RocketMQ ``AbstractTransactionalMessageCheckListener`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
from store_core.codec.hosts import parse_host
from store_core.codec.message_codec import encode_message
from store_core.layout.message import PROPERTY_UNIQ_KEY
from store_core.topics import HALF_TOPIC, PRODUCER_GROUP
from store_core.transaction_forms import TransactionState

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from store_core.message import Message

logger = logging.getLogger(__name__)


class TransactionChecks:
    """Asks any producer of a half message's group; the answer comes by END_TRANSACTION.

    Parameters
    ----------
    broker
        Its parts.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask(self, half: Message) -> TransactionState:
        """Ask for a half message; it is not known yet what the answer is."""
        group = half.properties.get(PRODUCER_GROUP, "")
        producer = self._broker.producers.next_member(group)
        if producer is None:
            logger.info("no producer of group %s is there to be asked", group)
            return TransactionState.UNKNOW
        key = half.properties.get(PROPERTY_UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            topic=HALF_TOPIC,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=half.message_id,
            bname=self._broker.config.broker_name,
        )
        record = _record(half)
        self._broker.to_client.check_transaction_state(producer.connection, header, record)
        return TransactionState.UNKNOW


def _record(half: Message) -> bytes:
    """Return the half message as a record, with the topic and queue that it is for."""
    return encode_message(
        topic=half.topic.encode(),
        body=half.body,
        properties_raw=half.properties_raw or b"",
        commit_log_offset=half.commit_log_offset,
        queue_offset=half.queue_offset,
        queue_id=half.queue_id,
        born_timestamp=half.born_timestamp,
        born_host=parse_host(half.born_host or "0.0.0.0:0"),
        store_timestamp=half.store_timestamp,
        store_host=parse_host(half.store_host or "0.0.0.0:0"),
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
    )
