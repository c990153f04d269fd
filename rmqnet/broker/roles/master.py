# SPDX-License-Identifier: Apache-2.0
"""A master: stores messages, delivers delayed ones, ends transactions, feeds its slaves."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.broker.roles.broker_role import WrittenStoreRole, followed_status
from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
from store_core.codec.message_codec import encode_message
from store_core.codec.message_id import parse_host
from store_core.errors import StoreConfigError
from store_core.ha.ha_service import HAService
from store_core.layout import PROPERTY_UNIQ_KEY
from store_core.schedule.schedule_message_service import ScheduleMessageService
from store_core.timer.timer_message_store import TimerMessageStore
from store_core.topics import DISCARD_TOPIC, HALF_TOPIC, PRODUCER_GROUP
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.broker_config import BrokerConfig
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.ha.ha_connection import SlaveState
    from store_core.message import Message

logger = logging.getLogger(__name__)


class MasterRole(WrittenStoreRole):
    """Role of the only broker of a name, or of a broker with slaves.

    Parameters
    ----------
    ha_host, ha_port
        Address of this machine where slaves connect; port 0 takes any free port, None allows no
        slaves.

    Raises
    ------
    StoreConfigError
        The store's settings name the role of a slave.
    """

    takes_timers = True

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        clock: Callable[[], int],
        *,
        ha_host: str = "127.0.0.1",
        ha_port: int | None = None,
    ) -> None:
        if store_config.is_slave:
            raise StoreConfigError("brokerRole=SLAVE: give the master that it follows (replica_of)")
        super().__init__(config, store_config, clock)
        self._ha_host, self._ha_port = ha_host, ha_port
        self.has_slaves = ha_port is not None
        self._ha_service: HAService | None = None

    def serve(self, broker: Broker) -> None:
        """Set up the delivery of delayed and timer messages, and transactions."""
        super().serve(broker)
        broker.delays = self._delays = ScheduleMessageService(self.store)
        broker.timers = self._timers = TimerMessageStore(self.store)
        broker.transactions = self._transactions = TransactionalMessageService(
            self.store, TransactionChecks(broker).ask, self.offsets, self._make_discard_topic
        )

    def start(self) -> None:
        """Start the store, replication, transactions and delivery."""
        super().start()
        if self._ha_port is not None:
            self._listen_for_slaves(self._ha_port)
        self._transactions.start()
        self._delays.start()
        if self.store.config.timer_wheel_enable:
            self._timers.start()

    def ha_status(self) -> dict[str, Any]:
        """Return the progress of the slaves."""
        end, service = self.store.max_phy_offset, self._ha_service
        slaves = () if service is None else service.slaves()
        return {
            "haClientRuntimeInfo": followed_status(),
            "haConnectionInfo": [_slave_status(slave, end) for slave in slaves],
            "inSyncSlaveNums": sum(slave.is_in_sync for slave in slaves),
            "master": True,
            "masterCommitLogMaxOffset": end,
        }

    def shutdown(self) -> None:
        """Stop delivery, transactions and replication."""
        self._timers.shutdown()
        self._delays.shutdown()
        self._transactions.shutdown()
        if self._ha_service is not None:
            self._ha_service.shutdown()
        super().shutdown()

    def _listen_for_slaves(self, port: int) -> None:
        self._ha_service = service = HAService(self.store, host=self._ha_host, port=port)
        service.start()
        bound = int(service.address.rpartition(":")[2])
        self.store.config = replace(self.store.config, ha_listen_port=bound)  # for requests
        self.ha_address = f"{self.config.broker_ip1}:{bound}"

    def _make_discard_topic(self) -> None:
        """Create the topic of discarded messages, so that they can be read."""
        self.topics.create_in_send_message_back(DISCARD_TOPIC, 1)


def _slave_status(slave: SlaveState, end: int) -> dict[str, Any]:
    return {
        "addr": slave.address,
        "diff": end - slave.ack_offset,
        "inSync": slave.is_in_sync,
        "slaveAckOffset": slave.ack_offset,
        "transferFromWhere": slave.transfer_offset,
        "transferredByteInSecond": slave.bytes_in_second,
    }


# Source: RocketMQ ``AbstractTransactionalMessageCheckListener`` (release 5.3.3).
class TransactionChecks:
    """Asks any producer of a half message's group; the answer comes by END_TRANSACTION."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask(self, half: Message) -> TransactionState:
        """Ask about a half message; the state is unknown until the answer comes."""
        group = half.properties.get(PRODUCER_GROUP, "")
        producer = self._broker.producers.next_member(group)
        if producer is None:
            logger.info(
                "no producer of group %s is connected that could be asked about a transaction",
                group,
            )
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
