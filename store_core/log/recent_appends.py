# SPDX-License-Identifier: Apache-2.0
"""What the dispatcher needs of records that were just encoded, so that it does not read them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_frames import RecordFrames, UnreadFrames
from store_core.native.dispatch_columns import joined_dispatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.native.dispatch_columns import DispatchColumns

_MOST_VALUES = 1 << 21  # rows, topics and entries, of 50 bytes; the rest is read from the log
_PART_VALUES = 64  # as many take the bytes of an append's arrays without their values


@dataclass(frozen=True)
class AppendedColumns:
    """Columns of records that follow each other in one segment.

    Attributes
    ----------
    fields
        Header fields as stored, ``commit_log_offset`` and ``total_size`` among them.
    """

    fields: Mapping[str, npt.NDArray[Any]]
    dispatched: DispatchColumns

    def __len__(self) -> int:
        return len(self.fields["commit_log_offset"])

    @property
    def values(self) -> int:
        """Number of values that take the memory of this."""
        found = self.dispatched
        return _PART_VALUES + len(self) + len(found.topics) + len(found.entry_row)

    @property
    def start(self) -> int:
        """Offset of the first record."""
        return int(self.fields["commit_log_offset"][0])

    @property
    def end(self) -> int:
        """Offset after the last record."""
        return int(self.fields["commit_log_offset"][-1]) + int(self.fields["total_size"][-1])

    def frames(self, data: npt.NDArray[np.uint8]) -> RecordFrames:
        """Return the records' frames; ``data`` begins with the first record."""
        start = self.start
        frames = UnreadFrames(data, start, self.fields["commit_log_offset"] - start, self.fields)
        frames.shared = MessageColumns(frames, known_dispatch=self.dispatched)
        return frames


class RecentAppends:
    """Columns of appends that are not dispatched yet; for any thread.

    Only a shortcut: the dispatcher reads the records of which nothing is here from the log.
    """

    def __init__(self) -> None:
        self._parts: dict[int, AppendedColumns] = {}
        self._values = 0  # of all parts; summed up for each append, thousands would take long
        self._lock = threading.Lock()

    def add(self, part: AppendedColumns) -> None:
        """Keep the columns of an append, unless there are too many."""
        with self._lock:
            if self._values + part.values <= _MOST_VALUES:
                self._parts[part.start] = part
                self._values += part.values

    def take(self, start: int, stop: int, most_rows: int) -> AppendedColumns | None:
        """Return the appends that follow each other from an offset on, and forget those before.

        None if the first one is not known, reaches past ``stop``, or has too many rows.
        """
        if not self._parts:
            return None
        found: list[AppendedColumns] = []
        with self._lock:
            while start in self._parts and self._parts[start].end <= stop:
                most_rows -= len(self._parts[start])
                if most_rows < 0:
                    break
                found.append(self._parts.pop(start))
                start = found[-1].end
            self._parts = {at: part for at, part in self._parts.items() if at >= start}
            self._values = sum(part.values for part in self._parts.values())
        return joined_appends(found) if found else None

    def next_start(self, start: int, stop: int) -> int:
        """Return where the first known append after ``start`` begins; ``stop`` if none does."""
        if not self._parts:
            return stop
        with self._lock:
            return min((at for at in self._parts if start < at), default=stop)


def joined_appends(parts: Sequence[AppendedColumns]) -> AppendedColumns:
    """Return appends that follow each other (at least one) as one."""
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields
    }
    return AppendedColumns(fields, joined_dispatch([part.dispatched for part in parts]))
