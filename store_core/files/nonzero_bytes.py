"""The first and the last byte of a file that is not zero: what was written, in files made of zeros.

Holes of a sparse file are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource

_FIRST_BYTES = 1 << 12  # as a rule they decide, and cost no map
_CHUNK_BYTES = 4 << 20


def first_nonzero(source: ByteSource, start: int = 0, stop: int | None = None) -> int:
    """Return the first position in ``[start, stop)`` with a byte other than zero; -1 for none.

    ``stop`` is clipped to the file's size.
    """
    stop = source.size if stop is None else min(stop, source.size)
    found = _first_nonzero(source, start, stop)
    if found < 0 and stop == source.size:
        source.note_zeros(start)
    return found


def _first_nonzero(source: ByteSource, start: int, stop: int) -> int:
    at = source.next_data(start)
    if at < stop:
        head = np.frombuffer(source.read_at(at, min(_FIRST_BYTES, stop - at)), np.uint8)
        if head.any():
            return at + int(np.argmax(head != 0))
        at = source.next_data(at + _FIRST_BYTES)
        if stop - at > _CHUNK_BYTES:
            source.read_ahead(at, stop)
    while at < stop:
        chunk = source.view(at, min(_CHUNK_BYTES, stop - at))
        found = int(np.argmax(chunk != 0)) if _is_any_set(chunk) else -1
        source.forget(at, len(chunk))
        if found >= 0:
            return at + found
        at = source.next_data(at + _CHUNK_BYTES)
    source.read_ahead(stop, stop)  # nothing more
    return -1


def last_nonzero(source: ByteSource, start: int = 0, stop: int | None = None) -> int:
    """Return the last position in ``[start, stop)`` with a byte other than zero; -1 for none.

    ``stop`` is clipped to the file's size.
    """
    stop = source.size if stop is None else min(stop, source.size)
    while stop > start:
        low = max(start, stop - _CHUNK_BYTES)
        at = source.next_data(low)
        if at < stop:
            # Of a copy: numpy counts first, and fails when a broker has filled more since.
            filled = np.flatnonzero(source.view(at, stop - at) != 0)
            source.forget(at, stop - at)
            if len(filled):
                return at + int(filled[-1])
        stop = low
    return -1


def _is_any_set(data: npt.NDArray[np.uint8]) -> bool:
    words = len(data) // 8 * 8  # eight bytes at once: a tenth of the time
    return bool(data[:words].view(np.uint64).any() or data[words:].any())
