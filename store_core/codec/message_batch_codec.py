# SPDX-License-Identifier: Apache-2.0
"""Columns of many messages: frames of records -> Arrow columns.

Row by row they equal ``message_codec`` and ``message``, which a property test checks.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core import native
from store_core.arrow import are_among, gather_binary, pa, replace_rows
from store_core.codec.compression import MAX_DECODED_BYTES, CorruptBodyError, inflate
from store_core.codec.crc32 import BadBody
from store_core.codec.java_string import decode_utf8, string_hashes
from store_core.codec.message_codec import string_to_properties
from store_core.codec.message_id import host_column, message_id_column
from store_core.codec.property_columns import (
    PropertyColumns,
    have_value,
    named_values,
    utf8_column,
    words_column,
)
from store_core.layout import (
    COMPRESSED_FLAG,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_NUM,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)
from store_core.native.dispatch_columns import (
    DispatchColumns,
    dispatch_columns,
    known_dispatch_columns,
    topic_numbers,
)
from store_core.native.record_columns import record_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array, DataType, Schema
    from store_core.codec.record_frames import RecordFrames

_HEADER_FIELDS = {
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "commit_log_offset": "commit_log_offset",
    "store_size": "total_size",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "reconsume_times": "reconsume_times",
    "prepared_transaction_offset": "prepared_transaction_offset",
}
PROPERTY_OF_COLUMN = {"unique_key": PROPERTY_UNIQ_KEY, "tags": PROPERTY_TAGS}
_ONLY_IN_RECORDS = frozenset({PROPERTY_INNER_NUM, PROPERTY_INNER_MULTI_DISPATCH})
"""The kernel finds them in records, not in columns."""
_FEW_ROWS = 48  # up to so many rows, one by one is faster
_MIN_TIMESTAMP_MS = -62135596800000  # 0001-01-01T00:00:00Z
_MAX_TIMESTAMP_MS = 253402300799999  # 9999-12-31T23:59:59.999Z


@cache
def message_schema() -> Schema:
    """Return all columns of a record, in the order of table ``messages``.

    Column ``store`` is not part of a record.
    """
    return pa.schema(
        [
            ("topic", pa.string()),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("commit_log_offset", pa.int64()),
            ("store_size", pa.int32()),
            ("message_id", pa.string()),
            ("unique_key", pa.string()),
            ("keys", pa.list_(pa.string())),
            ("tags", pa.string()),
            ("body", pa.binary()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("flag", pa.int32()),
            ("sys_flag", pa.int32()),
            ("body_crc", pa.int32()),
            ("reconsume_times", pa.int32()),
            ("born_timestamp", timestamp_type()),
            ("store_timestamp", timestamp_type()),
            ("born_host", pa.string()),
            ("store_host", pa.string()),
            ("prepared_transaction_offset", pa.int64()),
            ("properties_raw", pa.binary()),
        ]
    )


def timestamp_type() -> DataType:
    """Return the type of times, the same as Spark's."""
    return pa.timestamp("us", "UTC")


class RecordTexts(NamedTuple):
    """Topic and properties of a record as text.

    Attributes
    ----------
    topic
        As `utf8_column` decodes it.
    """

    topic: str
    properties: dict[str, str]


class MessageColumns:
    """Columns of the records of some frames, each built on first use.

    Parameters
    ----------
    max_decoded_bytes
        Most bytes that a body may inflate to.
    known_properties, known_topics
        All properties that any row has, as `property_values` would return them, and the result of
        `topics`, if the caller has just encoded the records; read from the records if None.
    known_dispatch
        The result of `dispatched`, if the caller has it; found when it is needed if None.
    """

    def __init__(
        self,
        frames: RecordFrames,
        *,
        raw_body: bool = False,
        inflated: Mapping[int, bytes] | None = None,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
        known_properties: Mapping[str, Any] | None = None,
        known_topics: Any = None,
        known_dispatch: DispatchColumns | None = None,
    ) -> None:
        self.frames = frames
        self._known = known_properties
        self._known_inflated = inflated or {}
        self._max_decoded_bytes = max_decoded_bytes
        self._raw_body = raw_body
        self._properties: PropertyColumns | None = None
        self._properties_block: Any = None
        self._topics: Any = known_topics
        self._few_texts: list[RecordTexts] | None = None
        self._dispatched = known_dispatch
        self._columns: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._inflated: Any = None
        self._bad_bodies: dict[int, str] = {}

    @classmethod
    def shared(cls, frames: RecordFrames) -> MessageColumns:
        """Return the one object for these frames, so that properties are split only once."""
        if frames.shared is None:
            frames.shared = cls(frames)
        columns: MessageColumns = frames.shared
        return columns

    @property
    def bad_bodies(self) -> list[BadBody]:
        """Rows, ascending, whose body could not be decoded so far; each once."""
        return [BadBody(row, reason) for row, reason in sorted(self._bad_bodies.items())]

    def add_bad_body(self, row: int, reason: str) -> None:
        """Note that the body of a row cannot be decoded."""
        self._bad_bodies[row] = reason

    def of_rows(self, rows: npt.NDArray[np.int64]) -> MessageColumns:
        """Return the columns of some rows (ascending)."""
        known, properties, topics = self._known_inflated, self._known, self._topics
        if properties is not None:
            properties = {name: values.take(pa.array(rows)) for name, values in properties.items()}
        return MessageColumns(
            self.frames.take(rows),
            raw_body=self._raw_body,
            inflated={k: known[row] for k, row in enumerate(rows.tolist()) if row in known},
            max_decoded_bytes=self._max_decoded_bytes,
            known_properties=properties,
            known_topics=None if topics is None else topics.take(pa.array(rows)),
        )

    def column(self, name: str) -> Array:
        """Return a column of `message_schema` as an Arrow array of that type."""
        return self.columns([name])[name]

    def columns(self, names: Sequence[str]) -> dict[str, Array]:
        """Return some columns: together they are decoded in one pass."""
        missing = [name for name in names if name not in self._columns]
        if missing:
            self._columns.update(self._decode(missing))
        return {name: self._columns[name] for name in names}

    def _decode(self, names: Sequence[str]) -> dict[str, Any]:
        found = self._natively(names)
        if found is None:
            return {name: self._build(name) for name in names}
        if "body" in found and not self._raw_body:
            found["body"] = self._inflated = self._inflate(found["body"])
        return found

    def _natively(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return columns as stored from the kernel, the rows that it refuses from NumPy."""
        if not self.suits_kernel():
            return None
        frames = self.frames
        types = {name: message_schema().field(name).type for name in names}
        data, position = frames.data, frames.position
        found = record_columns(data, position, frames.parts, types, PROPERTY_OF_COLUMN)
        if found is None or not len(found.refused):
            return None if found is None else found.columns
        rows = found.refused.astype(np.int64)
        others = MessageColumns(frames.take(rows), raw_body=True)
        return {
            name: replace_rows(column, rows, others._build(name))
            for name, column in found.columns.items()
        }

    def _build(self, name: str) -> Array:  # noqa: PLR0911 (a table of columns)
        frames = self.frames
        if name in _HEADER_FIELDS:
            return pa.array(frames.column(_HEADER_FIELDS[name]))
        if name in {"born_timestamp", "store_timestamp"}:
            return timestamp_column(frames.column(name))
        if name == "topic":
            return utf8_column(gather_binary(frames.data, frames.topic_start, frames.topic_length))
        if name == "body":
            return self._stored_body() if self._raw_body else self.inflated_body()
        if name == "message_id":
            return self._by_host("store_host", self._message_ids)
        if name in {"born_host", "store_host"}:
            return self._by_host(name, lambda _, raw: host_column(raw))
        if name == "properties_raw":
            return self._block()
        if name == "properties":
            return self._property_columns().map_column()
        if name == "keys":
            return words_column(self._property_columns().values_of(PROPERTY_KEYS))
        return self._property_columns().values_of(PROPERTY_OF_COLUMN[name])

    def few_texts(self) -> list[RecordTexts] | None:
        """Return each record's texts; None if there are more than a few: then use the columns.

        One or two records are dispatched in a fifth of the time this way, and without Arrow.
        """
        if self._few_texts is None and self._known is None and len(self.frames) <= _FEW_ROWS:
            self._few_texts = _texts(self.frames)
        return self._few_texts

    def dispatched(self) -> DispatchColumns | None:
        """Return what queues and index need, from one pass; None without the kernel."""
        if self._dispatched is None and native.kernel is not None:
            self._dispatched = self._dispatch()
        return self._dispatched

    def _dispatch(self) -> DispatchColumns | None:
        frames, known, topics = self.frames, self._known, self._topics
        if self.suits_kernel():
            return dispatch_columns(frames.data, frames.position, frames.parts)
        if known is None or topics is None or not len(frames):
            return None
        if not _ONLY_IN_RECORDS.isdisjoint(known):
            return None
        return known_dispatch_columns(
            topics.indices.to_numpy(),
            topics.dictionary.to_pylist(),
            string_hashes(topics.dictionary).view(np.uint32),
            frames.column("sys_flag"),
            [known.get(name) for name in (PROPERTY_UNIQ_KEY, PROPERTY_KEYS, PROPERTY_TAGS)],
        )

    def topic_numbers(self) -> tuple[npt.NDArray[np.int32], list[bytes]]:
        """Return a number for each record's topic, and the topics as stored, by number."""
        frames, found = self.frames, None
        if self._dispatched is not None:
            return self._dispatched.topic_code, self._dispatched.topics
        if self.suits_kernel():
            found = topic_numbers(frames.data, frames.position, frames.parts)
        if found is not None:
            return found
        topics = self.topics()
        return topics.indices.to_numpy(), topics.dictionary.to_pylist()

    def suits_kernel(self) -> bool:
        """Return whether there is a kernel, and the records are whole and in one piece of bytes."""
        if native.kernel is None or self._known is not None or not len(self.frames):
            return False
        return self._dispatched is not None or bool(self.frames.ok.all())

    def topics(self) -> Array:
        """Return the topics as stored: a ``pa.DictionaryArray`` of bytes."""
        if self._topics is None:
            frames = self.frames
            raw = gather_binary(frames.data, frames.topic_start, frames.topic_length)
            self._topics = raw.dictionary_encode()
        return self._topics

    def has_property(self, name: str) -> bool:
        """Return whether any row has a property; cheaper than `property_values`."""
        if self.suits_kernel():
            return bool(self.property_values(name).null_count < len(self.frames))
        if self._known is None:
            return self._property_columns().holds(name)
        return name in self._known and self._known[name].null_count < len(self.frames)

    def property_values(self, name: str) -> Array:
        """Return the values of a property, null where it is absent."""
        return self.property_columns([name])[name]

    def property_columns(self, names: Iterable[str]) -> dict[str, Array]:
        """Return `property_values` of some properties: together they are found in one pass."""
        names = list(names)
        missing = [name for name in names if name not in self._values]
        if missing:
            self._values.update(self._values_of(missing))
        return {name: self._values[name] for name in names}

    def are_among(self, name: str, texts: Array) -> npt.NDArray[np.bool_]:
        """Return in which rows column ``tags`` or ``unique_key`` is one of some texts."""
        frames, found = self.frames, None
        if self.suits_kernel():
            start, length = frames.properties_start, frames.properties_length
            property_name = PROPERTY_OF_COLUMN[name]
            found = have_value(frames.data, start, length, property_name, texts.to_pylist())
        return are_among(self.column(name), texts) if found is None else found

    def _values_of(self, names: list[str]) -> dict[str, Any]:
        frames = self.frames
        if self._known is not None:
            none = pa.nulls(len(frames), pa.string())
            return {name: self._known.get(name, none) for name in names}
        if self.suits_kernel():
            start, length = frames.properties_start, frames.properties_length
            return named_values(frames.data, start, length, names)
        return {name: self._property_columns().values_of(name) for name in names}

    def _block(self) -> Array:
        if self._properties_block is None:
            frames = self.frames
            self._properties_block = gather_binary(
                frames.data, frames.properties_start, frames.properties_length
            )
        return self._properties_block

    def _property_columns(self) -> PropertyColumns:
        if self._properties is None:
            self._properties = PropertyColumns(self._block())
        return self._properties

    def _message_ids(self, rows: npt.NDArray[np.int64] | None, raw: npt.NDArray[np.uint8]) -> Array:
        offsets = self.frames.column("commit_log_offset")
        return message_id_column(raw, offsets if rows is None else offsets[rows])

    def _by_host(self, field: str, build: Any) -> Array:
        groups = self.frames.hosts(field)
        if len(groups) == 1:
            return build(*groups[0])
        parts = pa.concat_arrays([build(rows, raw) for rows, raw in groups])
        order = np.concatenate([rows for rows, _ in groups])
        return parts.take(pa.array(np.argsort(order)))

    def _stored_body(self) -> Array:
        frames = self.frames
        return gather_binary(frames.data, frames.body_start, frames.body_length)

    def inflated_body(self) -> Array:
        """Return the bodies decompressed; rows of ``bad_bodies`` are null."""
        if self._inflated is None:
            self._inflated = self._inflate(self._stored_body())
        return self._inflated

    def _inflate(self, stored: Array) -> Array:
        sys_flag = self.frames.column("sys_flag")
        rows = np.flatnonzero(sys_flag & COMPRESSED_FLAG)
        if len(rows) == 0:
            return stored
        bodies = [
            self._inflated_row(row, flag)
            for row, flag in zip(rows.tolist(), sys_flag[rows].tolist())
        ]
        return replace_rows(stored, rows, pa.array(bodies, pa.binary()))

    def _inflated_row(self, row: int, flag: int) -> bytes | None:
        body = self._known_inflated.get(row)
        if body is not None:
            return body
        at = int(self.frames.body_start[row])
        stored = self.frames.data[at : at + int(self.frames.body_length[row])].tobytes()
        try:
            return inflate(stored, flag, self._max_decoded_bytes)
        except CorruptBodyError as err:
            self.add_bad_body(row, str(err))
            return None


def _texts(frames: RecordFrames) -> list[RecordTexts]:
    places = zip(
        frames.topic_start.tolist(),
        frames.topic_length.tolist(),
        frames.properties_start.tolist(),
        frames.properties_length.tolist(),
    )
    data = frames.data
    return [
        RecordTexts(
            decode_utf8(data[topic : topic + topic_bytes].tobytes()),
            string_to_properties(data[at : at + size].tobytes()),
        )
        for topic, topic_bytes, at, size in places
    ]


def timestamp_column(milliseconds: npt.NDArray[np.int64]) -> Array:
    """Return times in ms as Spark timestamps; null outside the years 1 to 9999."""
    fits = (milliseconds >= _MIN_TIMESTAMP_MS) & (milliseconds <= _MAX_TIMESTAMP_MS)
    if fits.all():
        return pa.array(milliseconds * 1000).view(timestamp_type())
    micros = np.where(fits, milliseconds, 0) * 1000
    return pa.array(micros, mask=~fits).view(timestamp_type())
