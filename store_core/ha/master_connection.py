# SPDX-License-Identifier: Apache-2.0
"""One connection to a master: received data is compared, appended, flushed and reported.

Source: RocketMQ ``DefaultHAClient`` (release 5.3.3). Unlike there, a slave first requests bytes
that it already has, and appends nothing before they prove equal.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from store_core.errors import HAError, StoreFormatError
from store_core.ha.end_comparison import EndComparison, has_no_bytes, segment_size
from store_core.ha.follow_state import LEAST_SILENCE_S, ConnectionState
from store_core.ha.frame_reader import FirstRecord, FrameReader, WholeRecords
from store_core.ha.master_probe import probe, require_common_end, require_first
from store_core.ha.peer import ConnectionLostError, run_together
from store_core.layout import REPORT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from store_core.ha.first_report import FirstReport
    from store_core.ha.follow_state import FollowProgress, FollowSettings
    from store_core.ha.frame_reader import LogRun
    from store_core.message_store import MessageStore

BUFFER_BYTES = 1 << 20
_FLUSH_EVERY_S = 0.1
_MUCH_UNFLUSHED_BYTES = 1 << 20
_LONGEST_REST_S = 1.0
_PROBE_AFTER_S = 1.0
_REST_RETRY_S = 0.05


class MasterConnection:
    """Follows the master until the connection breaks.

    Parameters
    ----------
    sock
        A connected socket; the caller closes it.
    """

    def __init__(
        self,
        sock: socket.socket,
        store: MessageStore,
        settings: FollowSettings,
        progress: FollowProgress,
        first_report: FirstReport,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock, self._store, self._settings = sock, store, settings
        self._progress, request = progress, first_report.offset
        self._request = request
        peer, end = settings.address, store.max_phy_offset
        self._reader = FrameReader(
            peer, segment_size(store), first_report.next_offset, BUFFER_BYTES
        )
        self._sender = ReportSender(sock, peer, self._loop.time)
        self._comparison = EndComparison(store, peer, request, end) if request < end else None
        self._lacks_all = request > 0 and has_no_bytes(store)
        self._first_record = FirstRecord(peer, segment_size(store)) if has_no_bytes(store) else None
        self._whole_records = WholeRecords(segment_size(store))
        self._unflushed, self._caught_up = asyncio.Event(), asyncio.Event()
        self._flushed_at = 0.0
        self._received_at = self._body_at = self._loop.time()
        self._heartbeat_at: float | None = None  # the first after the last body

    @property
    def has_received(self) -> bool:
        """Whether a valid frame was received."""
        return self._reader.frames > 0

    async def run(self) -> None:
        """Follow until the connection breaks.

        Raises
        ------
        ConnectionLostError
            The connection is broken.
        HAError
            This copy cannot follow this master.
        StoreWriteError
            The log cannot be written or forced to the disk.
        """
        is_compared = self._comparison is None
        self._progress.master_offset = None  # it may have gone back since the last connection
        state = ConnectionState.FOLLOWING if is_compared else ConnectionState.COMPARING
        self._progress.connection = state
        self._sender.send(self._request)
        self._note_ack()
        await run_together(self._receive(), self._watch(), self._flush(), self._ask_for_end())

    @property
    def is_compared(self) -> bool:
        """Whether the end of this copy proved equal to the master's log."""
        return self._comparison is None

    @property
    def is_refused(self) -> bool:
        """Whether the master sent nothing for the requested offset, not even a heartbeat."""
        return self._request > 0 and not self.has_received

    async def require_more(self) -> None:
        """Raise unless the master may still have the missing part of the requested data.

        Requests the whole last segment if needed: a connection may have ended for another reason.

        Raises
        ------
        HAError
            The master does not have it.
        ConnectionLostError
            The master does not answer.
        """
        store, settings, has_answered = self._store, self._settings, self.has_received
        address, comparison = settings.address, self._comparison
        at = None if comparison is None else comparison.at
        last = await probe(address, 0, settings.answer_s, upto=at)
        if comparison is not None:
            require_common_end(store, address, comparison, last, has_answered=has_answered)
        elif self._lacks_all:
            require_first(store, address, self._request, last, has_answered=has_answered)

    async def _receive(self) -> None:
        """Receive in callbacks of the loop, which spare each piece of data a turn of it."""
        ended: asyncio.Future[None] = self._loop.create_future()

        def receive() -> None:
            if ended.done():  # cancelled, but the reader is not removed yet
                return
            try:
                self._receive_once()
            except Exception as err:
                ended.set_exception(err)

        self._loop.add_reader(self._sock, receive)
        try:
            await ended
        finally:
            self._loop.remove_reader(self._sock)

    def _receive_once(self) -> None:
        room = self._reader.room()
        try:
            count = self._sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as err:
            raise ConnectionLostError(f"{self._settings.address}: {err.strerror or err}") from err
        if not count:
            raise ConnectionLostError(f"{self._settings.address} closed the connection")
        self._received_at = self._loop.time()
        self._progress.last_read_ms = time.time_ns() // 1_000_000
        runs = self._reader.take(count)
        for run in runs:
            self._accept(run)
        self._after_round(bool(runs), is_full=count == len(room))

    def _accept(self, run: LogRun) -> None:
        offset, data = run
        self._progress.bytes_received += len(data)
        self._progress.flow.add(len(data))
        if self._comparison is not None:
            data = self._comparison.take(data)
            if not self._comparison.is_done:
                return
            offset, self._comparison = self._comparison.end, None
            self._progress.connection = ConnectionState.FOLLOWING
            self._unflushed.set()
        if data:
            self._append(offset, data)

    def _append(self, offset: int, data: memoryview) -> None:
        if self._first_record is not None:
            beginning = self._first_record.take(offset, data)
            if beginning is None:
                return
            (offset, data), self._first_record = beginning, None
        for part in self._whole_records.take(offset, data):
            try:
                self._store.append_to_commit_log(*part)
            except ValueError as err:
                raise HAError(
                    f"the data that {self._settings.address} sends does not fit this copy: {err}"
                ) from err
            self._progress.grown(part.offset + len(part.data))
            self._unflushed.set()

    def _after_round(self, has_body: bool, *, is_full: bool) -> None:
        reader, progress = self._reader, self._progress
        if has_body:
            self._body_at, self._heartbeat_at = self._received_at, None
        elif reader.last_body == 0 and self._heartbeat_at is None:
            self._heartbeat_at = self._received_at
        known = reader.known_end
        progress.master_offset = max(progress.master_offset or 0, known)
        usual = max(reader.largest_body, self._store.config.ha_transfer_batch_size)
        ends_segment = reader.last_body > 0 and known % segment_size(self._store) == 0
        is_cut = ends_segment or reader.last_body >= usual  # the master may have more
        self._set_caught_up(
            not (is_cut or is_full or self._lacks_old())
            and reader.is_between_frames
            and known >= progress.master_offset
        )
        if self._settings.ack == "appended" and self._comparison is None:
            self._report(progress.max_offset)

    def _set_caught_up(self, is_caught_up: bool) -> None:
        self._progress.is_caught_up = is_caught_up
        if is_caught_up:
            self._caught_up.set()
        else:
            self._caught_up.clear()

    def _report(self, offset: int) -> None:
        if offset > self._sender.offset:
            self._sender.send(offset)
            self._note_ack()

    def _note_ack(self) -> None:
        self._progress.acked_offset = self._sender.offset
        self._progress.last_write_ms = time.time_ns() // 1_000_000

    async def _flush(self) -> None:
        """Force appended data to the disk and report it, together with all that came meanwhile."""
        if self._settings.ack != "flushed":
            await asyncio.Event().wait()
        while True:
            await self._unflushed.wait()
            await self._rest_before_flush()
            self._unflushed.clear()
            flushed = await self._loop.run_in_executor(None, self._store.flush)
            self._flushed_at = self._loop.time()
            self._progress.flushed_offset = flushed
            self._report(flushed)

    async def _rest_before_flush(self) -> None:
        """Limit a slave that is catching up to ten flushes a second: no put waits for its reports.

        If little data came since the last flush, a put may wait for it: a master whose puts wait
        sends frames of any size.
        """
        rest = self._flushed_at + _FLUSH_EVERY_S - self._loop.time()
        unflushed = self._progress.max_offset - self._progress.flushed_offset
        if rest > 0 and unflushed >= _MUCH_UNFLUSHED_BYTES and not self._caught_up.is_set():
            waiting = asyncio.ensure_future(self._caught_up.wait())
            try:
                await asyncio.wait({waiting}, timeout=rest)
            finally:
                waiting.cancel()

    async def _watch(self) -> None:
        """Send heartbeats; end a connection that is silent or cannot go on."""
        settings, sender = self._settings, self._sender
        while True:
            due = sender.sent_at + settings.heartbeat_s - self._loop.time()
            rest = _REST_RETRY_S if sender.has_rest else max(due, 0.0)
            await asyncio.sleep(min(rest, _LONGEST_REST_S, settings.heartbeat_s))
            now = self._loop.time()
            if sender.has_rest:
                sender.send_rest()
            elif now - sender.sent_at >= settings.heartbeat_s:
                sender.repeat()
            self._require_life(now)
            self._require_dispatch()
            if self._is_stuck(now):
                await self._find_out_why()

    def _require_life(self, now: float) -> None:
        limit, address = self._settings.housekeeping_s, self._settings.address
        if now - self._received_at > limit:
            raise ConnectionLostError(
                f"{address} was silent for {limit:g} s (haHousekeepingInterval)"
            )
        if self._sender.has_rest and now - self._sender.sent_at > limit:
            raise ConnectionLostError(
                f"{address} read no report for {limit:g} s (haHousekeepingInterval)"
            )

    def _require_dispatch(self) -> None:
        reput = self._store.services.reput
        if reput.is_failing and isinstance(reput.last_error, StoreFormatError):
            raise HAError(f"following {self._settings.address}: {reput.last_error}")

    def _is_stuck(self, now: float) -> bool:
        """Return whether the master sends no data that it should have.

        A due heartbeat comes before data, and under flow control a master of RocketMQ sends empty
        frames for up to a second: so this must last for a while.
        """
        if self._heartbeat_at is None:
            return False
        patience = max(self._settings.heartbeat_s, LEAST_SILENCE_S)
        return (
            self._lacks_old()
            and now - self._body_at >= patience
            and now - self._heartbeat_at >= min(patience, _LONGEST_REST_S)
        )

    def _lacks_old(self) -> bool:
        """Return whether the master has not yet sent data that it should already have."""
        is_first = self._lacks_all and self._reader.next_offset == self._request
        return is_first or self._comparison is not None

    async def _find_out_why(self) -> None:
        seen = self._body_at
        try:
            await self.require_more()
        except HAError:
            if self._body_at == seen:  # otherwise data came meanwhile
                raise
        self._heartbeat_at = None

    async def _ask_for_end(self) -> None:
        """Ask for the master's end on a second connection if catching up takes longer."""
        await asyncio.sleep(_PROBE_AFTER_S)
        if not self._caught_up.is_set():
            try:
                found = await probe(self._settings.address, 0, self._settings.answer_s)
            except ConnectionLostError:
                pass
            else:
                progress = self._progress
                progress.master_offset = max(progress.master_offset or 0, found.end)
        await asyncio.Event().wait()


# A master uses the last whole offset that it reads, and counts bytes from the beginning of the
# connection: so the rest of a report comes before anything else. And it begins to send at the last
# offset in its first read: so another report must not follow before it has begun.
class ReportSender:
    """Sends reports on a non-blocking socket; bytes that it does not take wait for `send_rest`.

    Parameters
    ----------
    clock
        Returns seconds; monotonic.

    Attributes
    ----------
    offset
        The last reported offset; -1 before the first.
    """

    def __init__(self, sock: socket.socket, peer: str, clock: Callable[[], float]) -> None:
        self._sock, self._peer, self._clock = sock, peer, clock
        self.offset = -1
        self.sent_at = clock()
        self._rest = b""
        self._wanted = False

    @property
    def has_rest(self) -> bool:
        """Whether bytes wait that the socket did not take."""
        return bool(self._rest) or self._wanted

    def send(self, offset: int) -> None:
        """Report an offset; it replaces a waiting report of which nothing was sent.

        Raises
        ------
        ConnectionLostError
            The connection is broken.
        """
        self.offset, self._wanted = offset, True
        self.send_rest()

    def repeat(self) -> None:
        """Report the last offset again, as a heartbeat."""
        self.send(self.offset)

    def send_rest(self) -> None:
        """Send the bytes that the socket did not take before."""
        if self._wanted and not self._rest:
            self._rest, self._wanted = REPORT.pack(max_offset=self.offset), False
        try:
            while self._rest:
                self._rest = self._rest[self._sock.send(self._rest) :]
                self.sent_at = self._clock()
                if self._wanted and not self._rest:
                    self._rest, self._wanted = REPORT.pack(max_offset=self.offset), False
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as err:
            raise ConnectionLostError(
                f"cannot report to {self._peer}: {err.strerror or err}"
            ) from err
