"""Takes the frames of a master apart, as they come: the bytes of the log without the headers.

Source: RocketMQ ``DefaultHAClient.dispatchReadRequest`` (release 5.3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from store_core.errors import HAError
from store_core.ha.peer import ConnectionLostError
from store_core.layout.replication import MAX_BODY_BYTES, TRANSFER_HEADER

_HEADER_BYTES = TRANSFER_HEADER.size


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
    peer
        For error texts.
    segment_size
        Bytes of a segment of this copy's log.
    next_offset
        Where the first frame must lie; None: at the beginning of any segment.
    buffer_bytes
        What one call receives at most.

    Attributes
    ----------
    next_offset
        Offset of the next byte of the log that comes.
    frames, heartbeats
        How many came. A heartbeat is a frame without a body.
    largest_body, last_body
        Bytes of bodies.
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
