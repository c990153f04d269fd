# SPDX-License-Identifier: Apache-2.0
"""Follow a master as its slave: copy its log byte for byte.

Source: RocketMQ ``DefaultHAClient`` (release 5.3.3; the same in 4.9.7).
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Callable

from store_core.errors import (
    HAError,
    StoreClosedError,
    StoreConfigError,
    StoreError,
    StoreWriteError,
)
from store_core.event_loop_thread import EventLoopThread
from store_core.ha.end_comparison import (
    OVERLAP_BYTES,
    DivergedError,
    end_of_common_records,
    has_no_bytes,
    start_of_last_blank,
)
from store_core.ha.first_report import (
    EARLIEST,
    report_of_copy,
    report_of_empty,
    require_segment,
)
from store_core.ha.follow_state import ConnectionState, FollowProgress, FollowSettings, FollowState
from store_core.ha.master_connection import MasterConnection
from store_core.ha.peer import CONNECT_S, ConnectionLostError, connect, parse_address
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from concurrent.futures import Future

    from store_core.ha.first_report import FirstOffset, FirstReport
    from store_core.message_store import MessageStore

logger = logging.getLogger(__name__)

ACKS = ("flushed", "appended", "never")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_WIDER = 16
_REFUSALS = 3  # a connection may break immediately for another reason
_POLL_S = 0.002
_ENDED = (ConnectionState.STOPPED, ConnectionState.FAILED)


_taking = threading.Lock()
_followers: weakref.WeakValueDictionary[int, HAClient] = weakref.WeakValueDictionary()
"""The client that appends to each store, by the store's `id`; a client keeps its store alive."""


class HAClient(ShuttingDown):
    """Follows a master: appends its log, dispatches it, and reports its progress.

    Before anything is appended, data from the master is compared with the end of this copy. After a
    lost connection or a failed write the client connects again, with growing pauses; an error that
    this cannot cure ends it: see `failure`. Meanwhile the store may be read, here and by a
    `StoreSnapshot`.

    A master counts each connection whose reported offset reaches a message as a replica of it
    (``inSyncReplicas``): ``ack`` chooses the reported offset.

    Parameters
    ----------
    store
        An open store with ``brokerRole`` SLAVE; its configuration has the intervals and sizes.
    address
        ``HOST:PORT`` of the master (``haListenPort``).
    ack
        ``flushed``: the offset up to which the log is on the disk here. ``appended``: the end of
        the log, as in RocketMQ. ``never``: the first reported offset is repeated.
    first_offset
        Where an empty log begins: the start of a segment that the master has (0 if possible), or
        ``earliest``: the start of its first segment, which is searched for. If None, its last
        segment, as with RocketMQ's masters and slaves. A log with data goes on at its end.
    cut
        If this copy is ahead of the master or differs from it, cut it after the last common record
        and go on; see ``MessageStore.cut_log``. If False, that ends the client.
    on_connected
        Called with the address after each connection, in another thread; it must return.
        Exceptions are logged. For data that does not come with the log: topics, offsets.
    """

    def __init__(
        self,
        store: MessageStore,
        address: str,
        *,
        ack: str = "flushed",
        first_offset: FirstOffset = None,
        cut: bool = False,
        on_connected: Callable[[str], object] | None = None,
    ) -> None:
        parse_address(address)
        if ack not in ACKS:
            raise StoreConfigError(f"ack={ack!r}: expected one of {', '.join(ACKS)}")
        if isinstance(first_offset, str) and first_offset != EARLIEST:
            raise StoreConfigError(
                f"first_offset={first_offset!r}: expected an offset or {EARLIEST!r}"
            )
        self._store, self._on_connected = store, on_connected
        self._first_offset, self._cut = first_offset, cut
        self._overlap_bytes, self._refusals = OVERLAP_BYTES, 0
        self._unproven: int | None = None  # a crash may have destroyed bytes from there on
        config = store.config
        self._settings = FollowSettings(
            address,
            ack,
            config.ha_send_heartbeat_interval / 1000,
            config.ha_housekeeping_interval / 1000,
        )
        self._progress = FollowProgress()
        self._failure: HAError | None = None
        self._thread = EventLoopThread("ha-client")
        self._running: Future[None] | None = None
        self._changing = threading.Lock()

    @property
    def failure(self) -> HAError | None:
        """The error that ended the client; None while there is none."""
        return self._failure

    def start(self) -> None:
        """Start to follow, without waiting; a second call does nothing.

        Raises
        ------
        HAError
            ``brokerRole`` of the store is not SLAVE, or another client appends to it.
        StoreConfigError
            ``first_offset`` is not the beginning of a segment.
        StoreClosedError
            The store is not open.
        """
        with self._changing:
            if self._running is not None:
                return
            self._progress.max_offset = self._store.max_phy_offset
            self._progress.flushed_offset = self._store.flushed_where
            role = self._store.config.broker_role
            if not self._store.config.is_slave:
                raise HAError(
                    f"brokerRole is {role}: open the store with brokerRole=SLAVE to follow a master"
                )
            require_segment(self._store, self._first_offset)
            self._take_store()
            recovery = self._store.load()  # it is open
            self._unproven = None if recovery.last_exit_ok else recovery.unproven_offset
            self._failure = None
            self._thread.start()
            self._running = self._thread.submit(self._run())

    def shutdown(self) -> None:
        """Close the connection; nothing is appended after the return.

        Shut down the store only after that. A second call does nothing.
        """
        with self._changing:
            self._thread.shutdown()
            self._running = None
            with _taking:
                if _followers.get(id(self._store)) is self:
                    del _followers[id(self._store)]
            if self._failure is None:
                self._end(ConnectionState.STOPPED)

    def _take_store(self) -> None:
        with _taking:
            other = _followers.get(id(self._store))
            if other is not None and other is not self and other.failure is None:
                raise HAError(
                    f"another client already follows {other._settings.address} into this store: "
                    "shut it down first"
                )
            _followers[id(self._store)] = self

    def state(self) -> FollowState:
        """Return the progress of this slave; cheap enough for frequent calls."""
        progress, flushed = self._progress, self._flushed_offset()
        end, known, is_caught_up = (
            progress.max_offset,
            progress.master_offset,
            progress.is_caught_up,
        )
        return FollowState(
            connection=progress.connection,
            max_offset=end,
            flushed_offset=flushed,
            acked_offset=progress.acked_offset,
            master_offset=known,
            is_caught_up=is_caught_up,
            lag_bytes=None if known is None else max(known - end, 0),
            lag_ms=self._lag_ms(is_caught_up),
            bytes_received=progress.bytes_received,
            reconnects=progress.reconnects,
            bytes_in_second=progress.flow.bytes_in_second,
            last_read_ms=progress.last_read_ms,
            last_write_ms=progress.last_write_ms,
            error=progress.error or self._dispatch_error(),
        )

    def wait_for(self, offset: int, timeout_s: float) -> bool:
        """Wait until the log has reached an offset, and all before it is in queues and index.

        Returns
        -------
        bool
            False after the timeout, or if this slave has ended before.
        """
        deadline = time.monotonic() + timeout_s
        progress = self._progress
        with progress.changed:
            while progress.max_offset < offset:
                left = deadline - time.monotonic()
                if progress.connection in _ENDED or left <= 0:
                    return False
                progress.changed.wait(left)
        return self._wait_for_dispatch(offset, deadline)

    def _wait_for_dispatch(self, offset: int, deadline: float) -> bool:
        try:
            while not self._is_dispatched(offset):
                if self._failure is not None or time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
        except StoreClosedError:
            return False
        return True

    def _is_dispatched(self, offset: int) -> bool:
        services = self._store.services
        return (
            services.reput.reput_from_offset >= offset
            and services.build_index.behind_bytes <= services.reput.reput_from_offset - offset
        )

    def _flushed_offset(self) -> int:
        with suppress(StoreClosedError):
            self._progress.flushed_offset = self._store.flushed_where
        return self._progress.flushed_offset

    def _dispatch_error(self) -> str:
        with suppress(StoreClosedError):
            reput = self._store.services.reput
            if reput.is_failing:
                return f"the received data is not dispatched: {reput.last_error}"
        return ""

    def _lag_ms(self, is_caught_up: bool) -> int | None:
        if is_caught_up:
            return 0
        try:
            stored = self._store.services.reput.dispatched_timestamp
        except StoreClosedError:
            return None
        return max(self._store.clock() - stored, 0) if stored > 0 else None

    async def _run(self) -> None:
        try:
            await self._follow()
        except asyncio.CancelledError:
            raise
        except HAError as err:
            self._fail(err)
        except StoreError as err:
            self._fail(HAError(f"following {self._settings.address}: {err}"), err)
        except Exception as err:
            logger.exception("following %s ended", self._settings.address)
            self._fail(HAError(f"following {self._settings.address}: {err!r}"), err)

    async def _follow(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            end, since = self._progress.max_offset, time.monotonic()
            try:
                await self._follow_once()
            except DivergedError as err:
                await self._mend(err)
            except (ConnectionLostError, StoreWriteError) as err:
                self._note_lost(err)
                self._overlap_bytes = OVERLAP_BYTES
            lasted = time.monotonic() - since > _LONGEST_PAUSE_S
            if lasted or self._progress.max_offset > end:
                pause = _FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            self._progress.reconnects += 1

    async def _follow_once(self) -> None:
        if self._settings.ack == "flushed":  # the first report counts, too
            await asyncio.get_running_loop().run_in_executor(None, self._store.flush)
        first_report = await self._first_report()
        sock = await connect(self._settings.address, CONNECT_S)
        with sock:
            self._connected()
            connection = MasterConnection(
                sock, self._store, self._settings, self._progress, first_report
            )
            try:
                await connection.run()
            except ConnectionLostError:
                if connection.is_compared:
                    self._unproven = None
                self._refusals = self._refusals + 1 if connection.is_refused else 0
                if self._refusals >= _REFUSALS:
                    await connection.require_more()
                raise

    async def _first_report(self) -> FirstReport:
        store = self._store
        if not has_no_bytes(store):
            return report_of_copy(store, self._overlap_bytes, self._unproven)
        was_refused = self._refusals % 2 == 1
        return await report_of_empty(
            store, self._settings, self._first_offset, was_refused=was_refused
        )

    async def _mend(self, err: DivergedError) -> None:
        """Cut this copy's log, or compare more of it next time, so that the client may go on."""
        store, (start, stop) = self._store, err.common
        if self._first_offset == EARLIEST and has_no_bytes(store):
            self._note_lost(err)  # the master has deleted that segment meanwhile
            return
        if self._unproven is not None and not err.may_cut:  # the master may still have what follows
            self._note_lost(err)
            self._unproven = None
            return
        if err.may_cut and await self._mend_blank(err):
            return
        is_torn = err.is_torn and self._unproven is not None and stop >= self._unproven
        if not (self._cut or is_torn) or not err.may_cut:
            raise err
        self._note_lost(err)
        end = end_of_common_records(store, start, stop)
        if end is not None:
            await self._cut_at(end)
        elif start > max(store.min_phy_offset, 1):
            self._overlap_bytes *= _WIDER
        else:
            raise HAError(
                f"{self._settings.address} has nothing in common with this copy, from the copy's "
                f"beginning at {store.min_phy_offset} on: nothing was cut. Start with an empty "
                "directory"
            ) from err

    async def _mend_blank(self, err: DivergedError) -> bool:
        """Cut the blank record at the end of this copy, if the master has all before it.

        A master that is killed right after it closed a segment loses that record at its next start,
        and may put a message in its place. No message of this copy is cut.
        """
        start, stop = err.common
        blank = start_of_last_blank(self._store)
        if blank is None or stop < blank:
            return False
        self._note_lost(err)
        if start < blank:
            await self._cut_at(blank)
        else:  # nothing before it was compared
            self._overlap_bytes *= _WIDER
        return True

    async def _cut_at(self, offset: int) -> None:
        progress = self._progress
        progress.connection = ConnectionState.CUTTING
        await asyncio.get_running_loop().run_in_executor(None, self._store.cut_log, offset)
        progress.max_offset, progress.master_offset = offset, None
        self._overlap_bytes = OVERLAP_BYTES

    def _connected(self) -> None:
        address = self._settings.address
        logger.info("connected to the master %s", address)
        self._progress.error = ""
        if self._on_connected is not None:
            asyncio.get_running_loop().run_in_executor(None, self._tell_connected)

    def _tell_connected(self) -> None:
        address = self._settings.address
        try:
            if self._on_connected is not None:
                self._on_connected(address)
        except Exception:
            logger.exception("on_connected(%s) failed; following the log goes on", address)

    def _note_lost(self, err: Exception) -> None:
        progress = self._progress
        if str(err) != progress.error:
            logger.warning("%s; trying again", err)
        progress.error, progress.is_caught_up = str(err), False
        progress.connection = ConnectionState.NOT_CONNECTED

    def _fail(self, err: HAError, cause: Exception | None = None) -> None:
        if cause is not None:
            err.__cause__ = cause
        self._progress.error = str(err)
        logger.error("%s", err)
        self._end(ConnectionState.FAILED)
        self._failure = err  # last: a thread that sees it sees the rest

    def _end(self, state: ConnectionState) -> None:
        progress = self._progress
        progress.is_caught_up = False
        with progress.changed:
            progress.connection = state
            progress.changed.notify_all()
