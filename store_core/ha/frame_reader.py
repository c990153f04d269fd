"""Takes the frames of a master apart, as they come: the bytes of the log without the headers.

Source: RocketMQ ``DefaultHAClient.dispatchReadRequest`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import is_record, walk_records
from store_core.errors import HAError
from store_core.ha.peer import ConnectionLostError
from store_core.layout import (
    BLANK_RECORD_BYTES,
    MAX_BODY_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
    TRANSFER_HEADER,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER_BYTES = TRANSFER_HEADER.size
_MOST_BYTES = 64 << 20
_MAGIC_CODES = {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}
_LOW_BITS = 24


class LogRun(NamedTuple):
    """Bytes of the master's log, all of one segment; valid until more is received."""

    offset: int
    data: memoryview


class FrameReader:
    """Gets what a socket receives, and gives the bytes of the log: whole frames are not awaited.

    Bodies that follow one another are moved together, over the headers between them: so what
    one call received is appended with one call, whatever the master's ``haTransferBatchSize``.

    Parameters
    ----------
    next_offset
        Where the first frame must lie; None: at the beginning of any segment.
    buffer_bytes
        What one call receives at most.

    Attributes
    ----------
    next_offset
        Offset of the next byte of the log that comes.
    """

    def __init__(
        self, peer: str, segment_size: int, next_offset: int | None, buffer_bytes: int
    ) -> None:
        self._peer, self._segment_size = peer, segment_size
        self.next_offset = next_offset
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._carry = b""  # the beginning of a header
        self._left = 0  # bytes of the body that have not come yet
        self.frames = self.heartbeats = 0
        self.largest_body = self.last_body = 0

    @property
    def is_between_frames(self) -> bool:
        """The last frame has come as a whole, and nothing of the next one."""
        return not self._left and not self._carry

    @property
    def known_end(self) -> int:
        """Where the frame that is coming ends."""
        return (self.next_offset or 0) + self._left

    def room(self) -> memoryview:
        """Return where to receive; what `take` returned before is not valid any more."""
        kept = len(self._carry)
        self._buffer[:kept] = self._carry
        return self._buffer[kept:]

    def take(self, count: int) -> list[LogRun]:
        """Return the bytes of the log among those that were received into `room`.

        Raises
        ------
        ConnectionLostError
            They are not what a master sends.
        HAError
            The master's segments have another size.
        """
        buffer, runs = self._buffer, []
        at, stop = 0, len(self._carry) + count
        begin = end = 0  # of the run, in the buffer
        while at < stop:
            if self._left:
                size = min(self._left, stop - at)
                if begin == end:
                    begin = end = at
                elif end != at:
                    buffer[end : end + size] = buffer[at : at + size]
                end += size
                at += size
                self._left -= size
                self.next_offset = offset = (self.next_offset or 0) + size
                if not self._left and offset % self._segment_size == 0:
                    runs.append(LogRun(offset - (end - begin), buffer[begin:end]))
                    begin = end
            elif stop - at < _HEADER_BYTES:
                break
            else:
                offset, body = TRANSFER_HEADER.struct.unpack_from(buffer, at)
                self._begin_frame(offset, body)
                at += _HEADER_BYTES
                if not body:
                    at += self._skip_repeats(at, stop)
        self._carry = bytes(buffer[at:stop])
        if end > begin:
            runs.append(LogRun((self.next_offset or 0) - (end - begin), buffer[begin:end]))
        return runs

    def _begin_frame(self, offset: int, body: int) -> None:
        if not 0 <= body <= MAX_BODY_BYTES or offset < 0:
            raise ConnectionLostError(
                f"{self._peer} sends no frames of a commit log: offset {offset}, {body} bytes, "
                f"of at most {MAX_BODY_BYTES}; is that the haListenPort of a master?"
            )
        if self.next_offset is None:
            self._require_segment(offset)
            self.next_offset = offset
        elif offset != self.next_offset:
            raise ConnectionLostError(
                f"{self._peer} sends offset {offset} where {self.next_offset} comes next"
            )
        if offset % self._segment_size + body > self._segment_size:
            raise self._other_size(f"{body} bytes of offset {offset} go past the end of a segment")
        self.frames += 1
        self.heartbeats += body == 0
        self.last_body, self._left = body, body
        self.largest_body = max(self.largest_body, body)

    def _skip_repeats(self, at: int, stop: int) -> int:
        """Return the bytes of the heartbeats that are like the one before.

        Under flow control a master of RocketMQ sends them as fast as it can.
        """
        count = (stop - at) // _HEADER_BYTES
        last = bytes(self._buffer[at - _HEADER_BYTES : at])
        if count == 0 or self._buffer[at : at + _HEADER_BYTES] != last:
            return 0
        data = np.frombuffer(self._buffer, np.uint8, count * _HEADER_BYTES, at)
        same = data.reshape(count, _HEADER_BYTES) == np.frombuffer(last, np.uint8)
        count = int(np.argmin(np.append(same.all(axis=1), False)))
        self.frames += count
        self.heartbeats += count
        return count * _HEADER_BYTES

    def _require_segment(self, offset: int) -> None:
        if offset % self._segment_size:
            raise self._other_size(f"a segment that begins at {offset}")

    def _other_size(self, found: str) -> HAError:
        return HAError(
            f"{self._peer} sends {found}, and mappedFileSizeCommitLog is {self._segment_size} "
            "here: take the master's value, and an empty directory"
        )


# The pieces that come end anywhere. A record of which the last bytes are missing, its properties,
# is not told from a whole one in a file: zeros are there, and no checksum covers them. Whoever
# reads the log meanwhile, and whoever recovers it after a kill, would take it for a message without
# keys.
class ReceivedPart(NamedTuple):
    """Bytes of the log that may be appended; valid until more is received."""

    offset: int
    data: memoryview


class WholeRecords:
    """Gives what ends with a record, and keeps the rest.

    From a place on where no record lies, all is given as it comes up to the end of the segment:
    the rest of a blank record, or damage of the master's log. So is a record that claims to be
    longer than the segment, or than 64 MiB.
    """

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._kept = bytearray()
        self._passes_until = 0

    def take(self, offset: int, data: memoryview) -> Iterator[ReceivedPart]:
        """Yield what may be appended, in offset order.

        Parameters
        ----------
        offset
            Of the first byte: where what was taken before ends; at first a record's.
        """
        while data:
            if offset < self._passes_until:
                yield ReceivedPart(offset, data)
                return
            if not self._kept:
                yield from self._split(offset, data)
                return
            begin, lacking = offset - len(self._kept), self._lacking()
            self._kept += data[:lacking]
            offset, data = begin + len(self._kept), data[lacking:]
            if not self._may_become_record(begin, memoryview(self._kept)):
                kept, self._kept = self._kept, bytearray()
                yield from self._split(begin, memoryview(kept))

    def _split(self, offset: int, data: memoryview) -> Iterator[ReceivedPart]:
        """Yield what ends with a record, and keep what follows, unless no record lies there."""
        walk = walk_records(np.frombuffer(data, np.uint8), 0, len(data), len(data), len(data) + 1)
        stop = offset + walk.stop
        if walk.stop < len(data) and self._may_become_record(stop, data[walk.stop :]):
            self._kept += data[walk.stop :]
            data = data[: walk.stop]
        elif walk.stop < len(data):
            self._passes_until = stop - stop % self._segment_size + self._segment_size
        if data:
            yield ReceivedPart(offset, data)

    def _lacking(self) -> int:
        """Return how many bytes the kept record lacks, or as many as tell how long it is."""
        if len(self._kept) < BLANK_RECORD_BYTES:
            return BLANK_RECORD_BYTES - len(self._kept)
        return int(RECORD_PREFIX.struct.unpack_from(self._kept)[0]) - len(self._kept)

    def _may_become_record(self, offset: int, data: memoryview) -> bool:
        room = self._segment_size - offset % self._segment_size
        if len(data) >= room:
            return False
        if len(data) < BLANK_RECORD_BYTES:
            return True
        size, magic = RECORD_PREFIX.struct.unpack_from(data)
        return magic in _MAGIC_CODES and len(data) < size <= min(room, _MOST_BYTES)


# Byte 0 of a master's log cannot be asked for: 0 means its last segment. It is the high byte of the
# size of the first record; that record tells it.
class LogBeginning(NamedTuple):
    """The first bytes of a log, and their offset."""

    offset: int
    data: memoryview


class FirstRecord:
    """Collects what comes, until the first record is whole."""

    def __init__(self, peer: str, segment_size: int) -> None:
        self._peer, self._segment_size = peer, segment_size
        self._most = min(segment_size, _MOST_BYTES)
        self._data = bytearray()
        self._begin = 0
        self._lacks_byte_0 = False

    def take(self, offset: int, data: memoryview) -> LogBeginning | None:
        """Return all that came; None while the first record is not whole.

        Parameters
        ----------
        offset
            Of the first byte; 1 at first: byte 0 is to be made anew.

        Raises
        ------
        HAError
            There is no record.
        """
        if not self._data:
            self._lacks_byte_0 = offset == 1
            self._begin = offset - self._lacks_byte_0
            self._data = bytearray(self._lacks_byte_0)
        self._data += data
        if len(self._data) < MIN_RECORD_BYTES:
            return None
        for size in self._sizes():
            if size > len(self._data):
                return None
            self._data[0] = size >> _LOW_BITS
            if is_record(np.frombuffer(self._data, np.uint8), self._begin, 0):
                return LogBeginning(self._begin, memoryview(self._data))
        raise HAError(
            f"{self._peer} has no record at offset {self._begin}, as far as {len(self._data)} "
            "bytes tell: its log is damaged there, or it is no master; a log that begins there "
            "cannot be followed, copy the master's files"
        )

    def _sizes(self) -> range:
        """Return the sizes that the record may have."""
        high = 0 if self._lacks_byte_0 else self._data[0] << _LOW_BITS
        first = high | int.from_bytes(self._data[1:4], "big")
        stop = self._most + 1 if self._lacks_byte_0 else min(first, self._most) + 1
        return range(first, stop, 1 << _LOW_BITS)
