# SPDX-License-Identifier: Apache-2.0
"""The connection of a slave to this master: its reports, and the data sent to it.

Source: RocketMQ ``DefaultHAConnection`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Protocol

from store_core.errors import HAError, StoreClosedError, StoreReadError
from store_core.ha.follow_state import FlowMonitor
from store_core.layout import REPORT, TRANSFER_HEADER
from store_core.log.commit_log import DEFAULT_SEGMENT_BYTES

if TYPE_CHECKING:
    import asyncio
    import socket

    from store_core.message_store import MessageStore

logger = logging.getLogger(__name__)
_READ_BYTES = 4096
_NOTHING = -1
_CHECKS_IN_INTERVAL = 10
_TURN_BYTES = 1 << 20
_MOST_BYTES = 1 << 20
_MOST_FRAMES = 500  # two buffers each; the system takes 1024 in one call


@dataclass(frozen=True)
class SlaveState:
    """State of a connected slave, as known to its master.

    Attributes
    ----------
    address
        ``HOST:PORT`` of the slave's end of the connection.
    request_offset
        Its first report, where the transfer begins (0 = at the last segment); -1 before it.
    ack_offset
        Its last report: the end of the slave's log; -1 before the first.
    transfer_offset
        End of the data sent to it; -1 before its first report.
    bytes_in_second
        Bytes of the log sent to it in the last whole second.
    is_in_sync
        Whether it has reported, and lacks fewer bytes than ``haMaxGapNotInSync``.
    """

    address: str
    request_offset: int
    ack_offset: int
    transfer_offset: int
    bytes_in_second: int
    is_in_sync: bool


class Connections(Protocol):
    """The owner of the connections, which call it in the loop's thread."""

    def note_ack(self, ack_offset: int) -> None:
        """Count a report of a slave."""

    def note_at_end(self) -> None:
        """Call `HAConnection.send` when there is more data: a slave was sent everything."""

    def note_closed(self, connection: HAConnection) -> None:
        """Remove a connection that has ended."""

    def note_store_closed(self) -> None:
        """End all connections: the store was shut down."""


class HAConnection:
    """Serves one slave, in callbacks of an event loop; all calls but `state` run in its thread.

    Unlike in RocketMQ, an impossible report ends the connection: an offset below 0, a first one
    past the end of this log (the slave is a copy of another master, or this log was cut), or a
    later one past the data sent here. No such report counts as an acknowledgement.

    Parameters
    ----------
    sock
        Connected, non-blocking; owned and closed by this object.

    Attributes
    ----------
    ack_offset
        The last report; -1 before the first.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        address: str,
        store: MessageStore,
        connections: Connections,
    ) -> None:
        config = store.config
        self.address = address
        self.request_offset = self.ack_offset = _NOTHING
        self.waits_for_data = False
        self._loop, self._sock, self._store, self._connections = loop, sock, store, connections
        self._heartbeat_s = config.ha_send_heartbeat_interval / 1000
        self._housekeeping_s = config.ha_housekeeping_interval / 1000
        limited = config.ha_flow_control_enable
        self._flow = FlowMonitor(config.max_ha_transfer_byte_in_second if limited else None)
        self._transfer: LogTransfer | None = None
        self._unread = b""
        self._is_closed = self._resumes_by_itself = False
        self._read_at = self._wrote_at = loop.time()
        self._resumes: asyncio.TimerHandle | None = None
        loop.add_reader(sock, self._guarded, self._read)
        self._check = loop.call_later(self._next_check_s(), self._guarded, self._check_time)

    def state(self, end_offset: int) -> SlaveState:
        """Return the state of the slave; any thread may call this."""
        transfer, ack_offset = self._transfer, self.ack_offset
        return SlaveState(
            address=self.address,
            request_offset=self.request_offset,
            ack_offset=ack_offset,
            transfer_offset=_NOTHING if transfer is None else transfer.offset,
            bytes_in_second=self._flow.bytes_in_second,
            is_in_sync=self.is_in_sync(end_offset),
        )

    def is_in_sync(self, end_offset: int) -> bool:
        """Return whether the slave has reported, and lacks less than ``haMaxGapNotInSync``."""
        gap = self._store.config.ha_max_gap_not_in_sync
        return self.ack_offset != _NOTHING and end_offset - self.ack_offset < gap

    @property
    def is_behind(self) -> bool:
        """Whether the log has more data than was sent to the slave."""
        try:
            return self._transfer is not None and self._transfer.is_behind
        except StoreClosedError:
            return True  # `send` finds out

    def send(self) -> None:
        """Send as much as the socket takes, and go on by callbacks until everything is sent."""
        self._guarded(self._send)

    def close(self, reason: str = "", level: int = logging.INFO) -> None:
        """End the connection and log the reason; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._check.cancel()
        if self._resumes is not None:
            self._resumes.cancel()
        self._sock.close()
        logger.log(level, "slave %s: the connection is closed: %s", self.address, reason)
        self._connections.note_closed(self)

    def leave_to_parent(self) -> None:
        """Close only the socket, in a child of the process that serves the slave."""
        self._is_closed = True
        self._sock.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a callback; an error ends only this connection."""
        if self._is_closed:
            return
        try:
            work()
        except HAError as err:
            self.close(str(err), logging.WARNING)
        except StoreClosedError:
            self._connections.note_store_closed()
        except StoreReadError as err:
            self.close(f"the log cannot be read: {err}", logging.ERROR)
        except OSError as err:
            self.close(err.strerror or str(err))
        except Exception:
            logger.exception("slave %s: internal error", self.address)
            self.close("internal error; see the log", logging.ERROR)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self.close("the slave closed it")
            return
        data = self._unread + data
        stop = len(data) - len(data) % REPORT.size
        self._unread = data[stop:]
        if stop:  # less than a report is no sign of life: single bytes would keep it open
            self._read_at = self._loop.time()
            self._take_report(REPORT.unpack(data, stop - REPORT.size).max_offset)

    def _take_report(self, max_offset: int) -> None:
        if max_offset < 0:
            raise HAError(
                f"it reported offset {max_offset}, which no log has: it is not a RocketMQ slave, "
                "or one of another release; find out what connects to this port"
            )
        if self._transfer is None:
            self._begin_transfer(max_offset)
        elif max_offset > self._transfer.offset:
            raise HAError(
                f"it reported offset {max_offset}, but was sent data only up to "
                f"{self._transfer.offset}: something else writes its log; recreate its copy"
            )
        self.ack_offset = max_offset
        self._connections.note_ack(max_offset)

    def _begin_transfer(self, max_offset: int) -> None:
        """Begin the transfer at the offset of the first report."""
        store = self._store
        end, first = store.max_phy_offset, store.min_phy_offset
        if max_offset > end == 0:
            raise HAError(
                f"it asks for the log from offset {max_offset} on, but this log is empty: a new "
                "slave reconnects by itself; a slave that has a log is a copy of another master, "
                "or this master has lost its log"
            )
        if max_offset > end:
            raise HAError(
                f"its log ends at {max_offset}, this one at {end}: it is a copy of another "
                "master, or this master has lost the end of its log; cut the slave's log, or "
                "recreate its copy"
            )
        is_below = 0 < max_offset < first
        segment = store.config.mapped_file_size_commit_log or DEFAULT_SEGMENT_BYTES
        offset = max_offset or end - end % segment
        if is_below:
            logger.warning(
                "slave %s asks for offset %d, but the log begins at %d: it gets heartbeats only; "
                "copy the log's files to it, or let it start with an empty directory",
                self.address,
                max_offset,
                first,
            )
        else:
            logger.info(
                "slave %s reported offset %d; sending the log from %d on",
                self.address,
                max_offset,
                offset,
            )
        self.request_offset = max_offset
        self._transfer = LogTransfer(store, self._sock, offset, is_below_log=is_below)
        self._loop.call_soon(self._guarded, self._send)  # first the report counts

    def _send(self) -> None:
        transfer = self._transfer
        if transfer is None or self._resumes_by_itself:
            return
        self.waits_for_data = False
        if not transfer.is_in_frame and self._heartbeat_is_due():
            transfer.begin_heartbeat()
        before = transfer.sent_bytes
        progress = self._send_turn(transfer)
        if transfer.sent_bytes > before:
            self._wrote_at = self._loop.time()
        if progress is SendProgress.AT_END:
            self.waits_for_data = not transfer.is_below_log
            self._connections.note_at_end()
            return
        self._resumes_by_itself = True
        if progress is SendProgress.BLOCKED:
            self._loop.add_writer(self._sock, self._guarded, self._resume)
        else:
            rest_s = 0.0 if self._flow.allowance_bytes else self._flow.next_second_s
            self._resumes = self._loop.call_later(rest_s, self._guarded, self._resume)

    def _send_turn(self, transfer: LogTransfer) -> SendProgress:
        """Send about 1 MiB, then let others take their turn."""
        stop = transfer.sent_bytes + _TURN_BYTES
        progress = SendProgress.SENT
        while progress is SendProgress.SENT and transfer.sent_bytes < stop:
            allowance = self._flow.allowance_bytes
            if not allowance and not transfer.is_in_frame:
                return SendProgress.SENT
            before = transfer.offset
            progress = transfer.send(allowance)
            self._flow.add(transfer.offset - before)
        return progress

    def _resume(self) -> None:
        self._loop.remove_writer(self._sock)
        self._resumes, self._resumes_by_itself = None, False
        self._send()

    def _check_time(self) -> None:
        silent_s = self._loop.time() - self._read_at
        if silent_s > self._housekeeping_s:
            raise HAError(
                f"it has sent no report for {silent_s:.1f} s (haHousekeepingInterval is "
                f"{self._housekeeping_s:g} s): slave or network hangs; it may connect again"
            )
        if self._heartbeat_is_due():
            self._send()
        if not self._is_closed:
            rest_s = self._next_check_s()
            self._check = self._loop.call_later(rest_s, self._guarded, self._check_time)

    def _heartbeat_is_due(self) -> bool:
        return self._loop.time() - self._wrote_at >= self._heartbeat_s

    def _next_check_s(self) -> float:
        """Return the seconds until a heartbeat may be due, or the slave silent for too long."""
        now = self._loop.time()
        is_due_in = self._wrote_at + self._heartbeat_s - now
        if is_due_in <= 0:  # but cannot be sent: the slave does not read, or has not reported
            is_due_in = self._heartbeat_s / _CHECKS_IN_INTERVAL
        return min(is_due_in, max(self._read_at + self._housekeeping_s - now, 0.001))


# Source: RocketMQ ``DefaultHAConnection.WriteSocketService`` (release 5.3.3).
class SendProgress(Enum):
    """Outcome of a call of `LogTransfer.send`."""

    SENT = "all that was offered; there may be more"
    BLOCKED = "the socket takes no more now"
    AT_END = "there is nothing to send"


class LogTransfer:
    """The position of a transfer in the log, and the rest of the current frame.

    It stores no bytes of the log: what the socket does not take is read again. So a slave that does
    not read costs neither memory nor an open file.

    Parameters
    ----------
    is_below_log
        Whether the bytes at this offset were deleted, which is not an error: the slave gets
        heartbeats.

    Attributes
    ----------
    offset
        Offset of the next byte of the log to send.
    """

    def __init__(
        self, store: MessageStore, sock: socket.socket, offset: int, *, is_below_log: bool = False
    ) -> None:
        self.offset, self.sent_bytes = offset, 0
        self.is_below_log = is_below_log
        self._store, self._sock = store, sock
        self._batch_bytes = store.config.ha_transfer_batch_size
        self._most_bytes = min(_MOST_BYTES, self._batch_bytes * _MOST_FRAMES)
        self._header, self._body_left = b"", 0

    @property
    def is_in_frame(self) -> bool:
        """Whether a frame was begun and its rest comes next."""
        return bool(self._header) or self._body_left > 0

    @property
    def is_behind(self) -> bool:
        """Whether the log has bytes to send."""
        return not self.is_below_log and self.offset < self._store.replicable_offset

    def begin_heartbeat(self) -> None:
        """Make an empty frame the next one; must not be called within a frame."""
        self._header = TRANSFER_HEADER.pack(offset=self.offset, body_size=0)

    def send(self, allowance_bytes: int) -> SendProgress:
        """Send the rest of the frame, and more frames within the allowance, of one segment.

        Between frames the allowance must not be 0.

        Raises
        ------
        HAError
            The next bytes were deleted.
        OSError
            The connection is broken.
        StoreClosedError
            The store was shut down.
        """
        if self._header and not self._body_left:
            return self._send_heartbeat()
        progress = self._send_data(allowance_bytes)
        if progress is SendProgress.AT_END and self.is_behind:
            # The bytes may have been appended since.
            progress = self._send_data(allowance_bytes)
            if progress is SendProgress.AT_END:
                raise self._gone()
        return progress

    def _send_heartbeat(self) -> SendProgress:
        sent = _send(self._sock, [self._header])
        self.sent_bytes += sent
        self._header = self._header[sent:]
        return SendProgress.BLOCKED if self._header else SendProgress.SENT

    def _send_data(self, allowance_bytes: int) -> SendProgress:
        there_is = self._store.replicable_offset - self.offset
        most = max(min(self._most_bytes, allowance_bytes, there_is), self._body_left)
        with self._store.commit_log_data(self.offset, most) as data:
            if data is None or len(data) < self._body_left:
                return SendProgress.AT_END
            parts = self._frames(memoryview(data))
            offered = sum(map(len, parts))
            sent = _send(self._sock, parts)
            self._advance(parts, sent)
            self.sent_bytes += sent
        return SendProgress.SENT if sent == offered else SendProgress.BLOCKED

    def _frames(self, data: memoryview) -> list[Any]:
        """Return headers and bodies alternately, beginning with the rest of the current frame."""
        parts: list[Any] = [self._header, data[: self._body_left]] if self.is_in_frame else []
        for at in range(self._body_left, len(data), self._batch_bytes):
            body = data[at : at + self._batch_bytes]
            parts += (TRANSFER_HEADER.struct.pack(self.offset + at, len(body)), body)
        return parts

    def _advance(self, parts: list[Any], sent: int) -> None:
        """Advance by the bytes sent of headers and bodies."""
        self._header, self._body_left = b"", 0
        for header, body in zip(parts[::2], parts[1::2]):
            header_sent = min(sent, len(header))
            body_sent = min(sent - header_sent, len(body))
            sent -= header_sent + body_sent
            self.offset += body_sent
            if header_sent < len(header) or body_sent < len(body):
                if header_sent or len(header) < TRANSFER_HEADER.size:  # else it was not begun
                    self._header, self._body_left = header[header_sent:], len(body) - body_sent
                return

    def _gone(self) -> HAError:
        return HAError(
            f"the next byte to send is at offset {self.offset}, but the log now begins at "
            f"{self._store.min_phy_offset}: its segment was deleted before this slave received "
            "it; copy the log's files to the slave, or let it start with an empty directory"
        )


def _send(sock: socket.socket, parts: list[Any]) -> int:
    try:
        return sock.sendmsg(parts)
    except (BlockingIOError, InterruptedError):
        return 0
