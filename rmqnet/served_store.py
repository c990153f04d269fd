"""A store on the network: a broker around it, and a name server if it has none."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqnet.broker.access.acl_gate import AclGate
from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.broker_controller import BrokerController
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rmqnet.remoting.tls import ServerTls

LOOPBACK = "127.0.0.1"
_ALL_ADDRESSES = ("", "0.0.0.0", "::")


class ServedStore:
    """A broker, and its name server, in this process; see `serve`.

    Attributes
    ----------
    controller
        The broker.
    name_server
        Its name server; None: it registers with others.
    """

    def __init__(self, controller: BrokerController, name_server: NameServer | None) -> None:
        self.controller = controller
        self.name_server = name_server

    @property
    def address(self) -> str:
        """Of the broker, ``host:port``."""
        return self.controller.address

    @property
    def namesrv_addr(self) -> str:
        """What clients are given to find the broker."""
        config = self.controller.config
        if self.name_server is None:
            return config.namesrv_addr
        return f"{config.broker_ip1}:{self.name_server.port}"

    def __enter__(self) -> ServedStore:
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> ServedStore:
        """Start both; see ``BrokerController.start``."""
        if self.name_server is not None:
            self.name_server.start()
            address = self.name_server.address
            self.controller.config.namesrv_addr = address
            self.controller.registration.in_process[address] = self.name_server.answer
        try:
            self.controller.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Close the store cleanly, and stop; a second call does nothing."""
        self.controller.stop()
        if self.name_server is not None:
            self.name_server.stop()


def serve(  # noqa: PLR0913 (one parameter a thing that may be said)
    path: str | os.PathLike[str],
    *,
    port: int = 0,
    namesrv_addr: str | None = None,
    namesrv_port: int = 0,
    host: str = LOOPBACK,
    advertise: str | None = None,
    settings: Mapping[str, Any] | None = None,
    acl: str | os.PathLike[str] | None = None,
    tls: ServerTls | None = None,
    insecure: bool = False,
) -> ServedStore:
    """Return a store as a broker that RocketMQ's clients use; a context manager.

    Parameters
    ----------
    path
        The store; an empty directory, or none yet, becomes one.
    port, namesrv_port
        Of the broker and of its name server; 0: any that are free.
    namesrv_addr
        Register with these name servers, ``host:port;host:port``; None: it gets one of its own.
    host
        Address of this machine to listen at; only clients on this machine reach 127.0.0.1. Any
        other needs ``acl`` or ``insecure``.
    advertise
        The host that clients are told to connect to; None: ``host``.
    settings
        RocketMQ's settings of broker and store by their keys (``autoCreateTopicEnable``, …);
        addresses (``brokerIP1``, ``listenPort``, ``namesrvAddr``) are the parameters' alone.
    acl
        File of accounts, a ``plain_acl.yml`` of RocketMQ 4.9, of broker and name server; None:
        anybody may do everything.
    tls
        How connections to both are encrypted; None: not at all.
    insecure
        Listen at any address without accounts.

    Examples
    --------
    >>> with serve("/tmp/store") as cluster:  # doctest: +SKIP
    ...     with Producer("till", cluster.namesrv_addr) as producer:
    ...         producer.send(Message("orders", b"one espresso"))

    Raises
    ------
    StoreConfigError
        A setting is none, or out of bounds; the file of accounts is unusable; anybody could reach
        the store.
    ClientError
        A file that ``tls`` names cannot be used.
    """
    if acl is None and not insecure:
        _check_private(host)
    properties = {key: _text(value) for key, value in (settings or {}).items()}
    config = BrokerConfig.from_properties(properties)
    config.listen_port = port
    config.broker_ip1 = _told_host(host, advertise)
    config.namesrv_addr = namesrv_addr or ""
    store_config = replace(
        MessageStoreConfig.from_properties(properties), store_path_root_dir=os.fspath(path)
    )
    gate = None if acl is None else AclGate(os.fspath(acl))
    name_server = None
    if namesrv_addr is None:
        name_server = NameServer(
            NameServerConfig(host=host, port=namesrv_port),
            tls=tls,
            gate=None if gate is None else gate.look,
        )
    controller = BrokerController(config, store_config, host=host, tls=tls, acl=gate)
    return ServedStore(controller, name_server)


def _check_private(host: str) -> None:
    if not _is_loopback(host):
        raise StoreConfigError(
            f"listening at {host or 'all addresses'} lets everybody who reaches this machine read, "
            "change and delete all messages: give accounts (acl, a plain_acl.yml), or say that "
            "this is wanted (insecure)"
        )


def _is_loopback(host: str) -> bool:
    if host in _ALL_ADDRESSES:
        return False
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in found)


def _told_host(host: str, advertise: str | None) -> str:
    """Return what clients are told to connect to."""
    if advertise:
        return _bracketed(advertise)
    if host in _ALL_ADDRESSES:
        raise StoreConfigError(
            f"listening at {host or 'all addresses'}: say which address or name of this machine "
            "clients are told to connect to (advertise)"
        )
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
