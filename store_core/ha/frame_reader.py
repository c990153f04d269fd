# SPDX-License-Identifier: Apache-2.0
"""Extract the bytes of the log from a master's frames, as they arrive.

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
    """Bytes of the master's log, all of one segment; valid until more data is received."""

    offset: int
    data: memoryview


class FrameReader:
    """Takes bytes received from a socket, and returns those of the log, also of unfinished frames.

    Consecutive bodies are moved together, over the headers between them: so the data of one
    receive call is appended in one call per segment, whatever the master's ``haTransferBatchSize``.

    Parameters
    ----------
    next_offset
        Required offset of the first frame; if None, the start of any segment.
    buffer_bytes
        Most bytes that one call receives.

    Attributes
    ----------
    next_offset
        Offset of the next byte of the log.
    """

    def __init__(
        self, peer: str, segment_size: int, next_offset: int | None, buffer_bytes: int
    ) -> None:
        self._peer, self._segment_size = peer, segment_size
        self.next_offset = next_offset
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._carry = b""  # the beginning of a header
        self._left = 0  # bytes of the body that are still to come
        self.frames = self.heartbeats = 0
        self.largest_body = self.last_body = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether the last frame is complete, and the next one has not begun."""
        return not self._left and not self._carry

    @property
    def known_end(self) -> int:
        """End of the current frame in the log."""
        return (self.next_offset or 0) + self._left

    def room(self) -> memoryview:
        """Return the buffer to receive into; data that `take` returned before is invalid then."""
        kept = len(self._carry)
        self._buffer[:kept] = self._carry
        return self._buffer[kept:]

    def take(self, count: int) -> list[LogRun]:
        """Return the bytes of the log among ``count`` bytes received into `room`.

        Raises
        ------
        ConnectionLostError
            The bytes are not those that a master sends.
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
                f"{self._peer} does not send frames of a commit log: offset {offset}, {body} "
                f"bytes (at most {MAX_BODY_BYTES} are possible); is this a haListenPort?"
            )
        if self.next_offset is None:
            self._require_segment(offset)
            self.next_offset = offset
        elif offset != self.next_offset:
            raise ConnectionLostError(
                f"{self._peer} sent offset {offset}, but {self.next_offset} comes next"
            )
        if offset % self._segment_size + body > self._segment_size:
            raise self._other_size(
                f"{body} bytes at offset {offset}, which go past the end of a segment"
            )
        self.frames += 1
        self.heartbeats += body == 0
        self.last_body, self._left = body, body
        self.largest_body = max(self.largest_body, body)

    def _skip_repeats(self, at: int, stop: int) -> int:
        """Return the size of the following heartbeats that repeat the last one.

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
            f"{self._peer} sends {found}, but mappedFileSizeCommitLog is {self._segment_size} "
            "here: use the master's value and an empty directory"
        )


# Received pieces may end anywhere. In a file, a record that lacks its last bytes, the properties,
# looks like a whole one: zeros are there, and no checksum covers them. A reader of the log, or
# recovery after a kill, would take it for a message without keys.
class ReceivedPart(NamedTuple):
    """Bytes of the log that may be appended; valid until more data is received."""

    offset: int
    data: memoryview


class WholeRecords:
    """Passes on data up to the end of a record, and stores the rest until its record is whole.

    From a place without a record on, all data up to the end of the segment is passed on as it
    comes: the rest of a blank record, or damage in the master's log. The same applies to a record
    whose size goes past the segment or is above 64 MiB.
    """

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self._kept = bytearray()
        self._passes_until = 0

    def take(self, offset: int, data: memoryview) -> Iterator[ReceivedPart]:
        """Yield the data that may be appended, in offset order.

        Parameters
        ----------
        offset
            Offset of the first byte: the end of the last call's data; at first, a record's start.
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
        """Yield data up to the end of a record; store the rest if it may become a record."""
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
        """Return how many bytes are missing from the stored record, or from its size and magic."""
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


# Byte 0 of a master's log cannot be requested: 0 means its last segment. It is the high byte of the
# first record's size, and found by trying which size makes a valid record.
class LogBeginning(NamedTuple):
    """The first bytes of a log, and their offset."""

    offset: int
    data: memoryview


class FirstRecord:
    """Collects data until the first record is whole."""

    def __init__(self, peer: str, segment_size: int) -> None:
        self._peer, self._segment_size = peer, segment_size
        self._most = min(segment_size, _MOST_BYTES)
        self._data = bytearray()
        self._begin = 0
        self._lacks_byte_0 = False

    def take(self, offset: int, data: memoryview) -> LogBeginning | None:
        """Return all data so far; None while the first record is not whole.

        Parameters
        ----------
        offset
            Offset of the first byte; if the first call has 1, byte 0 is reconstructed.

        Raises
        ------
        HAError
            The data is not a record.
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
            f"{self._peer} has no record at offset {self._begin}, judging by {len(self._data)} "
            "bytes: its log is damaged there, or it is not a master. A log that begins there "
            "cannot be followed; copy the master's files"
        )

    def _sizes(self) -> range:
        """Return the sizes that are possible for the record."""
        high = 0 if self._lacks_byte_0 else self._data[0] << _LOW_BITS
        first = high | int.from_bytes(self._data[1:4], "big")
        stop = self._most + 1 if self._lacks_byte_0 else min(first, self._most) + 1
        return range(first, stop, 1 << _LOW_BITS)
