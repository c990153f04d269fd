"""A file of a store on a remote filesystem: blocks for small reads, exact ranges for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.files.byte_source import ByteSource
from store_core.files.read_ahead import ReadAhead
from store_core.files.remote_object import BLOCK_BYTES, Blocks, ObjectVersion, RemoteObject
from store_core.files.remote_requests import at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

JOIN_BYTES = 1 << 16
"""Pieces that are closer than this are fetched together: a request costs about as much."""
_OWN_BLOCKS = 8
_LONGEST_KEPT_BYTES = 8 << 20
"""More at once is not kept in blocks."""

_zero_tails: dict[tuple[str, ObjectVersion | None], int] = {}
_MOST_ZERO_TAILS = 1024


class RemoteByteSource(ByteSource):
    """An object as a file; every read copies.

    Small reads fetch and keep whole blocks, so what was read once is not asked for again: remote
    files are those of stopped stores or copies.

    Parameters
    ----------
    remote
        The object.
    blocks
        Where blocks are kept beyond this source; the object stays open then. None: eight are
        kept, and the object is closed with the source.
    check
        Raises where the object is another one by now.
    version
        What was listed of the object.
    """

    def __init__(
        self,
        remote: RemoteObject,
        blocks: Blocks | None = None,
        check: Callable[[], None] | None = None,
        version: ObjectVersion | None = None,
    ) -> None:
        self.path, self.size = remote.path, remote.size
        self._remote, self._check = remote, check
        is_known = version is not None and version.modified_ms > 0
        self._identity = (remote.path, version) if is_known else None
        self._is_owner = blocks is None
        self._blocks = Blocks(_OWN_BLOCKS) if blocks is None else blocks
        self._ahead: ReadAhead | None = None

    def read_at(self, start: int, length: int) -> bytes:
        """Return bytes of the file; see ``ByteSource``."""
        start, stop = self._clip(start, length)
        if start == stop:
            return b""
        if self._ahead is not None and self._ahead.holds(start):
            upto = min(stop, self._ahead.stop)
            data = self._ahead.read(start, upto)
            return data if upto == stop else data + self._remote.read(upto, stop)
        first, last = start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES
        if last - first > 1 and (self._is_owner or stop - start >= _LONGEST_KEPT_BYTES):
            return self._remote.read(start, stop)
        data = b"".join(self._block_run(first, last))
        return data[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]

    def _block_run(self, first: int, last: int) -> list[bytes]:
        """Return blocks side by side; those that are not kept are fetched at once."""
        found = [self._blocks.get(self._remote, number) for number in range(first, last + 1)]
        lacking = [first + i for i, block in enumerate(found) if block is None]
        if lacking:
            begin = lacking[0] * BLOCK_BYTES
            data = self._remote.read(begin, min((lacking[-1] + 1) * BLOCK_BYTES, self.size))
            for number in range(lacking[0], lacking[-1] + 1):
                at = number * BLOCK_BYTES - begin
                found[number - first] = block = data[at : at + BLOCK_BYTES]
                self._blocks.put(self._remote, number, block)
        return [block for block in found if block is not None]

    def views(self, ranges: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.uint8]]:
        """Return arrays of ranges; each is fetched as it is, many at once, and none is kept."""
        clipped = [self._clip(start, length) for start, length in ranges]
        return [
            np.frombuffer(data, np.uint8)
            for data in at_once(lambda r: self._remote.read(*r) if r[0] < r[1] else b"", clipped)
        ]

    def _gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        order = np.argsort(starts, kind="stable")
        ordered = starts[order]
        pieces = np.empty((len(starts), width), np.uint8)
        runs = np.split(np.arange(len(starts)), joined_breaks(ordered))
        begins = [int(ordered[rows[0]]) for rows in runs]
        lengths = [int(ordered[rows[-1]]) + width - at for rows, at in zip(runs, begins)]
        asked = list(zip(begins, lengths))
        blocks = self.views(asked) if len(asked) > 1 else [self.view(*asked[0])]
        for rows, first, block in zip(runs, begins, blocks):
            pieces[order[rows]] = sliding_window_view(block, width)[ordered[rows] - first]
        return pieces

    def read_ahead(self, start: int, stop: int) -> None:
        """Fetch a range from front to back before it is asked for, in bounded memory."""
        start, stop = self._clip(start, max(stop - start, 0))
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = ReadAhead(self._remote, start, stop) if start < stop else None

    def next_data(self, start: int) -> int:
        """Return the size where only zeros follow, as another look at the same object found."""
        zeros = self.size if self._identity is None else _zero_tails.get(self._identity, self.size)
        return self.size if start >= zeros else min(start, self.size)

    def note_zeros(self, start: int) -> None:
        """Remember it for this process: a segment that a broker was filling ends with many."""
        if self._identity is not None:
            _zero_tails[self._identity] = min(start, _zero_tails.get(self._identity, start))
            while len(_zero_tails) > _MOST_ZERO_TAILS:
                _zero_tails.pop(next(iter(_zero_tails)), None)

    def check_unchanged(self) -> None:
        """Raise `StoreReadError` where the object is another one than was listed."""
        if self._check is not None:
            self._check()

    def close(self) -> None:
        """Forget what was read, and close the object if it is this source's own."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        if self._is_owner:
            self._remote.close()


def joined_breaks(ordered: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return before which of some ascending places a new request begins."""
    return np.flatnonzero(np.diff(ordered) > JOIN_BYTES) + 1
