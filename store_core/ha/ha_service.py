# SPDX-License-Identifier: Apache-2.0
"""Send the log of an open store to connected slaves.

Source: RocketMQ ``DefaultHAService`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Union

from store_core.errors import HAError, StoreClosedError, StoreConfigError
from store_core.event_loop_thread import EventLoopThread
from store_core.ha.ha_connection import HAConnection, SlaveState
from store_core.services.flush_services import uses_transient_pool
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.message_store import MessageStore

    Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 64
_BACKLOG = 128
_REST_S = 0.005
_POLL_S = 0.1
_MAPPED_PREFIX_BITS = 96
_REST_AFTER_ACCEPT_ERROR_S = 1.0
_SHUT_DOWN = "the store was shut down"
_PAUSED = "the store is temporarily shut down"
_services: weakref.WeakSet[HAService] = weakref.WeakSet()
"""The services of this process; a forked child must not keep their sockets open."""
_NONE = -1


class HAService(ShuttingDown):
    """Listens for slaves and sends them the log; a context manager that starts and stops it.

    Appended data is sent immediately if puts wait for slaves (``SYNC_MASTER`` with
    ``inSyncReplicas`` above 1), otherwise with a rest of 5 ms after each time: many small puts then
    share one system call, and sending hardly slows down threads that put.

    The protocol has no authentication: any client that can connect gets the whole log, and counts
    as a replica once it reports to have it.

    Parameters
    ----------
    store
        A started store. If it is shut down first, this service ends, too. If one of its methods
        shuts it down and opens it again (``rebuild_consume_queue``, ``cut_log``), the service goes
        on.
    host
        Address to listen at; "" or "0.0.0.0" = all addresses of the machine.
    port
        ``haListenPort`` if None; 0 = any free port.
    allowed_slaves
        Addresses or networks ("10.0.0.7", "10.1.0.0/16", "::1") that may connect; any if None.

    Raises
    ------
    StoreConfigError
        One of `allowed_slaves` is neither an address nor a network.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        allowed_slaves: Iterable[str] | None = None,
    ) -> None:
        self._store, self._host, self._port = store, host, port
        self._allowed = None if allowed_slaves is None else _networks(allowed_slaves)
        self._changing = threading.Lock()
        self._thread = EventLoopThread("HAService")
        self._transfers = GroupTransferService(1, 0)
        self._listener: socket.socket | None = None
        self._connections: tuple[HAConnection, ...] = ()
        self._is_registered = self._is_paused = False
        self._address = ""
        self._pushed = 0
        # A slave waits for data, and `_look` must be called to send it.
        self._is_idle = self._look_is_due = False
        self._rests, self._polls = True, False
        self._poll: asyncio.TimerHandle | None = None
        _services.add(self)

    @property
    def address(self) -> str:
        """Address that it listens at, ``HOST:PORT``; "" while it does not."""
        return self._address

    @property
    def push_to_slave_max_offset(self) -> int:
        """The greatest offset that any slave has reported; 0 before the first report."""
        return self._pushed

    def slaves(self) -> tuple[SlaveState, ...]:
        """Return the connected slaves, oldest connection first.

        Raises
        ------
        StoreClosedError
            The store was just shut down.
        """
        connections = self._connections
        if not connections:
            return ()
        end = self._store.max_phy_offset
        return tuple(connection.state(end) for connection in connections)

    def in_sync_replicas_nums(self) -> int:
        """Return how many stores are in sync: this one, and slaves that lack little.

        As in RocketMQ, except that a connection without a report does not count.
        """
        return 1 + sum(slave.is_in_sync for slave in self.slaves())

    def start(self) -> None:
        """Start to listen; a second call does nothing.

        Raises
        ------
        HAError
            The address is not available, or another service replicates the store.
        StoreClosedError
            The store is not open.
        """
        with self._changing:
            if self._listener is not None and self._is_registered:
                return
            self._stop()
            store, config = self._store, self._store.config
            self._transfers = self._new_transfers()
            self._is_idle = self._look_is_due = self._is_paused = False  # left over from a stop
            self._rests = not config.waits_for_replicas
            # Bytes become readable only after their append, or are appended without a put.
            self._polls = uses_transient_pool(config) or config.is_slave
            store.use_replication(self)
            self._is_registered = True
            try:
                listener = self._bound()
                self._thread.start()
                self._thread.submit(self._listen(listener)).result()
            except BaseException:
                self._stop()
                raise
        logger.info("%s: slaves may connect to %s", config.store_path_root_dir, self._address)
        host = self._address.rpartition(":")[0].strip("[]")
        if self._allowed is None and not _ip_address(host).is_loopback:
            logger.warning(
                "%s: any host that reaches this port gets all messages and counts as a replica: "
                "list the slaves (allowed_slaves), or keep other hosts out with a firewall",
                self._address,
            )

    def shutdown(self) -> None:
        """Close all connections and stop listening; waiting puts go on, as after a timeout.

        A second call does nothing.
        """
        with self._changing:
            self._stop()

    def wakeup(self) -> None:
        """Note that something was appended; called with every put."""
        if self._is_idle:
            self._is_idle = False
            self._thread.call(self._look)

    def wait_for(self, next_offset: int, since: float) -> bool:
        """Wait until enough slaves have the log up to an offset; False after the timeout.

        Called by threads that put. A connection counts if its last report is not below the offset.
        The timeout counts from ``since``, when the log was appended (``time.monotonic()``).
        """
        return self._transfers.wait_for(next_offset, since)

    def store_closed(self) -> None:
        """Release waiting puts and end connections: the store is shut down; does not block."""
        self._is_registered = False
        self._transfers.close()
        self._thread.call(self._end, _SHUT_DOWN)

    def store_pauses(self) -> None:
        """Release waiting puts: the store is shut down for a while; does not block.

        Connections end, as the log may be another one afterwards; new slaves wait.
        """
        self._is_paused = True
        self._transfers.close()
        self._thread.call(self._pause)

    def store_goes_on(self) -> None:
        """Accept slaves: the store is open again; does not block."""
        if self._listener is not None:
            self._transfers = self._new_transfers()  # no slave counts before `_go_on`
        self._thread.call(self._go_on)

    def note_ack(self, ack_offset: int) -> None:
        """Note that a slave has reported."""
        self._pushed = max(self._pushed, ack_offset)
        self._note_acks()

    def note_at_end(self) -> None:
        """Let the next put start a search for data, unless one is due anyway."""
        if not self._look_is_due:
            self._await_data()

    def note_closed(self, connection: HAConnection) -> None:
        """Remove a connection; its acknowledgements no longer count."""
        self._connections = tuple(c for c in self._connections if c is not connection)
        self._note_acks()

    def note_store_closed(self) -> None:
        """End the service, or during a pause only the connections: the store was shut down."""
        if self._is_paused:
            self._end_connections(_PAUSED)
            return
        self._is_registered = False
        self._end(_SHUT_DOWN)

    def _note_acks(self) -> None:
        if not self._is_paused:  # otherwise the slaves have the log from before the pause
            self._transfers.note_acks([connection.ack_offset for connection in self._connections])

    def _look(self) -> None:
        """Send available data to all slaves that wait for it."""
        self._is_idle, self._look_is_due = False, True
        for connection in self._connections:
            if connection.waits_for_data:
                connection.send()
        if self._rests:
            asyncio.get_running_loop().call_later(_REST_S, self._await_data)
        else:
            self._await_data()

    def _await_data(self) -> None:
        """Let the next put call `_look`, unless there was one meanwhile."""
        self._look_is_due = False
        waiting = [c for c in self._connections if c.waits_for_data]
        if not waiting:
            return  # the next slave that waits calls this again
        self._is_idle = True  # before the check below: a put that it misses sees this
        loop = asyncio.get_running_loop()
        if any(connection.is_behind for connection in waiting):
            self._is_idle, self._look_is_due = False, True
            loop.call_soon(self._look)
        elif self._polls:
            if self._poll is not None:
                self._poll.cancel()
            self._poll = loop.call_later(_POLL_S, self._look)

    async def _listen(self, listener: socket.socket) -> None:
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def _accept(self) -> None:
        listener, loop = self._listener, asyncio.get_running_loop()
        if listener is None:
            return
        try:
            sock, peer = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as err:  # too many open files: the loop would retry immediately
            logger.error("%s: cannot accept a slave: %s; trying again", self._address, err)  # noqa: TRY400 (the text says all)
            loop.remove_reader(listener)
            loop.call_later(_REST_AFTER_ACCEPT_ERROR_S, self._accept_again)
            return
        address = _host_and_port(peer)
        refusal = self._refusal(peer[0])
        if refusal:
            sock.close()
            logger.warning("slave %s is refused: %s", address, refusal)
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # the slave is already gone
            sock.close()
            return
        logger.info("slave %s has connected", address)
        connection = HAConnection(loop, sock, address, self._store, self)
        self._connections = (*self._connections, connection)

    def _accept_again(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _refusal(self, peer: str) -> str:
        if self._allowed is not None:
            address = _ip_address(peer)
            if not any(address in network for network in self._allowed):
                return "it is not in allowed_slaves; add its address if it should get the log"
        if len(self._connections) >= MAX_CONNECTIONS:
            return (
                f"{MAX_CONNECTIONS} slaves are already connected; check which ones, and "
                "disconnect some"
            )
        return ""

    def _bound(self) -> socket.socket:
        host = self._host or "0.0.0.0"
        port = self._store.config.ha_listen_port if self._port is None else self._port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(found[4][:2], family=found[0], backlog=_BACKLOG)
        except (OSError, OverflowError, UnicodeError) as err:
            raise HAError(
                f"cannot listen for slaves at {host}:{port}: {err}; choose another host or port "
                "(haListenPort), or stop the process that uses it"
            ) from err
        listener.setblocking(False)
        self._address = _host_and_port(listener.getsockname())
        return listener

    async def _ended(self, reason: str) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        """Close everything, in the loop's thread; waiting puts go on."""
        if self._listener is not None:
            logger.info("%s: slaves can no longer connect: %s", self._address, reason)
        listener, self._listener = self._listener, None
        self._transfers.close()
        self._is_idle, self._address = False, ""
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        self._end_connections(reason)

    def _end_connections(self, reason: str) -> None:
        for connection in self._connections:
            connection.close(reason)

    def _pause(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._end_connections(_PAUSED)

    def _go_on(self) -> None:
        """Serve the reopened store; in the loop's thread, after `_pause`."""
        self._is_paused = False
        self._accept_again()

    def _new_transfers(self) -> GroupTransferService:
        config = self._store.config
        return GroupTransferService(config.in_sync_replicas, config.slave_timeout)

    def _leave_to_parent(self) -> None:
        """Close sockets inherited from the parent: otherwise they stay open when it closes them.

        The loop is left alone: it shares its selector with the parent's loop.
        """
        self._changing = threading.Lock()
        connections, self._connections = self._connections, ()
        listener, self._listener = self._listener, None
        self._address = ""
        if listener is not None:
            listener.close()
        for connection in connections:
            connection.leave_to_parent()

    def _stop(self) -> None:
        if self._thread.is_running:
            self._thread.submit(self._ended("this master stops")).result()
            self._thread.shutdown()
        if self._is_registered:
            self._is_registered = False
            with suppress(StoreClosedError):
                self._store.use_replication(None)


def _leave_all_to_parent() -> None:
    for service in tuple(_services):
        service._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    networks = []
    for text in texts:
        try:
            networks.append(_unmapped(ipaddress.ip_network(text)))
        except ValueError as err:
            raise StoreConfigError(f"allowed_slaves: {err}; give addresses or networks") from err
    return tuple(networks)


def _unmapped(network: Network) -> Network:
    """Return a network of IPv4-mapped IPv6 addresses as an IPv4 network; others unchanged."""
    mapped = None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
    if mapped is None:
        return network
    return ipaddress.ip_network((mapped, network.prefixlen - _MAPPED_PREFIX_BITS))


def _ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address without its zone; an IPv4-mapped IPv6 address as an IPv4 one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _host_and_port(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Source: RocketMQ ``GroupTransferService`` (release 5.3.3).
class _Waiter:
    """A thread that waits for an offset on a lock, which `note_acks` or `close` releases."""

    __slots__ = ("is_done", "is_waiting", "offset")

    def __init__(self, offset: int) -> None:
        self.offset, self.is_done = offset, False
        self.is_waiting = threading.Lock()
        self.is_waiting.acquire()


class GroupTransferService:
    """Lets puts go on when enough slaves have acknowledged their records.

    Only open connections count, as in RocketMQ: an acknowledgement is void once its slave has
    disconnected.
    """

    def __init__(self, in_sync_replicas: int, timeout_ms: int) -> None:
        self._slaves, self._timeout_s = in_sync_replicas - 1, timeout_ms / 1000
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._acked = sys.maxsize if self._slaves < 1 else _NONE
        self._is_closed = False

    def wait_for(self, next_offset: int, since: float | None = None) -> bool:
        """Wait until enough slaves have the log up to an offset; False after the timeout.

        The timeout counts from ``since``, when the log was appended (``time.monotonic()``); from
        now if None.
        """
        waiter = _Waiter(next_offset)
        with self._lock:
            if next_offset <= self._acked or self._is_closed:
                return not self._is_closed
            self._waiters.append(waiter)
        passed_s = 0.0 if since is None else time.monotonic() - since
        if not waiter.is_waiting.acquire(timeout=max(self._timeout_s - passed_s, 0)):
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]
        return waiter.is_done

    def note_acks(self, acks: Iterable[int]) -> None:
        """Release puts with enough acknowledgements; ``acks`` are those of all connections."""
        if self._slaves < 1:
            return
        enough = sorted(acks, reverse=True)[: self._slaves]
        acked = enough[-1] if len(enough) == self._slaves else _NONE
        with self._lock:
            self._acked = acked
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if waiter.offset > acked:
                    self._waiters.append(waiter)
                    continue
                waiter.is_done = True
                waiter.is_waiting.release()

    def close(self) -> None:
        """Release all waiting puts, with False; later calls of `wait_for` do not wait."""
        with self._lock:
            self._is_closed = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.is_waiting.release()
