"""Work that runs ahead of whoever takes its results: several at once, in order, within a budget."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator

    from store_core.event_loop_thread import EventLoopThread

Job = TypeVar("Job")
Result = TypeVar("Result")


class PullAhead(Generic[Job, Result]):
    """Does jobs in an event loop, several at a time, while another thread takes the results.

    Brokers give few messages for one request, so that a reader which waits for each answer waits
    most of its time.

    Parameters
    ----------
    thread
        Of the loop; it runs.
    jobs
        In the order in which their results are taken.
    work
        Does one job.
    size
        Bytes of a result.
    rest
        What is left of the job that gave a result, if it did not do all; it is done when the result
        is taken, before all that comes after it.
    at_once
        Most jobs that are being done.
    most_bytes
        No job is begun while so many bytes of results wait.
    """

    def __init__(
        self,
        thread: EventLoopThread,
        jobs: Iterable[Job],
        work: Callable[[Job], Coroutine[Any, Any, Result]],
        size: Callable[[Result], int],
        rest: Callable[[Result], Job | None] = lambda _: None,
        *,
        at_once: int,
        most_bytes: int,
    ) -> None:
        self._jobs, self._work, self._size, self._rest = iter(jobs), work, size, rest
        self._at_once, self._most_bytes = at_once, most_bytes
        self._begun = self._taken = self._waiting_bytes = 0
        self._done: dict[int, Result] = {}
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._room: asyncio.Event | None = None
        self._thread = thread
        self._running = thread.submit(self._run())

    def __iter__(self) -> Iterator[Result]:
        """Yield the results in the order of the jobs; raise what a job raised."""
        while True:
            found = self._next_ones()
            if not found:
                return
            for result in found:
                yield result
                self._give_back(self._size(result))
                yield from self._rests(result)

    def _rests(self, result: Result) -> Iterator[Result]:
        job = self._rest(result)
        while job is not None:
            found = self._thread.submit(self._work(job)).result()
            yield found
            job = self._rest(found)

    def stop(self) -> None:
        """End what runs; results that nobody took are lost."""
        self._running.cancel()

    def _next_ones(self) -> list[Result]:
        """Return all results that are next in order; wait for one; none: all are taken."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._taken in self._done or self._error is not None or self._ended
            )
            found = []
            while self._taken in self._done:
                found.append(self._done.pop(self._taken))
                self._taken += 1
            if not found and self._error is not None:
                raise self._error
            return found

    def _give_back(self, size: int) -> None:
        with self._changed:
            was_full = self._waiting_bytes >= self._most_bytes
            self._waiting_bytes -= size
            has_room = was_full and self._waiting_bytes < self._most_bytes
        if has_room and self._room is not None:
            self._thread.call(self._room.set)

    async def _run(self) -> None:
        self._room = asyncio.Event()
        workers = [asyncio.ensure_future(self._worker()) for _ in range(self._at_once)]
        try:
            await asyncio.gather(*workers)
        except BaseException as err:
            for worker in workers:
                worker.cancel()
            self._end(err)
            if not isinstance(err, Exception):
                raise
        else:
            self._end(None)

    async def _worker(self) -> None:
        while True:
            await self._wait_for_room()
            job = next(self._jobs, None)
            if job is None:
                return
            number = self._begun
            self._begun += 1
            self._put(number, await self._work(job))

    async def _wait_for_room(self) -> None:
        room = self._room
        while room is not None:
            room.clear()
            with self._changed:
                if self._waiting_bytes < self._most_bytes:
                    return
            await room.wait()

    def _put(self, number: int, result: Result) -> None:
        with self._changed:
            self._done[number] = result
            self._waiting_bytes += self._size(result)
            if number == self._taken:
                self._changed.notify_all()

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._error, self._ended = error, True
            self._changed.notify_all()
