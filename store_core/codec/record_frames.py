# SPDX-License-Identifier: Apache-2.0
"""Frames of many records: the checked positions of all their parts.

A frame is everything known of a record without reading its body, topic or properties. The checks
are those of RocketMQ's ``CommitLog.checkMessageAndReturnSize`` (5.3.3) and one that RocketMQ
leaves out: a record has to be at its own physical offset.
"""

from __future__ import annotations

import os
import struct
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core import native as native_path
from store_core.arrow import are_among, gather_binary, pa
from store_core.codec.java_string import is_name
from store_core.layout import (
    BLANK_MAGIC_CODE,
    BLANK_RECORD_BYTES,
    BORNHOST_V6_FLAG,
    DLEDGER_BLANK,
    DLEDGER_BLANK_MAGIC,
    DLEDGER_ENTRY,
    HEADER_IPV4,
    HEADERS,
    INNER_BATCH_FLAG,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    NEED_UNWRAP_FLAG,
    PROPERTIES_LENGTH,
    RECORD_PREFIX,
    STOREHOST_V6_FLAG,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    RecordLayout,
    native,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_UNWRAP = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
_ANY_V6 = BORNHOST_V6_FLAG | STOREHOST_V6_FLAG
_REPLACEMENT = "\ufffd"
_MAGIC_PREFIX = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)[:3]
_SIZE = struct.Struct(">I")  # unsigned: a damaged size never steps back
_SHORT_STRETCH = 256
_LONG_STRETCH = 16384
ENTRY_BYTES = DLEDGER_ENTRY.size
"""Length of the header before each record of a DLedger log."""
_MAGIC_AT = RECORD_PREFIX.at("magic_code")


class RecordFrames:
    """Headers and positions of ``n`` records in ``data``.

    Parameters
    ----------
    base_offset
        Physical offset of ``data[0]``; one number per row if ``data`` consists of pieces.
    position
        Where the records start in ``data``; not negative.

    Attributes
    ----------
    data
        The bytes; positions are relative to its start.
    body_start, body_length, topic_start, topic_length, properties_start, properties_length
        ``int64`` arrays of length n; within bounds in the rows that ``ok`` marks.
    parts
        These six as the rows of one array.
    """

    body_start: Int64s
    body_length: Int64s
    topic_start: Int64s
    topic_length: Int64s
    properties_start: Int64s
    properties_length: Int64s

    def __init__(
        self, data: npt.NDArray[np.uint8], base_offset: int | Int64s, position: Int64s
    ) -> None:
        self.data = data
        self.base_offset = base_offset
        self.position = position
        self._header_groups: _Groups | None = None
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self.shared: Any = None
        self.parts: Int64s = np.empty((len(_PARTS), len(position)), np.int64)
        self.ok: Bools = np.empty(len(position), np.bool_)
        if native_path.kernel is None:
            self._place()
        else:
            self._place_natively()
        self._name_parts()

    def __len__(self) -> int:
        return len(self.position)

    def column(self, field: str) -> npt.NDArray[Any]:
        """Return a header field of all rows in native byte order; for hosts use `hosts`."""
        if field not in self._columns:
            self._columns[field] = self._read(field)
        return self._columns[field]

    def hosts(self, field: str) -> list[tuple[Int64s | None, npt.NDArray[np.uint8]]]:
        """Return ``born_host`` or ``store_host`` as (rows, bytes) groups of 8 or 20 bytes a row.

        ``rows`` is None when one group holds every row.
        """
        groups = []
        for rows, header in self._groups():
            width = header.dtype[field].itemsize
            raw = np.ascontiguousarray(header[field]).view(np.uint8).reshape(len(header), width)
            groups.append((rows, raw))
        return groups

    def take(self, rows: Int64s) -> RecordFrames:
        """Return the frames of some rows (ascending), without reading the bytes again."""
        part = object.__new__(RecordFrames)
        part.data, base, part.shared = self.data, self.base_offset, None
        part.base_offset = base if isinstance(base, int) else base[rows]
        part._columns = {name: values[rows] for name, values in self._columns.items()}
        groups = self._header_groups
        part._header_groups = None if groups is None else _take_groups(groups, rows, len(self))
        part.position, part.ok = self.position[rows], self.ok[rows]
        part.parts = self.parts.take(rows, axis=1)
        part._name_parts()
        return part

    def _name_parts(self) -> None:
        for name, values in zip(_PARTS, self.parts):
            setattr(self, name, values)

    def _groups(self) -> _Groups:
        if self._header_groups is None:
            self._header_groups = _gather_headers(self.data, self.position)
        return self._header_groups

    def _read(self, field: str) -> npt.NDArray[Any]:
        if native_path.kernel is not None:
            found = np.empty(len(self), HEADER_IPV4.dtype[field].newbyteorder("="))
            number = native_path.kernel.HEADER_FIELDS.index(field)
            native_path.kernel.header_field(self.data, self.position, number, found)
            return found
        groups = self._groups()
        if len(groups) == 1:
            return native(groups[0][1][field])
        first = groups[0][1][field]
        out = np.empty(len(self), first.dtype.newbyteorder("="))
        for rows, header in groups:
            out[rows] = header[field]
        return out

    def _place(self) -> None:
        data, position = self.data, self.position
        end = position + self.column("total_size")
        body_start = position + self._header_bytes()
        body_length = self.column("body_length").astype(np.int64)
        ok = (body_length >= 0) & (end <= len(data))
        ok &= position + self.base_offset == self.column("commit_log_offset")
        magic_code = self.column("magic_code")
        v2 = magic_code == MESSAGE_MAGIC_CODE_V2
        ok &= v2 | (magic_code == MESSAGE_MAGIC_CODE)
        length_bytes: Int64s | int = TOPIC_LENGTH_V1.size
        if v2.any():
            length_bytes = np.where(v2, TOPIC_LENGTH_V2.size, TOPIC_LENGTH_V1.size)
        body_end = body_start + body_length
        ok &= body_end + length_bytes + PROPERTIES_LENGTH.size <= end
        topic_length = _read_lengths(TOPIC_LENGTH_V1, data, body_end, ok)
        if v2.any():
            wide = _read_lengths(TOPIC_LENGTH_V2, data, body_end, ok & v2)
            topic_length = np.where(v2, wide, topic_length)
        topic_start = body_end + length_bytes
        topic_end = topic_start + topic_length
        properties_start = topic_end + PROPERTIES_LENGTH.size
        ok &= (topic_length >= 0) & (properties_start <= end)
        properties_length = _read_lengths(PROPERTIES_LENGTH, data, topic_end, ok)
        ok &= properties_length >= 0
        self.ok = ok & (properties_start + properties_length == end)
        found = (body_start, body_length, topic_start, topic_length)
        self.parts[:] = (*found, properties_start, properties_length)

    def _place_natively(self) -> None:
        """Do as `_place`; the fields that it checks are retained, as others may write the data."""
        base, position = self.base_offset, np.ascontiguousarray(self.position, np.int64)
        if not isinstance(base, int):
            base = np.ascontiguousarray(np.broadcast_to(base, position.shape), np.int64)
        total_size, sys_flag = np.empty((2, len(position)), np.int32)
        native_path.kernel.place_records(
            self.data, base, position, self.parts, self.ok, total_size, sys_flag
        )
        self.position = position
        self._columns = {"total_size": total_size, "sys_flag": sys_flag}
        if self.ok.all():
            self._columns["commit_log_offset"] = position + base

    def _header_bytes(self) -> Int64s | int:
        groups = self._groups()
        if len(groups) == 1:
            return groups[0][1].dtype.itemsize
        sizes = np.empty(len(self), np.int64)
        for rows, header in groups:
            sizes[rows] = header.dtype.itemsize
        return sizes


class KnownFrames(RecordFrames):
    """Header fields of records that the caller has just encoded; their bytes are not read.

    Parameters
    ----------
    fields
        Header field -> its value in each record, in native byte order.
    """

    def __init__(self, fields: Mapping[str, npt.NDArray[Any]]) -> None:
        self._columns = dict(fields)
        self.shared = None

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def take(self, rows: Int64s) -> KnownFrames:
        """Return the frames of some rows (ascending)."""
        return KnownFrames({name: values[rows] for name, values in self._columns.items()})


class UnreadFrames(RecordFrames):
    """Frames of whole records of which header fields are known; only the rest is read, on use.

    Parameters
    ----------
    fields
        As of `KnownFrames`.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        base_offset: int,
        position: Int64s,
        fields: Mapping[str, npt.NDArray[Any]],
    ) -> None:
        self.data, self.base_offset, self.position = data, base_offset, position
        self._columns, self._header_groups, self.shared = dict(fields), None, None

    def __getattr__(self, name: str) -> Any:
        if name not in ("ok", "parts", *_PARTS):
            raise AttributeError(name)
        read = RecordFrames(self.data, self.base_offset, self.position)
        self.parts, self.ok = read.parts, read.ok
        self._name_parts()
        return self.__dict__[name]


_PARTS = (
    "body_start",
    "body_length",
    "topic_start",
    "topic_length",
    "properties_start",
    "properties_length",
)


_Groups = list[tuple["Int64s | None", "npt.NDArray[np.void]"]]


def _gather_headers(data: npt.NDArray[np.uint8], position: Int64s) -> _Groups:
    """Gather headers by host variant; a header that runs past the data is read as zeros."""
    header = _gather_padded(HEADER_IPV4, data, position)
    variant = header["sys_flag"] & _ANY_V6  # the flag comes before the hosts
    if not variant.any():
        return [(None, header)]
    groups: _Groups = []
    for (born_v6, store_v6), layout in HEADERS.items():
        wanted = (BORNHOST_V6_FLAG if born_v6 else 0) | (STOREHOST_V6_FLAG if store_v6 else 0)
        rows = np.flatnonzero(variant == wanted)
        if len(rows):
            everything = len(rows) == len(position)
            part = _gather_padded(layout, data, position[rows])
            groups.append((None if everything else rows, part))
    return groups


def _gather_padded(
    layout: RecordLayout, data: npt.NDArray[np.uint8], starts: Int64s
) -> npt.NDArray[np.void]:
    last = len(data) - layout.size
    if len(starts) == 0 or int(starts.max()) <= last:
        return layout.gather(data, starts)
    header = np.zeros(len(starts), layout.dtype)
    fits = starts <= last
    header[fits] = layout.gather(data, starts[fits])
    return header


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
    layout: RecordLayout, data: npt.NDArray[np.uint8], at: Int64s, ok: Bools
) -> Int64s:
    """Read lengths; -1 where ``ok`` is false."""
    if ok.all():
        return layout.gather(data, at)["value"].astype(np.int64)
    lengths = np.full(len(at), -1, np.int64)
    lengths[ok] = layout.gather(data, at[ok])["value"]
    return lengths


def are_of_topic(
    frames: RecordFrames, rows: npt.NDArray[np.int64], topic: str
) -> npt.NDArray[np.bool_]:
    """Return for each given row whether its record has the topic (`is_name`)."""
    found = np.zeros(len(rows), bool)
    length = frames.topic_length[rows]
    # Bytes that Java decodes to a replacement character may have another length.
    at = np.flatnonzero((length == len(os.fsencode(topic))) | (_REPLACEMENT in topic))
    names = gather_binary(frames.data, frames.topic_start[rows[at]], length[at])
    encoded = names.dictionary_encode()
    same = np.array([is_name(name, topic) for name in encoded.dictionary.to_pylist()], bool)
    found[at] = same[encoded.indices.to_numpy()] if len(at) else False
    return found


class FrameConditions(NamedTuple):
    """What records have to be, all of it.

    Attributes
    ----------
    without_flags
        Bits of the sys flag; a record has none of them.
    ranges
        Field of the header -> its least and its greatest value.
    topics
        Names as stored, one of which a record has; any if None.
    """

    without_flags: int
    ranges: Mapping[str, tuple[int, int]]
    topics: frozenset[bytes] | None


def matching(frames: RecordFrames, wanted: FrameConditions) -> Bools:
    """Return which records meet the conditions."""
    kernel, topics = native_path.kernel, wanted.topics
    is_all = not wanted.ranges and topics is None  # but for the flags, which frames have at hand
    if kernel is None or is_all or not _suits_kernel(frames, topics):
        return _matching(frames, wanted)
    ranges = [
        (kernel.HEADER_FIELDS.index(field), *bounds) for field, bounds in wanted.ranges.items()
    ]
    keep = np.empty(len(frames), np.bool_)
    kernel.select(
        *(frames.data, frames.position, frames.parts, wanted.without_flags),
        *(np.array(ranges, np.int64), tuple(topics or ()), keep),
    )
    return keep


def _suits_kernel(frames: RecordFrames, topics: frozenset[bytes] | None) -> bool:
    """Return whether all records are whole and the topics are few; for the kernel none is any."""
    few = topics is None or 0 < len(topics) <= native_path.kernel.MOST_NAMES
    return few and bool(frames.ok.all())


def _matching(frames: RecordFrames, wanted: FrameConditions) -> Bools:
    keep: Bools = frames.column("sys_flag") & wanted.without_flags == 0
    for field, (least, most) in wanted.ranges.items():
        values = frames.column(field)
        keep &= (values >= least) & (values <= most)
    if wanted.topics is not None:
        topics = gather_binary(frames.data, frames.topic_start, frames.topic_length)
        among = pa.array(sorted(wanted.topics), pa.binary())
        keep &= are_among(topics, among)
    return keep


class Walk(NamedTuple):
    """Where records start, and where and why the walk stopped.

    ``stop`` is the position after the last record. ``blank``: a blank record is there; ``failed``:
    there is neither a record nor a blank record.
    """

    starts: npt.NDArray[np.int64]
    stop: int
    failed: bool
    blank: bool


def walk_records(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    """Walk from record to record by their total sizes.

    About seven million records a second, more where sizes repeat. Only size and magic code are
    checked; ``RecordFrames`` makes the other checks for all rows together.

    Parameters
    ----------
    start
        A record's first byte.
    max_rows, max_bytes
        The walk ends after this many records, or with the record that reaches this many bytes.
    """
    if native_path.kernel is not None:
        return _walk_natively(data, start, stop, max_rows, max_bytes)
    end = len(data)
    bytes_stop = min(stop, end - BLANK_RECORD_BYTES + 1, start + max_bytes)
    most = max(bytes_stop - start, 0) // MIN_RECORD_BYTES + 1  # bounds the steps of small sizes
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
    # Fewer than eight bytes are too few for a record.
    failed = at < min(stop, end) and at > end - BLANK_RECORD_BYTES
    return Walk(starts, at, failed, blank=False)


def _walk_natively(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    room = max(min(stop, len(data), start + max_bytes) - start, 0) // MIN_RECORD_BYTES + 1
    starts = np.empty(min(max_rows, room), np.int64)
    count, at, failed, blank = native_path.kernel.walk_records(
        data, start, stop, max_rows, max_bytes, starts
    )
    return Walk(starts[:count].copy(), at, bool(failed), bool(blank))


def walk_entries(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    """Walk a DLedger log, which has a header before each record; see `walk_records`.

    Only the records are checked, not the headers. ``start``, ``stop`` and ``Walk.stop`` are
    positions of headers, ``Walk.starts`` of records.
    """
    records = data[ENTRY_BYTES:]  # a record's position here is its header's in ``data``
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

    There are ``between`` bytes between a record and the next.

    Producers of one kind often send messages of one size: while they do, all positions of a run
    are guessed and checked together. Otherwise each record takes a step; a run is tried again
    after ever longer stretches, so that trying costs little where sizes vary. A size of zero, as
    after the end of a log, ends the walk.
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
    """Return the leading positions, one record apart, whose records have the first one's size."""
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
    """Yield what `_steps` does, with ``between`` bytes between the records."""
    unpack = _SIZE.unpack_from
    while at < stop:
        yield at
        at += (unpack(view, at)[0] or stop) + between


def magic_code_hits(data: npt.NDArray[np.uint8]) -> Iterator[int]:
    """Yield, ascending, where a record may start: three bytes of its magic code are in place."""
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


def holds_inner_batch(sys_flag: Any) -> Any:
    """Return for sys flags (a number or an array) whether the body is a batch to unpack."""
    return (sys_flag & _UNWRAP) == _UNWRAP
