# SPDX-License-Identifier: Apache-2.0
"""A store on the network: a broker around it, and a name server if it needs one."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqnet.broker.access.acl_gate import AclGate
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.broker_controller import BrokerController
from rmqnet.broker.roles.master import MasterRole
from rmqnet.client.addresses import parse_addresses
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from store_core.config.config_checks import property_text
from store_core.config.message_store_config import MessageStoreConfig, warn_of_ignored
from store_core.errors import StoreConfigError
from store_core.message_store import now_ms
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.metrics.metrics_server import MetricsServer
    from rmqnet.broker.roles.broker_role import BrokerRole
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.tls import ServerTls

LOOPBACK = "127.0.0.1"
_READ_ONLY_SUFFIX = "-read-only"
_START_LOOK_SECONDS = 0.2


class ServedState(NamedTuple):
    """Current figures of a broker.

    Attributes
    ----------
    messages_in, bytes_in, messages_out, bytes_out
        Received and sent since the start; bytes as they are stored.
    log_end
        Offset of the log's end, in bytes.
    """

    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    connections: int
    held_pulls: int
    log_end: int


class ServedStore(ShuttingDown):
    """A broker, and its name server, in this process; see `serve`. Any thread may use it.

    Attributes
    ----------
    controller
        The broker.
    name_server
        Its name server; None if it registers with others.
    """

    def __init__(
        self,
        controller: BrokerController,
        name_server: NameServer | None,
        metrics: MetricsServer | None = None,
    ) -> None:
        self.controller = controller
        self.name_server = name_server
        self._metrics = metrics
        self._changing = threading.RLock()

    @property
    def address(self) -> str:
        """Address of the broker, ``host:port``."""
        return self.controller.address

    @property
    def namesrv_addr(self) -> str:
        """Name servers for clients to find the broker, ``host:port`` (``;`` between several)."""
        config = self.controller.config
        if self.name_server is None:
            return config.namesrv_addr
        return f"{config.broker_ip1}:{self.name_server.port}"

    @property
    def metrics_address(self) -> str | None:
        """Address where metrics are read, ``host:port``; None if they are not served."""
        return None if self._metrics is None else self._metrics.address

    def state(self) -> ServedState:
        """Return current figures of the broker, which must be started."""
        broker = self.controller.broker
        return ServedState(
            *broker.traffic.totals(),
            broker.server.connections,
            broker.holds.waiting,
            broker.store.max_phy_offset,
        )

    def start(self) -> ServedStore:
        """Start both; see ``BrokerController.start``. A second call does nothing."""
        with self._changing:
            if not self.controller.is_running:
                self._start()
        return self

    def _start(self) -> None:
        if self.name_server is not None:
            self.name_server.start()
            address = self.name_server.address
            self.controller.config.namesrv_addr = address
            self.controller.registration.in_process[address] = self.name_server.answer
        try:
            self.controller.start()
        except BaseException:
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """Close the store cleanly, and stop; see ``BrokerController.shutdown``."""
        while not self._changing.acquire(timeout=_START_LOOK_SECONDS):
            self.controller.registration.give_up()  # a start may wait for a silent name server
        try:
            self.controller.shutdown()
        finally:
            if self.name_server is not None:
                self.name_server.shutdown()
            self._changing.release()

    def stop(self) -> None:
        """Call `shutdown`: test fixtures that start a server stop it by this name."""
        self.shutdown()


def serve(  # noqa: PLR0913 (one parameter per option)
    path: str | os.PathLike[str],
    *,
    port: int = 0,
    namesrv_addr: str | None = None,
    namesrv_port: int = 0,
    host: str = LOOPBACK,
    advertise: str | None = None,
    read_only: bool = False,
    offsets_file: str | os.PathLike[str] | None = None,
    ha_port: int | None = None,
    replica_of: str | None = None,
    settings: Mapping[str, Any] | None = None,
    acl: str | os.PathLike[str] | None = None,
    tls: ServerTls | None = None,
    insecure: bool = False,
    credentials: AclCredentials | None = None,
    metrics_port: int | None = None,
    metrics_host: str = LOOPBACK,
) -> ServedStore:
    """Serve a store as a broker for RocketMQ's clients; returns a context manager.

    Parameters
    ----------
    path
        Directory of the store; an empty or missing one becomes a new store.
    port, namesrv_port
        Ports of the broker and of its own name server; 0 takes any free port.
    namesrv_addr
        Name servers to register with, ``host:port;host:port``. If None, a slave uses its
        master's; a broker without any gets a name server of its own.
    host
        Address of this machine to listen at; 127.0.0.1 is reachable only from this machine, and
        any other address requires ``acl`` or ``insecure``.
    advertise
        The host that clients connect to; ``host`` if None.
    read_only
        Serve a store that is open elsewhere, was left by a crash or is damaged: as it is, with
        messages that others add meanwhile. Nothing in it changes; sends are refused. Without
        ``brokerName``, its name differs from that of other brokers on this machine.
    offsets_file
        With ``read_only``, a file outside the store for the offsets of groups, which are not saved
        if None.
    ha_port
        Port for slaves, at ``host``; 0 takes any free port, None allows no slaves. For slaves of
        RocketMQ, the broker also listens at ``port`` minus 2.
    replica_of
        ``host:port`` of a master, of RocketMQ or of this project (with ``ha_port``). This broker
        becomes its slave: it copies messages, topics and offsets, and answers reads. It has the
        master's names and name servers, and id 1, unless ``settings`` differ.
    settings
        RocketMQ's settings of broker and store by their keys (``autoCreateTopicEnable``, …);
        addresses (``brokerIP1``, ``listenPort``, ``namesrvAddr``) come from the parameters only.
    acl
        File of the accounts of broker and name server, a ``plain_acl.yml`` of RocketMQ 4.9; if
        None, every client may do everything.
    tls
        Encryption of connections to both; they are unencrypted if None.
    insecure
        Listen at any address without ``acl``; with ``acl`` and ``ha_port``, let slaves connect,
        which need no account.
    credentials
        Account at the master, and at other name servers, that require one.
    metrics_port, metrics_host
        Address where Prometheus reads metrics, without an account; port 0 takes any free port,
        None serves no metrics.

    Examples
    --------
    >>> with serve("/tmp/store") as cluster:  # doctest: +SKIP
    ...     with Producer("till", cluster.namesrv_addr) as producer:
    ...         producer.send(Message("orders", b"one espresso"))

    Raises
    ------
    StoreConfigError
        A setting is invalid or contradicts another; the file of accounts is unusable; other
        machines could reach the store without an account.
    ClientError
        A file that ``tls`` names cannot be used; ``namesrv_addr`` is empty or invalid; the master
        does not answer, or is not a master.
    """
    if not insecure and not _is_loopback(host):
        _check_guarded(host, has_accounts=acl is not None, has_slaves=ha_port is not None)
    _check_options(
        read_only=read_only,
        has_offsets_file=offsets_file is not None,
        is_slave=replica_of is not None,
        has_slaves=ha_port is not None,
    )
    if namesrv_addr is not None:
        parse_addresses(namesrv_addr)
    properties = {key: property_text(value) for key, value in (settings or {}).items()}
    warn_of_ignored(properties, f"settings of {os.fspath(path)}", BrokerConfig.keys())
    properties["namesrvAddr"] = namesrv_addr or ""
    if replica_of is not None:
        properties = _properties_of_slave(replica_of, properties, credentials)
    elif read_only:
        properties.setdefault("brokerName", f"{BrokerConfig().broker_name}{_READ_ONLY_SUFFIX}")
    config = BrokerConfig.from_properties(properties)
    config.listen_port = port
    config.broker_ip1 = _told_host(host, advertise)
    store_config = replace(
        MessageStoreConfig.from_properties(properties), store_path_root_dir=os.fspath(path)
    )
    role: BrokerRole
    if replica_of is not None:
        role = _slave_role(config, store_config, replica_of, credentials)
    elif read_only:
        role = _read_only_role(config, store_config, offsets_file)
    else:
        role = MasterRole(config, store_config, now_ms, ha_host=host, ha_port=ha_port)
    gate = None if acl is None else AclGate(os.fspath(acl))
    name_server = None
    if not config.namesrv_addr:
        name_server = NameServer(
            NameServerConfig(host=host, port=namesrv_port),
            tls=tls,
            gate=None if gate is None else gate.look,
        )
    metrics = None if metrics_port is None else _metrics_server(metrics_host, metrics_port)
    controller = BrokerController(
        config,
        store_config,
        role,
        host=host,
        tls=tls,
        acl=gate,
        credentials=credentials,
        metrics=metrics,
    )
    return ServedStore(controller, name_server, metrics)


# Parts that few brokers need are loaded only by these, so that others start sooner.
def _properties_of_slave(
    master: str, properties: Mapping[str, str], credentials: AclCredentials | None
) -> dict[str, str]:
    from rmqnet.broker.roles.slave import settings_of_slave  # noqa: PLC0415

    return settings_of_slave(master, properties, credentials)


def _slave_role(
    config: BrokerConfig,
    store_config: MessageStoreConfig,
    master: str,
    credentials: AclCredentials | None,
) -> BrokerRole:
    from rmqnet.broker.roles.slave import SlaveRole  # noqa: PLC0415

    return SlaveRole(config, store_config, now_ms, master_address=master, credentials=credentials)


def _read_only_role(
    config: BrokerConfig,
    store_config: MessageStoreConfig,
    offsets_file: str | os.PathLike[str] | None,
) -> BrokerRole:
    from rmqnet.broker.roles.read_only import ReadOnlyRole  # noqa: PLC0415

    file = None if offsets_file is None else os.fspath(offsets_file)
    return ReadOnlyRole(config, store_config, now_ms, offsets_file=file)


def _metrics_server(host: str, port: int) -> MetricsServer:
    from rmqnet.broker.metrics.metrics_server import MetricsServer  # noqa: PLC0415

    return MetricsServer(host, port)


def _check_options(
    *, read_only: bool, has_offsets_file: bool, is_slave: bool, has_slaves: bool
) -> None:
    """Raise StoreConfigError for options that contradict each other."""
    if has_offsets_file and not read_only:
        raise StoreConfigError(
            "offsets_file requires read_only: otherwise the store keeps the offsets"
        )
    if read_only + is_slave + has_slaves > 1:
        raise StoreConfigError(
            "read_only, replica_of, ha_port: give only one, as a broker is read-only, or is a "
            "slave, or has slaves"
        )


def _check_guarded(host: str, *, has_accounts: bool, has_slaves: bool) -> None:
    """Raise StoreConfigError if other machines could connect without an account."""
    where = host or "all addresses"
    if not has_accounts:
        raise StoreConfigError(
            f"listening at {where} lets everyone who can reach this machine read, change and "
            "delete all messages: give accounts (acl, a plain_acl.yml), or accept this (insecure)"
        )
    if has_slaves:
        raise StoreConfigError(
            f"slaves do not authenticate: with ha_port, everyone who can reach {where} can get "
            "all messages; accept this (insecure), clients still need accounts"
        )


def _is_loopback(host: str) -> bool:
    found = _addresses_of(host)
    return bool(found) and all(each.is_loopback for each in found)


def _is_all(host: str) -> bool:
    """Return whether a host means all addresses of this machine, in any spelling."""
    return not host or any(each.is_unspecified for each in _addresses_of(host))


def _addresses_of(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the addresses of a host; empty for an unknown one."""
    if not host:
        return []
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError:
        return []
    return [ipaddress.ip_address(each.partition("%")[0]) for each in found]


def _told_host(host: str, advertise: str | None) -> str:
    """Return the host that clients connect to."""
    if advertise:
        return _bracketed(advertise)
    if _is_all(host):
        raise StoreConfigError(
            f"listening at {host or 'all addresses'}: give the address or name of this machine "
            "that clients should connect to (advertise)"
        )
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
