# SPDX-License-Identifier: Apache-2.0
"""The records of a segment: one, or a range in order as batches of frames and gaps of damage.

A range need not begin or end where a record starts: a range ``[start, stop)`` has the records from
the first that starts at or after ``start`` up to the first that starts at or after ``stop``, and
the gaps between them. So consecutive ranges yield every record, and every gap, once, wherever they
are cut.

`scan_slice` reads a slice that `slice_of` cut from one segment, perhaps in another process;
`store_core.log.commit_log.scan_log` reads any range of a log that this process has open.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from store_core.codec.dledger_entries import entry_headers, headers_ok
from store_core.codec.record_frames import (
    RecordFrames,
    is_record,
    magic_code_hits,
    walk_entries,
    walk_records,
)
from store_core.errors import CorruptRecordError
from store_core.files.byte_source import first_nonzero
from store_core.layout import (
    BLANK_MAGIC_CODE,
    COMMIT_LOG_OFFSET_AT,
    DLEDGER_BLANK,
    DLEDGER_BLANK_MAGIC,
    HEADER_IPV4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.codec.record_frames import Walk
    from store_core.files.byte_source import ByteSource
    from store_core.files.segment_list import Segment
    from store_core.layout import RecordLayout

    Bytes = npt.NDArray[np.uint8]
    Int64s = npt.NDArray[np.int64]

DAMAGED_HEADER = "the header of a DLedger entry contradicts its record"
_FIRST_ROWS = 256
_GROWTH = 8
WINDOW_BYTES = 8 << 20
_MAGIC_CODES = frozenset((MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2))
_claims_at = struct.Struct(
    f"{RECORD_PREFIX.struct.format}{COMMIT_LOG_OFFSET_AT - RECORD_PREFIX.size}xq"
).unpack_from
"""Size, magic code and own offset of a record."""
_HEADER_BYTES = HEADER_IPV4.size
_FIRST_SEARCH_BYTES = 1 << 16
_SEARCH_BYTES = 1 << 20
JOIN_BYTES = 1 << 16
"""Records of a remote file that start closer than this are fetched together."""
_RECORD_GUESS_BYTES = 1 << 12
_PIECE_BYTES = 4 << 20
_MAX_BLANK_BYTES = 8 << 20
"""A blank record is smaller than the message that did not fit, which is 4 MiB by default."""


class Gap(NamedTuple):
    """Bytes of the log in which no record could be read.

    ``position`` is that of the first lost byte in the file; ``bytes_lost`` reaches to the next
    readable record, or to the end of the log.
    """

    commit_log_offset: int
    bytes_lost: int
    path: str
    position: int
    reason: str


class LogSlice(NamedTuple):
    """A range of one segment; plain values that can be sent to another process.

    Attributes
    ----------
    end_offset
        End of the readable log; bytes after it are not data.
    header_bytes
        Length of the header before each record: of a DLedger entry, or 0.
    """

    path: str
    from_offset: int
    file_size: int
    start: int
    stop: int
    end_offset: int
    missing_bytes: int = 0
    starts_exactly: bool = False
    header_bytes: int = 0


LogPart = Union[RecordFrames, Gap]


class BatchSizer:
    """Limits the records of the next batch: few at first, so that ``limit`` answers fast."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._max_rows = max_rows
        self._rows = min(_FIRST_ROWS, max_rows)

    def next_rows(self) -> int:
        """Return the bound for the next batch and raise that of the following one."""
        rows = self._rows
        self._rows = min(rows * _GROWTH, self._max_rows)
        return rows


def slice_of(
    segment: Segment, file_size: int, start: int, stop: int, end_offset: int
) -> LogSlice | None:
    """Return the part of a range that is in a segment; None if there is none."""
    begin, end = segment.from_offset, segment.from_offset + file_size
    if end <= start or begin >= min(stop, end_offset):
        return None
    return LogSlice(
        path=segment.path,
        from_offset=begin,
        file_size=file_size,
        start=max(start, begin),
        stop=min(stop, end),
        end_offset=end_offset,
        header_bytes=segment.header_bytes,
    )


def skip_gap(gap: Gap) -> None:
    """Ignore a gap, to read all that is readable."""


def refuse_gap(gap: Gap) -> None:
    """Raise `CorruptRecordError`, for ranges that have to be read completely."""
    raise CorruptRecordError(gap.reason, gap.path, gap.position)


def scan_slice(source: ByteSource, part: LogSlice, sizer: BatchSizer) -> Iterator[LogPart]:
    """Yield the frames and gaps of a slice in order; every row of the frames is a valid frame.

    A local file is one view. A remote one is read in windows of 8 MiB, each byte once, up to the
    end of the slice's last record; frames keep their window alive.
    """
    header = part.header_bytes
    records = SegmentRecords(source, part.from_offset, part.file_size, part.end_offset, header)
    log_end = max(min(part.file_size, part.end_offset - part.from_offset), 0)
    at = part.start - part.from_offset
    source.read_ahead(at, min(part.stop - part.from_offset, log_end))
    if not part.starts_exactly or (header and records.is_record(at)):
        at = _boundary(records, at, log_end)
    stop = _boundary(records, part.stop - part.from_offset, log_end)
    while at < stop:
        window = records.window(at, stop)
        walk = records.walk(window, at, stop, sizer.next_rows(), sizer.max_bytes)
        frames = RecordFrames(window.data, part.from_offset + window.start, walk.starts)
        good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
        if good:
            kept = frames if good == len(frames) else frames.take(np.arange(good))
            if header:
                yield from _with_headers(kept, part)
            else:
                yield kept
            after = walk.stop if good == len(frames) else int(walk.starts[good]) - header
            seen, at = at, window.start + after
            source.forget(seen, at - seen)
            continue  # a row that failed after good records fails again, now as the first
        if walk.blank and not len(frames) and records.closes_at(at):
            break  # the blank record is here, not after a damaged one
        after = _first_record(records, at + header + 1, log_end)
        yield _gap(records, part, at, after)
        at = after
    segment_end = part.from_offset + part.file_size
    if part.missing_bytes and part.start < segment_end <= part.stop:
        yield lost_segments(segment_end, segment_end + part.missing_bytes, part, part.path)


def _with_headers(frames: RecordFrames, part: LogSlice) -> Iterator[LogPart]:
    """Yield records of entries; a damaged header is a gap before its record, which is complete."""
    bad = np.flatnonzero(~headers_ok(entry_headers(frames), frames)).tolist()
    low = 0
    for row in bad:
        if row > low:
            yield frames.take(np.arange(low, row))
        offset = int(frames.column("commit_log_offset")[row]) - part.header_bytes
        position = offset - part.from_offset
        yield Gap(offset, part.header_bytes, part.path, position, DAMAGED_HEADER)
        low = row
    yield frames.take(np.arange(low, len(frames))) if bad else frames


def _boundary(records: SegmentRecords, position: int, log_end: int) -> int:
    """Return the position of the first record at or after one (see the module's text)."""
    if position <= 0:
        return 0
    return log_end if position >= log_end else _first_record(records, position, log_end)


def _first_record(records: SegmentRecords, position: int, log_end: int) -> int:
    """Return the start of the first record at or after a position, or of its header if any."""
    found = records.find(position)
    return log_end if found < 0 else found - records.header_bytes


def _gap(records: SegmentRecords, part: LogSlice, at: int, after: int) -> Gap:
    if at >= records.length:
        reason = f"the file ends here; {part.file_size} bytes were expected"
    elif records.is_zero(at, after):
        reason = "no valid record: the bytes are zero"
    else:
        head = records.bytes_at(at, 8).tobytes().hex(" ", 4)
        reason = f"no valid record: the bytes are {head}"
    return Gap(part.from_offset + at, after - at, part.path, at, reason)


def lost_segments(start: int, stop: int, before: LogSlice | None, place: str) -> Gap:
    """Return the gap of missing segments."""
    if before is None:
        text = f"the segments that held offsets {start} to {stop} of the log are missing"
        return Gap(start, stop - start, place, 0, text)
    reason = "segments are missing after this file"
    return Gap(start, stop - start, before.path, before.file_size, reason)


def _blank_of(
    layout: RecordLayout, magic_code: int, magic: str, size: str
) -> tuple[RecordLayout, bytes, int, int]:
    return layout, magic_code.to_bytes(4, "big", signed=True), layout.at(magic), layout.at(size)


_BLANK = _blank_of(RECORD_PREFIX, BLANK_MAGIC_CODE, "magic_code", "total_size")


_DLEDGER_BLANK = _blank_of(DLEDGER_BLANK, DLEDGER_BLANK_MAGIC, "magic", "size")


class Window(NamedTuple):
    """Bytes of a segment; ``data[0]`` is at position ``start`` of the file."""

    start: int
    data: Bytes

    @property
    def stop(self) -> int:
        """Position after the last byte."""
        return self.start + len(self.data)


# A local file is one view that costs nothing. Of a remote one only windows are read, so that memory
# stays bounded and a slice moves its own bytes over the network, not those of the whole segment.
class SegmentRecords:
    """The records of a segment by their positions in its file.

    Parameters
    ----------
    from_offset, file_size
        The segment's offset in the log and its nominal bytes.
    header_bytes
        Length of the header before each record: of a DLedger entry, or 0. Walks begin at headers;
        all other positions are those of records.

    Attributes
    ----------
    length
        Readable bytes.
    """

    def __init__(
        self,
        source: ByteSource,
        from_offset: int,
        file_size: int,
        end_offset: int,
        header_bytes: int = 0,
    ) -> None:
        self.header_bytes = header_bytes
        self._blank = _DLEDGER_BLANK if header_bytes else _BLANK
        self.from_offset = from_offset
        self.file_size = file_size
        self.length = max(min(source.size, file_size, end_offset - from_offset), 0)
        self._is_open = end_offset - from_offset < file_size  # it ends before a closing blank
        self._source = source
        self._is_local = source.is_local
        self._hold(Window(0, self.bytes_at(0, self.length if self._is_local else 0)))
        self._closing_blank: int | None = None

    def bytes_at(self, start: int, length: int) -> Bytes:
        """Return the readable part of a range of bytes."""
        return self._source.view(start, max(min(length, self.length - start), 0))

    def window(self, position: int, stop: int) -> Window:
        """Return bytes from ``position`` on, including the whole record there, if there is one.

        The position is that of its header, if records have one.

        Of a remote file, bytes after ``stop`` are read only for that record. The same window is
        returned again as long as it suffices.
        """
        held = self._window
        if self._is_local:
            return held
        record = position + self.header_bytes
        needed = record + max(self.claimed_bytes(record), RECORD_PREFIX.size)
        if held.start <= position and min(needed, self.length) <= held.stop:
            return held
        until = max(needed, min(position + WINDOW_BYTES, stop))
        self._hold(Window(position, self.bytes_at(position, until - position)))
        return self._window

    def walk(self, window: Window, at: int, stop: int, max_rows: int, max_bytes: int) -> Walk:
        """Walk from record to record of a window; the result's positions are those in its data."""
        walk = walk_entries if self.header_bytes else walk_records
        return walk(window.data, at - window.start, stop - window.start, max_rows, max_bytes)

    def blank_bytes(self, position: int) -> int | None:
        """Return the size that the blank record there gives; None if there is none.

        In a DLedger log the size must be that of the file's rest: the magic code of its blanks has
        all bits set, as damage often leaves them.
        """
        layout, magic_code, magic_at, size_at = self._blank
        head = self.bytes_at(position, layout.size).tobytes()
        if len(head) < layout.size or head[magic_at : magic_at + 4] != magic_code:
            return None
        size = int.from_bytes(head[size_at : size_at + 4], "big", signed=True)
        return size if not self.header_bytes or size == self.file_size - position else None

    def closes_at(self, position: int) -> bool:
        """Return whether a blank record ends the segment there, by its size or as none follows.

        Otherwise it is a damaged record, with readable ones after it.
        """
        size = self.blank_bytes(position)
        return size is not None and (
            size == self.file_size - position or self.find(position + 1) < 0
        )

    def _hold(self, window: Window) -> None:
        self._window, self._window_start = window, window.start
        self._memory = memoryview(window.data)  # takes half the time of the array, per record
        self._last_header = len(window.data) - _HEADER_BYTES

    def claimed_bytes(self, position: int) -> int:
        """Return the size of the record that seems to start there, 0 if none does."""
        size: int
        at = position - self._window_start
        if 0 <= at <= self._last_header:
            size, magic, own = _claims_at(self._memory, at)
        else:
            head = self.bytes_at(position, _HEADER_BYTES)
            if len(head) < _HEADER_BYTES:
                return 0
            size, magic, own = _claims_at(head)
        is_message = own == self.from_offset + position and magic in _MAGIC_CODES
        return size if is_message and MIN_RECORD_BYTES <= size <= self.length - position else 0

    def is_record(self, position: int) -> bool:
        """Return whether a whole valid record starts there (frame and own offset; not the CRC)."""
        if not 0 <= position <= self.length - MIN_RECORD_BYTES:
            return False
        size = self.claimed_bytes(position)
        return size > 0 and is_record(self.bytes_at(position, size), self.from_offset + position, 0)

    def store_timestamp(self, position: int) -> int:
        """Return the store time of the record there; the caller knows that there is one."""
        data = self.bytes_at(position, self.claimed_bytes(position))
        frames = RecordFrames(data, self.from_offset + position, np.zeros(1, np.int64))
        return int(frames.column("store_timestamp")[0])

    def find(self, start: int, stop: int | None = None) -> int:
        """Return the first position in ``[start, stop)`` at which a record starts, or -1.

        Records inside the blank that closes the segment do not count: a log that recovery cut and
        that grew again has intact old ones there.
        """
        end = self.length if stop is None else min(stop, self.length)
        at, step = max(start, 0), _FIRST_SEARCH_BYTES
        while (at := self._source.next_data(at)) < end:  # holes have no records
            upto = min(at + step, end)
            for hit in magic_code_hits(self.bytes_at(at, upto - at + RECORD_PREFIX.size - 1)):
                if at + hit < upto and self.is_record(at + hit):
                    return -1 if at + hit >= self.closing_blank(at + hit) else at + hit
            at, step = upto, _SEARCH_BYTES
        return -1

    def closing_blank(self, position: int) -> int:
        """Return the start of the blank record that closes the segment, if before ``position``.

        ``file_size`` if there is none; searches only where a blank record can be.
        """
        tail = max(self.file_size - _MAX_BLANK_BYTES, 0)
        if position <= tail or self._is_open:
            return self.file_size
        if self._closing_blank is None:
            self._closing_blank = self._find_closing_blank(tail)
        return self._closing_blank

    def _find_closing_blank(self, tail: int) -> int:
        data = self.bytes_at(tail, self.length - tail).tobytes()
        _, magic, magic_at, size_at = self._blank
        hit = data.find(magic, magic_at)
        while hit >= 0:
            at = hit - magic_at
            size = int.from_bytes(data[at + size_at : at + size_at + 4], "big", signed=True)
            if size == self.file_size - tail - at:
                return tail + at
            hit = data.find(magic, hit + 1)
        return self.file_size

    def frames_at(self, positions: Int64s, sizes: Int64s | None = None) -> RecordFrames:
        """Return frames at ascending positions inside the file; not all need be ok.

        ``sizes``: bytes of the records, if known; a remote file is first read exactly there.
        """
        if self._is_local or len(positions) == 0:
            return RecordFrames(self._window.data, self.from_offset, positions)
        breaks = np.flatnonzero(np.diff(positions) > JOIN_BYTES) + 1
        runs = np.split(positions, breaks)
        if sizes is not None:
            frames = self._joined(positions, runs, self._exact(runs, np.split(sizes, breaks)))
            if frames.ok.all():
                return frames
        return self._joined(positions, runs, self._runs_bytes(runs))

    def _exact(self, runs: Sequence[Int64s], sizes: Sequence[Int64s]) -> list[Bytes]:
        """Fetch records of known sizes, runs of close ones together."""
        asked, of_run = [], []
        for run, lengths in zip(runs, sizes):
            end = min(int((run + lengths).max()), self.length)
            pieces = range(int(run[0]), end, _PIECE_BYTES)
            asked += [(at, min(_PIECE_BYTES, end - at)) for at in pieces]
            of_run.append(len(asked))
        found = self._source.views(asked)
        parts = [found[first:last] for first, last in zip([0, *of_run], of_run)]
        return [part[0] if len(part) == 1 else _concatenated(part) for part in parts]

    def _joined(
        self, positions: Int64s, runs: Sequence[Int64s], found: Sequence[Bytes]
    ) -> RecordFrames:
        parts, moved, packed = [], [], 0
        for run, data in zip(runs, found):
            parts.append(data)
            moved.append(run - int(run[0]) + packed)
            packed += len(data)
        place = np.concatenate(moved)
        frames = RecordFrames(np.concatenate(parts), self.from_offset + positions - place, place)
        frames.ok &= positions + frames.column("total_size") <= self.length
        return frames

    def _runs_bytes(self, runs: Sequence[Int64s]) -> list[Bytes]:
        """Read each run of positions from the first one to the end of its last record."""
        lengths = [int(run[-1] - run[0]) + _RECORD_GUESS_BYTES for run in runs]
        asked = [(int(r[0]), min(n, self.length - int(r[0]))) for r, n in zip(runs, lengths)]
        heads = self._source.views(asked) if len(runs) > 1 else [self.bytes_at(*asked[0])]
        needed = [self._run_length(run, head) for run, head in zip(runs, heads)]
        short = [i for i, head in enumerate(heads) if needed[i] > len(head)]
        rests = [(int(runs[i][0]) + len(heads[i]), needed[i] - len(heads[i])) for i in short]
        for i, rest in zip(short, self._source.views(rests)):
            heads[i] = np.concatenate([heads[i], rest])
        return heads

    def _run_length(self, run: Int64s, head: Bytes) -> int:
        """Return how many bytes the records of a run take from its first position on."""
        first = int(run[0])
        at = run - first
        at = at[at + HEADER_IPV4.size <= len(head)]
        header = HEADER_IPV4.gather(head, at)
        own = header["commit_log_offset"] == at + first + self.from_offset
        ends = np.where(own, at + header["total_size"], 0)
        ends = ends[ends <= self.length - first]
        return int(ends.max()) if len(ends) else 0

    def is_zero(self, start: int, stop: int) -> bool:
        """Return whether all readable bytes of a range are zero."""
        return first_nonzero(self._source, start, min(stop, self.length)) < 0


def _concatenated(parts: Sequence[Bytes]) -> Bytes:
    return np.concatenate([np.empty(0, np.uint8), *parts])
