"""Find records in bytes of the commit log: walk from size to size, or search after damage."""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.layout.dledger import DLEDGER_BLANK, DLEDGER_BLANK_MAGIC, DLEDGER_ENTRY
from store_core.layout.message import (
    BLANK_MAGIC_CODE,
    BLANK_RECORD_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_MAGIC_PREFIX = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)[:3]
_SIZE = struct.Struct(">I")  # unsigned: a damaged size never steps back
_SHORT_STRETCH = 256
_LONG_STRETCH = 16384
ENTRY_BYTES = DLEDGER_ENTRY.size
"""Of the header before each record of a DLedger log."""
_MAGIC_AT = RECORD_PREFIX.at("magic_code")


class Walk(NamedTuple):
    """Where records start, and where and why the walk stopped.

    ``stop`` is the position after the last record. ``failed`` says that no record, and no blank
    record either, lies there; ``blank`` that a blank record does.
    """

    starts: npt.NDArray[np.int64]
    stop: int
    failed: bool
    blank: bool


def walk_records(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    """Walk from record to record through their total sizes.

    About seven million records a second, more where sizes repeat. Only size and magic code are
    looked at; ``RecordFrames`` does the checks for all rows together.

    Parameters
    ----------
    start
        A record's first byte.
    stop
        Records that start here or later are not walked; records may end later.
    max_rows, max_bytes
        The walk ends after this many records, or with the record that reaches this many bytes.
    """
    end = len(data)
    bytes_stop = min(stop, end - BLANK_RECORD_BYTES + 1, start + max_bytes)
    most = max(bytes_stop - start, 0) // MIN_RECORD_BYTES + 1  # a small size steps on slowly
    starts = _starts(data, start, bytes_stop, min(max_rows, most))
    prefix = RECORD_PREFIX.gather(data, starts)
    size, magic = prefix["total_size"], prefix["magic_code"]
    ok = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    ok &= (size >= MIN_RECORD_BYTES) & (starts + size <= end)
    if not ok.all():
        bad = int(np.argmin(ok))
        blank = int(magic[bad]) == BLANK_MAGIC_CODE
        return Walk(starts[:bad], int(starts[bad]), not blank, blank)
    at = int(starts[-1]) + int(size[-1]) if len(starts) else start
    # Where fewer than eight bytes are left, nothing can start.
    failed = at < min(stop, end) and at > end - BLANK_RECORD_BYTES
    return Walk(starts, at, failed, blank=False)


def walk_entries(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    """Walk a log of DLedger, in which a header stands before each record; see `walk_records`.

    Only the records are looked at, not the headers. ``start``, ``stop`` and ``Walk.stop`` are
    places of headers, ``Walk.starts`` of records.
    """
    records = data[ENTRY_BYTES:]  # a record stands in these where its header does in the others
    end = len(records)
    bytes_stop = min(stop, end - RECORD_PREFIX.size + 1, start + max_bytes)
    most = max(bytes_stop - start, 0) // (ENTRY_BYTES + MIN_RECORD_BYTES) + 1
    starts = _starts(records, start, bytes_stop, min(max_rows, most), ENTRY_BYTES)
    prefix = RECORD_PREFIX.gather(records, starts)
    size, magic = prefix["total_size"], prefix["magic_code"]
    ok = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    ok &= (size >= MIN_RECORD_BYTES) & (starts + size <= end)
    good = len(ok) if ok.all() else int(np.argmin(ok))
    at = int(starts[good - 1]) + int(size[good - 1]) + ENTRY_BYTES if good else start
    starts = starts[:good] + ENTRY_BYTES
    if good == len(ok) and at <= end - RECORD_PREFIX.size:
        return Walk(starts, at, failed=False, blank=begins_blank_of_entries(data, at))
    blank = begins_blank_of_entries(data, at)
    return Walk(starts, at, not blank and at < min(stop, len(data)), blank)


def begins_blank_of_entries(data: npt.NDArray[np.uint8], at: int) -> bool:
    """Return whether the blank that closes a file of a DLedger log starts at ``at``."""
    if at + DLEDGER_BLANK.size > len(data):
        return False
    return bool(DLEDGER_BLANK.unpack(data, at).magic == DLEDGER_BLANK_MAGIC)


def _starts(
    data: npt.NDArray[np.uint8], at: int, stop: int, count: int, between: int = 0
) -> npt.NDArray[np.int64]:
    """Return where up to ``count`` records before ``stop`` start if the sizes are right.

    ``between`` bytes lie between a record and the next.

    Producers of one kind often send messages of one size: as long as that holds, all positions of
    a run are guessed and checked together. Else it is one step a record; a run is tried again
    after ever longer stretches, so that trying costs nothing where sizes vary. A size of zero, as
    after the end of a log, is the last one.
    """
    view, parts, stretch = memoryview(data), [np.empty(0, np.int64)], _SHORT_STRETCH
    while at < stop and count > 0:
        run = _run_of_equal_sizes(data, at, stop, count, between)
        if len(run) < _SHORT_STRETCH:
            all_steps = _steps_over(view, at, stop, between) if between else _steps(view, at, stop)
            steps = islice(all_steps, min(stretch, count))
            run = np.fromiter(steps, np.int64)
            stretch = min(2 * stretch, _LONG_STRETCH)
        else:
            stretch = _SHORT_STRETCH
        parts.append(run)
        count -= len(run)
        at = int(run[-1]) + (_SIZE.unpack_from(view, int(run[-1]))[0] or stop) + between
    return np.concatenate(parts)


def _run_of_equal_sizes(
    data: npt.NDArray[np.uint8], at: int, stop: int, count: int, between: int
) -> npt.NDArray[np.int64]:
    """Return the leading positions, each a record further, at which that same size stands."""
    size = _SIZE.unpack_from(data, at)[0]
    if size < MIN_RECORD_BYTES:
        return np.empty(0, np.int64)
    step = size + between
    most = min(count, (stop - at - 1) // step + 1)
    if most < _SHORT_STRETCH:  # too few to count as a run
        return np.empty(0, np.int64)
    guessed: npt.NDArray[np.int64] = at + step * np.arange(most, dtype=np.int64)
    same = RECORD_PREFIX.gather(data, guessed)["total_size"] == size
    run = len(guessed) if same.all() else int(np.argmin(same))
    return guessed[:run]


def _steps(view: memoryview, at: int, stop: int) -> Iterator[int]:
    """Yield where each record starts if the sizes are right; the caller bounds and checks them."""
    unpack = _SIZE.unpack_from
    while at < stop:
        yield at
        at += unpack(view, at)[0] or stop


def _steps_over(view: memoryview, at: int, stop: int, between: int) -> Iterator[int]:
    """Yield what `_steps` does, where bytes lie between the records."""
    unpack = _SIZE.unpack_from
    while at < stop:
        yield at
        at += (unpack(view, at)[0] or stop) + between


def magic_code_hits(data: npt.NDArray[np.uint8]) -> Iterator[int]:
    """Yield, ascending, where a record may start: its magic code, or nearly, is in its place."""
    text = data.tobytes()
    hit = text.find(_MAGIC_PREFIX, _MAGIC_AT)
    while hit >= 0:
        yield hit - _MAGIC_AT
        hit = text.find(_MAGIC_PREFIX, hit + 1)


def is_record(data: npt.NDArray[np.uint8], base_offset: int, at: int) -> bool:
    """Return whether a whole valid record starts at ``at`` (frame and own offset; not the CRC)."""
    if at < 0 or at + MIN_RECORD_BYTES > len(data):
        return False
    size, magic = RECORD_PREFIX.struct.unpack_from(data, at)
    if magic not in {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}:
        return False
    if size < MIN_RECORD_BYTES or at + size > len(data):
        return False
    return bool(RecordFrames(data, base_offset, np.array([at], np.int64)).ok[0])
