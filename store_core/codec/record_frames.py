"""Frames of many records at once: where everything in them lies, checked.

A frame is what can be known of a record without looking at its body, topic or properties. The
checks are those of RocketMQ's ``CommitLog.checkMessageAndReturnSize`` (5.3.3) and one more that
RocketMQ leaves out: a record has to lie at its own physical offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.layout.message import (
    BORNHOST_V6_FLAG,
    HEADERS,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    STOREHOST_V6_FLAG,
    SYS_FLAG_AT,
)
from store_core.layout.record_layout import native

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_ANY_V6 = BORNHOST_V6_FLAG | STOREHOST_V6_FLAG


class RecordFrames:
    """Headers and places of ``n`` records that lie in ``data``.

    Attributes
    ----------
    data
        The bytes; positions are relative to them.
    position, body_start, body_length, topic_start, topic_length, properties_start, properties_length
        ``int64`` arrays of n; bounds are proved for the rows that ``ok`` marks.
    """

    def __init__(self, data: npt.NDArray[np.uint8], base_offset: int, position: Int64s) -> None:
        self.data = data
        self.base_offset = base_offset
        self.position = position
        self._groups = _gather_headers(data, position)
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._place()

    def __len__(self) -> int:
        return len(self.position)

    def column(self, field: str) -> npt.NDArray[Any]:
        """Return a header field of all rows in native byte order; hosts are not fields here."""
        if field not in self._columns:
            self._columns[field] = self._assemble(field)
        return self._columns[field]

    def hosts(self, field: str) -> list[tuple[Int64s | None, npt.NDArray[np.uint8]]]:
        """Return ``born_host`` or ``store_host`` as (rows, bytes) groups of 8 or 20 bytes a row.

        ``rows`` is None when one group holds every row.
        """
        groups = []
        for rows, header in self._groups:
            width = header.dtype[field].itemsize
            raw = np.ascontiguousarray(header[field]).view(np.uint8).reshape(len(header), width)
            groups.append((rows, raw))
        return groups

    def take(self, rows: Int64s) -> RecordFrames:
        """Return the frames of some rows (ascending), without looking at the bytes again."""
        part = object.__new__(RecordFrames)
        part.data, part.base_offset = self.data, self.base_offset
        part._columns = {name: values[rows] for name, values in self._columns.items()}
        part._groups = _take_groups(self._groups, rows, len(self))
        for name in _PLACES:
            setattr(part, name, getattr(self, name)[rows])
        return part

    def _assemble(self, field: str) -> npt.NDArray[Any]:
        if len(self._groups) == 1:
            return native(self._groups[0][1][field])
        first = self._groups[0][1][field]
        out = np.empty(len(self), first.dtype.newbyteorder("="))
        for rows, header in self._groups:
            out[rows] = header[field]
        return out

    def _place(self) -> None:
        data, position = self.data, self.position
        end = position + self.column("total_size")
        self.body_start = position + self._header_bytes()
        self.body_length = self.column("body_length").astype(np.int64)
        ok = (self.body_length >= 0) & (end <= len(data))
        ok &= position + self.base_offset == self.column("commit_log_offset")
        v2 = self.column("magic_code") == MESSAGE_MAGIC_CODE_V2
        ok &= v2 | (self.column("magic_code") == MESSAGE_MAGIC_CODE)
        length_bytes = 1 + v2.astype(np.int64)
        body_end = self.body_start + self.body_length
        ok &= body_end + length_bytes + 2 <= end
        self.topic_length = _read_lengths(data, body_end, length_bytes, ok)
        self.topic_start = body_end + length_bytes
        topic_end = self.topic_start + self.topic_length
        ok &= (self.topic_length >= 0) & (topic_end + 2 <= end)
        two = np.full(len(position), 2, np.int64)
        self.properties_length = _read_lengths(data, topic_end, two, ok)
        self.properties_start = topic_end + 2
        ok &= self.properties_length >= 0
        self.ok = ok & (self.properties_start + self.properties_length == end)

    def _header_bytes(self) -> Int64s | int:
        if len(self._groups) == 1:
            return self._groups[0][1].dtype.itemsize
        sizes = np.empty(len(self), np.int64)
        for rows, header in self._groups:
            sizes[rows] = header.dtype.itemsize
        return sizes


_PLACES = (
    "position",
    "body_start",
    "body_length",
    "topic_start",
    "topic_length",
    "properties_start",
    "properties_length",
    "ok",
)

_Groups = list[tuple["Int64s | None", "npt.NDArray[np.void]"]]


def _gather_headers(data: npt.NDArray[np.uint8], position: Int64s) -> _Groups:
    """Gather headers by host variant; a header that runs past the data is read as zeros."""
    sys_flag_low = data[np.minimum(position + SYS_FLAG_AT + 3, len(data) - 1)] if len(data) else data
    variant = sys_flag_low & _ANY_V6
    groups: _Groups = []
    for born_v6, store_v6 in HEADERS:
        wanted = (BORNHOST_V6_FLAG if born_v6 else 0) | (STOREHOST_V6_FLAG if store_v6 else 0)
        rows = np.flatnonzero(variant == wanted)
        if len(rows) == 0 and not (wanted == 0 and len(position) == 0):
            continue
        layout = HEADERS[born_v6, store_v6]
        starts = position if len(rows) == len(position) else position[rows]
        fits = starts + layout.size <= len(data)
        if fits.all():
            header = layout.gather(data, starts)
        else:
            header = np.zeros(len(starts), layout.dtype)
            header[fits] = layout.gather(data, starts[fits])
        groups.append((None if len(rows) == len(position) else rows, header))
    return groups


def _take_groups(groups: _Groups, rows: Int64s, count: int) -> _Groups:
    if len(groups) == 1:
        return [(None, groups[0][1][rows])]
    new_row = np.full(count, -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    taken: _Groups = []
    for old_rows, header in groups:
        target = new_row[old_rows]
        keep = target >= 0
        if keep.any():
            everything = int(keep.sum()) == len(rows)
            taken.append((None if everything else target[keep], header[keep]))
    return taken or [(None, groups[0][1][:0])]


def _read_lengths(
    data: npt.NDArray[np.uint8], at: Int64s, width: Int64s, ok: Bools
) -> Int64s:
    """Read signed big-endian lengths of one or two bytes; -1 where ``ok`` is false."""
    safe = np.where(ok, at, 0)
    high = data[safe].astype(np.int64) if len(data) else np.zeros(len(at), np.int64)
    if (width == 1).all():
        value = high.astype(np.int8).astype(np.int64)
    else:
        low = data[safe + (width - 1)].astype(np.int64)
        wide = ((high << 8) | low).astype(np.int16).astype(np.int64)
        value = np.where(width == 2, wide, high.astype(np.int8).astype(np.int64))
    return np.where(ok, value, -1)
