# SPDX-License-Identifier: Apache-2.0
"""Settings shared by all clients: producers, consumers, admins and readers."""

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
    """Settings for connecting to a cluster (RocketMQ ``ClientConfig``, 5.3.3).

    It has only plain values, so it can be pickled; its ``repr`` shows no secrets.

    Parameters
    ----------
    namesrv_addr
        Name servers as ``host:port``, separated by ``;``.
    instance_name
        Distinguishes clients on one machine. ``DEFAULT`` is replaced with a unique name, except
        for broadcasting consumers, see `with_own_instance_name`.
    unit_name
        Optional third part of the client id; left out by default.
    client_ip
        First part of the client id; this machine's address if None.
    credentials
        Access key and secret key, if the cluster requires them.
    tls
        TLS settings; no encryption if None.
    poll_name_server_interval_ms
        Interval at which the routes of the topics in use are refreshed.
    heartbeat_broker_interval_ms
        Interval between heartbeats; brokers drop a client after 120,000 ms without one.
    persist_consumer_offset_interval_ms
        Interval at which a consumer commits its offsets.
    mq_client_api_timeout_ms
        Default timeout for requests to name servers and brokers.
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
        """Addresses of the name servers, without repeats."""
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
        """Return settings with a unique instance name: ``DEFAULT`` becomes ``pid#nanoseconds``.

        If two members of a group had the same client id, brokers would count them as one, and
        queues would be divided wrongly. Source: ``ClientConfig.changeInstanceNameToPID``.
        """
        if self.instance_name != DEFAULT_INSTANCE_NAME:
            return self
        return replace(self, instance_name=f"{os.getpid()}#{time.monotonic_ns()}")


_SETTINGS = Settings(ClientConfig, {}, (1, _MAX_INTERVAL_MS), keys=str, error=ClientError)


def client_config(config: ClientConfig | str) -> ClientConfig:
    """Return the given settings, or default settings for the given name servers."""
    return ClientConfig(config) if isinstance(config, str) else config
