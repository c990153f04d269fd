"""A store on the network: a broker around it, and a name server if it has none."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqnet.broker.broker_config import BrokerConfig
from rmqnet.broker.broker_controller import BrokerController
from rmqnet.namesrv.name_server import NameServer
from rmqnet.namesrv.name_server_config import NameServerConfig
from store_core.config.message_store_config import MessageStoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

LOOPBACK = "127.0.0.1"


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
        return self.controller.config.namesrv_addr

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
            self.controller.config.namesrv_addr = self.name_server.address
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


def serve(
    path: str | os.PathLike[str],
    *,
    port: int = 0,
    namesrv_addr: str | None = None,
    namesrv_port: int = 0,
    host: str = LOOPBACK,
    advertise: str | None = None,
    settings: Mapping[str, Any] | None = None,
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
        Address of this machine to listen at; only clients on this machine reach 127.0.0.1.
    advertise
        The host that clients are told to connect to; None: ``host``.
    settings
        RocketMQ's settings of broker and store by their keys (``autoCreateTopicEnable``, …).

    Examples
    --------
    >>> with serve("/tmp/store") as cluster:  # doctest: +SKIP
    ...     with Producer("till", cluster.namesrv_addr) as producer:
    ...         producer.send(Message("orders", b"one espresso"))

    Raises
    ------
    StoreConfigError
        A setting is none, or out of bounds.
    """
    properties = {key: _text(value) for key, value in (settings or {}).items()}
    config = BrokerConfig.from_properties(properties)
    config.listen_port = port
    config.broker_ip1 = advertise or host
    if namesrv_addr is not None:
        config.namesrv_addr = namesrv_addr
    store_config = replace(
        MessageStoreConfig.from_properties(properties), store_path_root_dir=os.fspath(path)
    )
    name_server = None
    if namesrv_addr is None:
        name_server = NameServer(NameServerConfig(host=host, port=namesrv_port))
    return ServedStore(BrokerController(config, store_config, host=host), name_server)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
