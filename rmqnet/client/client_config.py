"""Settings that all clients have: producers, consumers, admins, readers."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqnet.client.addresses import local_ip, parse_addresses
from rmqnet.errors import ClientError
from store_core.config.config_checks import Settings

if TYPE_CHECKING:
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.tls import TlsConfig

DEFAULT_INSTANCE_NAME = "DEFAULT"
_MAX_INTERVAL_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class ClientConfig:
    """How to find a cluster and how to behave towards it (RocketMQ ``ClientConfig``, 5.3.3).

    Holds plain values, so that it pickles; its ``repr`` shows no secrets.

    Parameters
    ----------
    namesrv_addr
        Name servers: ``host:port``, several with ``;`` between.
    instance_name
        Tells apart clients of one machine. ``DEFAULT`` becomes one of its own for each client
        whose group shares queues out, see `with_own_instance_name`.
    unit_name
        Third part of the client id; None: it has two.
    client_ip
        First part of the client id; None: this machine's address.
    credentials
        Access key and secret key, if the cluster asks for them.
    tls
        How to encrypt; None: not.
    poll_name_server_interval_ms
        Between two looks at the routes of the topics in use.
    heartbeat_broker_interval_ms
        Between two heartbeats; brokers forget a client after 120,000 ms without.
    persist_consumer_offset_interval_ms
        Between two times that a consumer tells how far it is.
    mq_client_api_timeout_ms
        How long an answer of a name server or broker is waited for, unless a call says otherwise.
    """

    namesrv_addr: str
    instance_name: str = DEFAULT_INSTANCE_NAME
    unit_name: str | None = None
    client_ip: str | None = None
    credentials: AclCredentials | None = field(default=None, repr=False)
    tls: TlsConfig | None = field(default=None, repr=False)
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    persist_consumer_offset_interval_ms: int = 5_000
    mq_client_api_timeout_ms: int = 3_000

    def __post_init__(self) -> None:
        _SETTINGS.check(vars(self))
        parse_addresses(self.namesrv_addr)
        for name in ("instance_name", "unit_name"):
            if "@" in (getattr(self, name) or ""):
                raise ClientError(f"{name}: '@' separates the parts of a client id; leave it out")

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Their addresses, each once."""
        return parse_addresses(self.namesrv_addr)

    @property
    def timeout_s(self) -> float:
        """``mq_client_api_timeout_ms`` in seconds."""
        return self.mq_client_api_timeout_ms / 1000

    @property
    def client_id(self) -> str:
        """``ip@instance`` or ``ip@instance@unit`` (``ClientConfig.buildMQClientId``)."""
        parts = [self.client_ip or local_ip(), self.instance_name]
        return "@".join([*parts, self.unit_name] if self.unit_name else parts)

    def with_own_instance_name(self) -> ClientConfig:
        """Return settings that no other client shares: ``DEFAULT`` becomes ``pid#nanoseconds``.

        Two members of a group with one client id would be one to the brokers, and share out
        queues wrongly. Source: ``ClientConfig.changeInstanceNameToPID``.
        """
        if self.instance_name != DEFAULT_INSTANCE_NAME:
            return self
        return replace(self, instance_name=f"{os.getpid()}#{time.monotonic_ns()}")


_SETTINGS = Settings(ClientConfig, {}, (1, _MAX_INTERVAL_MS), keys=str, error=ClientError)


def client_config(config: ClientConfig | str) -> ClientConfig:
    """Return settings: those given, or the default ones for these name servers."""
    return ClientConfig(config) if isinstance(config, str) else config
