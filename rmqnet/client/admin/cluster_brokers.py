# SPDX-License-Identifier: Apache-2.0
"""Sending one request to several brokers of a cluster concurrently."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Callable, TypeVar

from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection

    from rmqnet.client.client_instance import ClientInstance

T = TypeVar("T")


class ClusterBrokers:
    """The brokers that a client's name servers know; runs in the client's event loop."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def masters(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Return the masters' addresses by broker name, for the given names or (if None) all.

        Raises
        ------
        ClientError
            No master is up, or none for one of the names.
        """
        masters = (await self._instance.name_server.cluster_info()).masters
        if not masters:
            raise ClientError(
                "name servers know no master: no broker is up, or none has registered yet"
            )
        if names is None:
            return masters
        unknown = sorted(set(names) - masters.keys())
        if unknown:
            known = ", ".join(masters) or "none"
            raise ClientError(f"no master of broker {', '.join(unknown)} is up (known: {known})")
        return {name: masters[name] for name in sorted(names)}

    async def on_masters(
        self, ask: Callable[[str], Awaitable[T]], names: Collection[str] | None = None
    ) -> list[T]:
        """Return the answers of the masters with the given names or (if None) all."""
        masters = await self.masters(names)
        return list(await asyncio.gather(*map(ask, masters.values())))

    async def on_route(self, topic: str, ask: Callable[[str], Awaitable[T]]) -> list[T]:
        """Return an answer from each broker name of a topic: its master's, else a slave's."""
        route = await self._instance.refresh_route(topic)
        addresses = [
            brokers.get(MASTER_ID, next(iter(brokers.values())))
            for brokers in route.brokers.values()
            if brokers
        ]
        return list(await asyncio.gather(*map(ask, addresses)))
