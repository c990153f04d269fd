"""A range of a remote object that is read from front to back: the next pieces are fetched early."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from store_core.files.remote_requests import start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from store_core.files.remote_object import RemoteObject

PIECE_BYTES = 4 << 20
_MOST_AHEAD = 8
"""Pieces that are fetched or wait to be read: 32 MiB."""


class ReadAhead:
    """Pieces of ``[start, stop)`` of an object. Few at first: who reads may want the first only.

    Parameters
    ----------
    remote
        The object.
    begin, stop
        Of the range.
    """

    def __init__(self, remote: RemoteObject, begin: int, stop: int) -> None:
        self._remote, self.begin, self.stop = remote, begin, stop
        self._pieces: dict[int, Future[bytes]] = {}
        self._first, self._ahead = 0, 1
        self._fetch(0, 0)

    def holds(self, start: int) -> bool:
        """Return whether a place lies in the range, and not in what was read and dropped."""
        return self.begin + self._first * PIECE_BYTES <= start < self.stop

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of the range; pieces before them are dropped."""
        first, last = (start - self.begin) // PIECE_BYTES, (stop - 1 - self.begin) // PIECE_BYTES
        for number in range(self._first, first):
            dropped = self._pieces.pop(number, None)
            if dropped is not None:
                dropped.cancel()
        self._first = first
        if last > 0:  # it is read on
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        self._fetch(first, last + self._ahead)
        parts = list(self._parts(start, stop, first, last))
        whole = parts[0].obj
        is_whole = len(parts) == 1 and isinstance(whole, bytes) and len(parts[0]) == len(whole)
        return whole if is_whole and isinstance(whole, bytes) else b"".join(parts)

    def _parts(self, begin: int, stop: int, first: int, last: int) -> Iterator[memoryview]:
        for number in range(first, last + 1):
            piece = self._pieces[number].result()
            at = self.begin + number * PIECE_BYTES
            yield memoryview(piece)[max(begin - at, 0) : max(stop - at, 0)]

    def _fetch(self, first: int, last: int) -> None:
        count = -(-(self.stop - self.begin) // PIECE_BYTES)
        for number in range(first, min(last + 1, count)):
            if number not in self._pieces:
                self._pieces[number] = start(partial(self._piece, number))

    def _piece(self, number: int) -> bytes:
        at = self.begin + number * PIECE_BYTES
        return self._remote.read(at, min(at + PIECE_BYTES, self.stop))

    def close(self) -> None:
        """Drop what waits; requests that are under way end by themselves."""
        for piece in self._pieces.values():
            piece.cancel()
        self._pieces.clear()
