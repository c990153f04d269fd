# SPDX-License-Identifier: Apache-2.0
"""A slave: copies its master's log, topics, groups and offsets, and answers reads.

Source: RocketMQ ``BrokerController``, ``SendMessageProcessor.rejectRequest``,
``EndTransactionProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, ClassVar, TypeVar

from rmqnet.broker.broker_config import parse_config_text
from rmqnet.broker.processor.broker_processor import REJECTED, SENDS, RequestRefusal
from rmqnet.broker.processor.pull_advice import MASTER_ID
from rmqnet.broker.roles.broker_role import WrittenStoreRole, followed_status
from rmqnet.broker.stoppable_calls import StoppableCalls
from rmqnet.client.broker_admin_client import PAGED_CODES, paged_table
from rmqnet.client.request_calls import RequestCalls, json_of
from rmqnet.errors import BrokerError, ClientError, RemotingError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from store_core.config.config_files import parse_delay_offsets
from store_core.config.config_writing import save_config_file
from store_core.config.data_version import parse_data_version
from store_core.errors import StoreConfigError, StoreError
from store_core.files.file_writing import replace_file
from store_core.ha.first_report import EARLIEST
from store_core.ha.ha_client import HAClient
from store_core.services.service_thread import RepeatedService

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.registration import Registration
    from rmqnet.broker.state.config_manager import ConfigManager
    from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
    from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
    from rmqnet.broker.state.topic_config_manager import TopicConfigManager
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.remoting_command import RemotingCommand
    from store_core.config.message_store_config import MessageStoreConfig

logger = logging.getLogger(__name__)
_SYNCHRONIZE_MS = 10_000
DELAY_OFFSETS_FILE = "delayOffset.json"
_MASTERS_OWN = (
    "brokerName",
    "brokerClusterName",
    "namesrvAddr",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "messageDelayLevel",
    "enableConsumeQueueExt",
    "enableMultiDispatch",
    "enableLmq",
)
_SLAVES_OWN = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
_TIMEOUT_S = 5.0
T = TypeVar("T")


class SlaveRole(WrittenStoreRole):
    """Role of a broker whose master has the same name and id 0.

    The master's address comes from name servers. Until they know one, it is the given address, and
    the master itself is asked where slaves connect.

    Parameters
    ----------
    config, store_config, clock
        See `BrokerRole`; ``brokerRole`` is SLAVE, ``brokerId`` is not 0.

    Attributes
    ----------
    client
        Copies the log; None until the address of the log is known.

    Raises
    ------
    StoreConfigError
        Role or id is that of a master.
    """

    refusals: ClassVar[Mapping[RequestCode, RequestRefusal]] = {
        **dict.fromkeys(SENDS, REJECTED),
        RequestCode.END_TRANSACTION: RequestRefusal(
            ResponseCode.SLAVE_NOT_AVAILABLE, "a slave does not end transactions: ask the master"
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
                f"brokerId={config.broker_id}, brokerRole={store_config.broker_role}: a slave "
                "needs a brokerId other than 0, and brokerRole=SLAVE"
            )
        super().__init__(config, store_config, clock)
        self._given_address = master_address
        self._calls = MasterCalls(credentials)
        self._synchronizes = RepeatedService("slave-synchronize", self.synchronize, _SYNCHRONIZE_MS)
        self._registration: Registration | None = None
        self._followed = ""
        self.client: HAClient | None = None

    def serve(self, broker: Broker) -> None:
        """Keep the broker, whose ``min_broker_id`` shows whether there is a master."""
        super().serve(broker)
        self._broker = broker

    def join(self, registration: Registration) -> None:
        """Follow the master."""
        self._registration = registration
        self._take_over = SlaveSynchronize(
            self._calls, self.topics, self.groups, self.offsets, registration.run_once
        )
        self._calls.start()
        self._synchronizes.start()

    def leave(self) -> None:
        """Stop following the master; the copied data remains."""
        self._calls.give_up()
        self._synchronizes.shutdown()
        self._calls.shutdown()
        self._stop_following()

    def ha_status(self) -> dict[str, Any]:
        """Return the progress of this slave."""
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
        """Copy the master's current state; return whether it answered."""
        address, ha_address = self._registered()
        self._broker.min_broker_id = MASTER_ID if address else self.config.broker_id
        address = address or self._given_address
        is_done = self._take_over.run_once(address)  # first: topics define the queues
        try:
            self._follow(ha_address or self._asked_ha_address(address))
        except ClientError as err:
            logger.warning("%s; trying again", err)
        return is_done

    def _registered(self) -> tuple[str, str]:
        """Return the addresses of master and log from name servers; empty if unknown."""
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
        """Copy the log from an address."""
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


# Source: RocketMQ ``SlaveSynchronize`` (release 5.3.3).
class SlaveSynchronize:
    """Copies a master's state, kind by kind; if one kind fails, the others are still copied."""

    def __init__(
        self,
        calls: MasterCalls,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        on_topics: Callable[[], object],
    ) -> None:
        self._calls = calls
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._on_topics = on_topics
        self._delays: dict[str, Any] | None = None
        self._failures: dict[RequestCode, str] = {}

    def run_once(self, master: str) -> bool:
        """Copy every kind; return whether all were copied."""
        kinds = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._take_topics,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._take_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._take_delays,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._take_groups,
        }
        return all([self._take(master, code, take) for code, take in kinds.items()])

    def _take(self, master: str, code: RequestCode, take: Callable[[dict[str, Any]], None]) -> bool:
        try:
            data = self._calls.table(master, code)
            if not data:
                raise ClientError("an empty answer")
            take(data)
        except (ClientError, StoreError, ValueError) as err:
            reason = str(err)
            if self._failures.get(code) != reason:
                logger.warning("master %s: cannot copy %s: %s", master, code.name, reason)
            self._failures[code] = reason
            return False
        self._failures.pop(code, None)
        return True

    def _take_topics(self, data: dict[str, Any]) -> None:
        if _take_newer(self._topics, data):
            self._on_topics()

    def _take_groups(self, data: dict[str, Any]) -> None:
        _take_newer(self._groups, data)

    def _take_offsets(self, data: dict[str, Any]) -> None:
        self._offsets.assign(data)
        self._offsets.persist()

    def _take_delays(self, data: dict[str, Any]) -> None:
        """Save the delay offsets, for delivery when this slave becomes a master."""
        parse_delay_offsets(data)
        if data != self._delays:
            root = self._offsets.root
            save_config_file(root, DELAY_OFFSETS_FILE, data, replace_file, is_sound=True)
            self._delays = data


def _take_newer(manager: ConfigManager, data: dict[str, Any]) -> bool:
    """Copy a table unless its version is the one known here; return whether it was copied."""
    if parse_data_version(data.get("dataVersion")) == manager.data_version:
        return False
    manager.assign(data, whole=True)
    manager.persist()
    return True


def settings_of_slave(
    master: str, given: Mapping[str, str], credentials: AclCredentials | None = None
) -> dict[str, str]:
    """Return a slave's settings by RocketMQ's keys: given ones, a slave's own, the master's.

    Raises
    ------
    ClientError
        The master does not answer, and its name and name servers are not given; or it is a slave.
    """
    try:
        with MasterCalls(credentials) as calls:
            found = calls.settings(master)
    except ClientError as err:
        if not (given.get("brokerName") and given.get("namesrvAddr")):
            raise ClientError(
                f"{err}; a slave that starts without its master needs the setting brokerName, and "
                "name servers (namesrv_addr)"
            ) from err
        logger.warning("%s; this slave uses the settings it was given", err)
        found = {}
    if found.get("brokerId", "0") != "0":
        raise ClientError(f"{master} is not a master: its brokerId is {found['brokerId']}")
    taken = {key: found[key] for key in _MASTERS_OWN if found.get(key)}
    return {**taken, **_SLAVES_OWN, **{key: text for key, text in given.items() if text}}


class MasterCalls(StoppableCalls):
    """Connections to masters, in a thread of their own; a context manager."""

    def __init__(self, credentials: AclCredentials | None = None) -> None:
        super().__init__("slave-to-master", credentials)

    def table(self, address: str, code: RequestCode) -> dict[str, Any]:
        """Return the JSON object that a master answers.

        Raises
        ------
        ClientError
            The master cannot be reached, refuses, or answers something else.
        """
        if code in PAGED_CODES:
            return self._asked(address, code, lambda calls: paged_table(calls, address, code))
        answer = self._answer(address, code)
        try:
            return json_of(answer, address, code.name)
        except RemotingError as err:
            raise ClientError(str(err)) from err

    def settings(self, address: str) -> dict[str, str]:
        """Return the settings of a broker and its store, by RocketMQ's keys.

        Raises
        ------
        ClientError
            As of `table`.
        """
        answer = self._answer(address, RequestCode.GET_BROKER_CONFIG)
        try:
            return parse_config_text(answer.body.decode())
        except ValueError as err:
            raise ClientError(f"{address} sent no usable settings: {err}") from err

    def _answer(self, address: str, code: RequestCode) -> RemotingCommand:
        return self._asked(address, code, lambda calls: calls.answer(address, code))

    def _asked(
        self,
        address: str,
        code: RequestCode,
        ask: Callable[[RequestCalls], Coroutine[Any, Any, T]],
    ) -> T:
        if self.remoting is None:
            raise ClientError(f"{address} is not asked: this broker is stopping")
        calls = RequestCalls(self.remoting, _TIMEOUT_S)
        try:
            return self.run(ask(calls))
        except (RemotingError, BrokerError) as err:
            raise ClientError(f"{address} does not answer {code.name}: {err}") from err
