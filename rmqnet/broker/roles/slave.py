"""A slave: gets the log of its master, and takes over what the master has besides; answers reads.

Source: RocketMQ ``BrokerController``, ``SendMessageProcessor.rejectRequest``,
``EndTransactionProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from rmqnet.broker.processor.pull_advice import MASTER_ID
from rmqnet.broker.processor.refused_requests import REJECTED, SENDS, Refusal
from rmqnet.broker.roles.broker_role import followed_status
from rmqnet.broker.roles.master_calls import MasterCalls
from rmqnet.broker.roles.slave_synchronize import SlaveSynchronize
from rmqnet.broker.roles.written_store import WrittenStoreRole
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from store_core.errors import StoreConfigError
from store_core.ha.first_report import EARLIEST
from store_core.ha.ha_client import HAClient
from store_core.services.repeated_service import RepeatedService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.registration import Registration
    from rmqnet.remoting.acl import AclCredentials
    from store_core.config.message_store_config import MessageStoreConfig

logger = logging.getLogger(__name__)

_SYNCHRONIZE_MS = 10_000


class SlaveRole(WrittenStoreRole):
    """Of a broker whose master has the same name and id 0.

    Where the master is, name servers say; until they know one, it is where the caller says, and is
    asked itself where slaves connect.

    Parameters
    ----------
    config, store_config, clock
        See `BrokerRole`; ``brokerRole`` is SLAVE, ``brokerId`` is not 0.
    master_address
        ``host:port`` where clients connect to the master.
    credentials
        Of an account there, if it wants one.

    Attributes
    ----------
    client
        Gets the log; None: it is not known yet where.

    Raises
    ------
    StoreConfigError
        Role or id are those of a master.
    """

    refusals: ClassVar[Mapping[RequestCode, Refusal]] = {
        **dict.fromkeys(SENDS, REJECTED),
        RequestCode.END_TRANSACTION: Refusal(
            ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions: ask the master"
        ),
    }

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        clock: Callable[[], int],
        *,
        master_address: str,
        credentials: AclCredentials | None = None,
    ) -> None:
        if config.broker_id == MASTER_ID or not store_config.is_slave:
            raise StoreConfigError(
                f"brokerId={config.broker_id}, brokerRole={store_config.broker_role}: a slave has "
                "an id that is not 0, and brokerRole=SLAVE"
            )
        super().__init__(config, store_config, clock)
        self._given_address = master_address
        self._calls = MasterCalls(credentials)
        self._synchronizes = RepeatedService("slave-synchronize", self.synchronize, _SYNCHRONIZE_MS)
        self._registration: Registration | None = None
        self._followed = ""
        self.client: HAClient | None = None

    def serve(self, broker: Broker) -> None:
        """Have it tell consumers where the master is."""
        super().serve(broker)
        self._broker = broker

    def join(self, registration: Registration) -> None:
        """Follow the master."""
        self._registration = registration
        self._take_over = SlaveSynchronize(
            self._calls, self.topics, self.groups, self.offsets, registration.run_once
        )
        self._calls.open()
        self._synchronizes.start()

    def leave(self) -> None:
        """Follow the master no more; what came stays."""
        self._calls.give_up()
        self._synchronizes.shutdown()
        self._calls.close()
        self._stop_following()

    def ha_status(self) -> dict[str, Any]:
        """Return how far this slave is."""
        client = self.client
        state = None if client is None else client.state()
        return {
            "haClientRuntimeInfo": followed_status(self._followed, state),
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": False,
            "masterCommitLogMaxOffset": 0,
        }

    def synchronize(self) -> bool:
        """Take over what the master has now; return whether it answered."""
        address, ha_address = self._registered()
        self._broker.min_broker_id = MASTER_ID if address else self.config.broker_id
        address = address or self._given_address
        is_done = self._take_over.run_once(address)  # first: its queues are as topics say
        try:
            self._follow(ha_address or self._asked_ha_address(address))
        except ClientError as err:
            logger.warning("%s; trying again", err)
        return is_done

    def _registered(self) -> tuple[str, str]:
        """Return where the master and its log are, as name servers say; empty: not known."""
        assert self._registration is not None
        for answer in list(self._registration.answers.values()):
            if answer.master_addr:
                return answer.master_addr, answer.ha_server_addr or ""
        return "", ""

    def _asked_ha_address(self, master: str) -> str:
        settings = self._calls.settings(master)
        host = settings.get("brokerIP2") or settings.get("brokerIP1") or master.rpartition(":")[0]
        return f"{host}:{settings.get('haListenPort', '10912')}"

    def _follow(self, ha_address: str) -> None:
        """Get the log from there."""
        if ha_address == self._followed:
            return
        self._stop_following()
        logger.info("the log of the master comes from %s", ha_address)
        self.client = HAClient(
            self.store,
            ha_address,
            first_offset=EARLIEST,
            on_connected=lambda _: self._synchronizes.wakeup(),
        )
        self.client.start()
        self._followed = ha_address

    def _stop_following(self) -> None:
        client, self._followed = self.client, ""
        if client is not None:
            client.shutdown()
