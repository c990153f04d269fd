# SPDX-License-Identifier: Apache-2.0
"""Combine options and Spark's filters into one conjunction for the planner and the readers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_values import INT32_MAX, INT64_MAX, is_message_id
from rmqsource.options.source_options import sql_option
from rmqsource.options.where import IN, TIME_COLUMN, Comparison
from rmqsource.tables import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS
from store_core.arrow import pa, pc
from store_core.errors import StoreError
from store_core.files.store_directory import StoreDirectory
from store_core.read.key_match import KeySet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqsource.options.offsets import OffsetBound
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array
    from store_core.files.file_entry import FileEntry
    from store_core.filter.sql_filter import SqlFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_NS_PER_MICROSECOND = 1000
_NS_PER_MS = 1_000_000
_FILTERED_TABLES = frozenset({"messages", "keys"})
_OPTION = "keysFrom"
_KEY = "key"
_PARQUET_MAGIC = b"PAR1"
_NO_DATA = ("_", ".")  # skipped by Spark's file sources as well: _SUCCESS, .part-0.crc
_NO_DELIMITER = "\x01"  # no key can contain it: it separates properties


class IntRange(NamedTuple):
    """A half-open range of integers; an end is open if None. The empty range is ``(0, 0)``."""

    start: int | None = None
    stop: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no integer is inside."""
        return self.start is not None and self.stop is not None and self.start >= self.stop

    def contains(self, value: int) -> bool:
        """Return whether the value is inside."""
        return (self.start is None or value >= self.start) and (
            self.stop is None or value < self.stop
        )


ANY = IntRange()


_EMPTY = IntRange(0, 0)


_NOT_NULL = "is not null"


# Comparisons that become sets of strings: column -> field of ScanPredicate.
_STRING_FIELDS = {
    "topic": "topics",
    "unique_key": "unique_keys",
    "message_id": "message_ids",
    "tags": "tags",
    "key": "key_equals",
}


# Comparisons that become ranges: column -> field, least and greatest value of the column.
_RANGE_FIELDS = {
    "queue_id": ("queue_id_range", -INT32_MAX - 1, INT32_MAX),
    "queue_offset": ("queue_offset_range", -INT64_MAX - 1, INT64_MAX),
    "commit_log_offset": ("commit_log_offset_range", -INT64_MAX - 1, INT64_MAX),
    TIME_COLUMN: ("store_time_ms", TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS),
}


# Fields of the same columns for IN with values that are not one run.
_SET_FIELDS = {
    "queue_offset": "queue_offsets",
    "commit_log_offset": "commit_log_offsets",
    TIME_COLUMN: "store_times_ms",
}


@dataclass(frozen=True)
class ScanPredicate:
    """The conditions of a read: a row must satisfy every field that is not None or open.

    A set replaces the condition that it implies: ``topic_pattern`` is None when ``topics`` is
    given, and ``queue_id_range`` is open when ``queue_ids`` is given. Bounds fit the columns'
    types.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    """Python regular expression that must match the whole name."""
    queue_ids: frozenset[int] | None = None
    queue_id_range: IntRange = ANY
    queue_offset_range: IntRange = ANY
    commit_log_offset_range: IntRange = ANY
    store_time_ms: IntRange = ANY
    """Both ends are set unless ``ANY``: times that Spark cannot hold are null, so outside."""
    queue_offsets: frozenset[int] | None = None
    """Scattered values of IN; for planning, the range spans them. Likewise the next two fields."""
    commit_log_offsets: frozenset[int] | None = None
    store_times_ms: frozenset[int] | None = None
    starting_offsets: OffsetBound | None = None
    ending_offsets: OffsetBound | None = None
    keys: frozenset[str] | None = None
    """Words of KEYS; the message must have one of them."""
    unique_keys: frozenset[str] | None = None
    message_ids: frozenset[str] | None = None
    """Well-formed upper-case ids only."""
    tags: frozenset[str] | None = None
    """Compared with the whole of TAGS; messages without a tag never match."""
    sql_filter: SqlFilter | None = None
    """Must be true for the properties of the message."""
    key_equals: frozenset[str] | None = None
    """Values of column ``key`` of table ``keys``."""
    key_files: KeyFiles | None = None
    """The message must have one of these keys; in table ``keys``, the row."""
    drops_gaps: bool = False
    """Whether a filter of Spark's applies; rows of damage fail it, as their columns are null."""

    @property
    def is_empty(self) -> bool:
        """Whether no message can match."""
        sets = (
            *(self.topics, self.queue_ids, self.keys, self.unique_keys),
            *(self.message_ids, self.tags, self.key_equals),
            *(self.queue_offsets, self.commit_log_offsets, self.store_times_ms),
        )
        ranges = (
            *(self.queue_id_range, self.queue_offset_range),
            *(self.commit_log_offset_range, self.store_time_ms),
        )
        return any(s is not None and not s for s in sets) or any(r.is_empty for r in ranges)


def from_options(options: SourceOptions) -> ScanPredicate:
    """Return the predicate of the options alone."""
    sql = sql_option(options)
    predicate = ScanPredicate(
        sql_filter=None if sql is None else sql.sql_filter,
        topics=_optional_set(options.topics),
        topic_pattern=options.topic_pattern,
        queue_ids=_optional_set(options.queue_ids),
        starting_offsets=options.starting_offsets,
        ending_offsets=options.ending_offsets,
        key_files=find_key_files(options.keys_from, options.working_directory),
        keys=_optional_set(options.keys),
        unique_keys=_optional_set(options.unique_keys),
        message_ids=_optional_set(options.message_ids),
        tags=_optional_set(options.tags),
    )
    start, end = options.starting_timestamp_ms, options.ending_timestamp_ms
    if start is not None or end is not None:
        predicate = _narrow(predicate, TIME_COLUMN, IntRange(start, end))
    for comparison in options.where:
        predicate = _narrowed(predicate, comparison)
    return predicate


def with_filters(
    predicate: ScanPredicate, filters: Sequence[Any], table: str
) -> tuple[ScanPredicate, list[Any]]:
    """Return the predicate with Spark's filters, and the filters that Spark has to apply itself.

    Filters that can be applied exactly, nulls included: ``= IN`` on topic, unique_key, message_id,
    tags and key; ``= IN < <= > >=`` on queue_id, queue_offset, commit_log_offset and
    store_timestamp; IS NOT NULL beside such a comparison of the same column.
    """
    if table not in _FILTERED_TABLES:
        return predicate, list(filters)
    comparisons = [_comparison(spark_filter) for spark_filter in filters]
    for comparison in comparisons:
        if comparison is not None:
            predicate = replace(_narrowed(predicate, comparison), drops_gaps=True)
    compared = {comparison.column for comparison in comparisons if comparison is not None}
    return predicate, [
        spark_filter
        for spark_filter, comparison in zip(filters, comparisons)
        if comparison is None and _not_null_column(spark_filter) not in compared
    ]


def _comparison(spark_filter: Any) -> Comparison | None:
    """Return a filter as a comparison; None if it cannot be applied exactly."""
    from rmqsource.spark_compat import filter_operator  # noqa: PLC0415 (the rest needs no Spark)

    operator = filter_operator(spark_filter)
    if operator in {None, _NOT_NULL} or len(spark_filter.attribute) != 1:
        return None
    column = spark_filter.attribute[0].lower()
    values = tuple(spark_filter.value) if operator == IN else (spark_filter.value,)
    present = [value for value in values if value is not None]
    if column in _STRING_FIELDS:
        fits = operator in {"=", IN} and all(type(v) is str for v in present)
    elif column == TIME_COLUMN:
        fits = all(isinstance(v, datetime) and v.utcoffset() is not None for v in present)
        if fits:
            present = [(v - _EPOCH) // _MICROSECOND * _NS_PER_MICROSECOND for v in present]
    else:
        fits = column in _RANGE_FIELDS and all(type(v) is int for v in present)
    return Comparison(column, str(operator), tuple(present)) if fits else None


def _not_null_column(spark_filter: Any) -> str | None:
    """Return the column of an IS NOT NULL filter; None for other filters."""
    from rmqsource.spark_compat import filter_operator  # noqa: PLC0415 (see above)

    if filter_operator(spark_filter) != _NOT_NULL or len(spark_filter.attribute) != 1:
        return None
    return str(spark_filter.attribute[0].lower())


def _narrowed(predicate: ScanPredicate, comparison: Comparison) -> ScanPredicate:
    """Return the predicate with a comparison added; one without values matches nothing."""
    column, operator, values, _ = comparison
    if column in _STRING_FIELDS:
        return _intersect(predicate, column, values)
    if column == "queue_id" and operator in {"=", IN}:
        return _with_queue_ids(predicate, frozenset(values))
    of_value = _ms_range if column == TIME_COLUMN else _int_range
    ranges = [r for r in (of_value(operator, value) for value in values) if not r.is_empty]
    if operator == IN:
        return _among(predicate, column, [r.start for r in ranges if r.start is not None])
    return _narrow(predicate, column, ranges[0] if ranges else _EMPTY)


def _among(predicate: ScanPredicate, column: str, values: list[int]) -> ScanPredicate:
    """Intersect with single values; if they are one run, their range is enough."""
    _, low, high = _RANGE_FIELDS[column]
    wanted = frozenset(value for value in values if low <= value <= high)
    if not wanted:
        return _narrow(predicate, column, _EMPTY)
    first, last = min(wanted), max(wanted)
    narrowed = _narrow(predicate, column, IntRange(first, last + 1))
    if last - first + 1 == len(wanted):
        return narrowed
    field = _SET_FIELDS[column]
    current: frozenset[int] | None = getattr(predicate, field)
    return _replaced(narrowed, field, wanted if current is None else wanted & current)


def _int_range(operator: str, value: int) -> IntRange:
    if operator in {"=", IN}:
        return IntRange(value, value + 1)
    if operator in {"<", "<="}:
        return IntRange(None, value + (operator == "<="))
    return IntRange(value + (operator == ">"), None)


def _ms_range(operator: str, nanoseconds: int) -> IntRange:
    """Return the whole ms that satisfy the comparison with an instant on or between them."""
    floor, rest = divmod(nanoseconds, _NS_PER_MS)
    if not rest:
        return _int_range(operator, floor)
    if operator in {"=", IN}:
        return _EMPTY  # store times are whole ms
    return IntRange(None, floor + 1) if operator in {"<", "<="} else IntRange(floor + 1, None)


def _narrow(predicate: ScanPredicate, column: str, other: IntRange) -> ScanPredicate:
    """Intersect the range of a column; bounds outside the column's type become open."""
    field, low, high = _RANGE_FIELDS[column]
    current: IntRange = getattr(predicate, field)
    start = max((s for s in (current.start, other.start) if s is not None), default=low)
    stop = min((s for s in (current.stop, other.stop) if s is not None), default=high + 1)
    start, stop = max(start, low), min(stop, high + 1)
    if start >= stop:
        narrowed = _EMPTY
    elif column == TIME_COLUMN:
        narrowed = IntRange(start, stop)
    else:
        narrowed = IntRange(start if start > low else None, stop if stop <= high else None)
    changed = _replaced(predicate, field, narrowed)
    if column == "queue_id" and predicate.queue_ids is not None:
        return _with_queue_ids(changed, predicate.queue_ids)
    return changed


def _with_queue_ids(predicate: ScanPredicate, wanted: frozenset[int]) -> ScanPredicate:
    """Intersect queue ids with a set, which then replaces the range as well."""
    inside = {i for i in wanted if predicate.queue_id_range.contains(i)}
    in_type = frozenset(i for i in inside if -INT32_MAX - 1 <= i <= INT32_MAX)
    ids = in_type if predicate.queue_ids is None else in_type & predicate.queue_ids
    return replace(predicate, queue_ids=ids, queue_id_range=ANY)


def _intersect(predicate: ScanPredicate, column: str, values: Iterable[str]) -> ScanPredicate:
    field = _STRING_FIELDS[column]
    wanted = frozenset(values)
    if column == "message_id":  # other text equals no id and need not be decoded
        wanted = frozenset(v for v in wanted if is_message_id(v))
    current: frozenset[str] | None = getattr(predicate, field)
    if current is not None:
        wanted &= current
    if column == "topic" and predicate.topic_pattern is not None:
        pattern = re.compile(predicate.topic_pattern)
        wanted = frozenset(v for v in wanted if pattern.fullmatch(v))
        predicate = replace(predicate, topic_pattern=None)
    return _replaced(predicate, field, wanted)


def _replaced(predicate: ScanPredicate, field: str, value: Any) -> ScanPredicate:
    changes: dict[str, Any] = {field: value}
    return replace(predicate, **changes)


def _optional_set(values: Iterable[Any] | None) -> frozenset[Any] | None:
    return None if values is None else frozenset(values)


class KeyFiles(NamedTuple):
    """Files of keys as they were when a read was planned.

    Attributes
    ----------
    base
        The directory that a relative ``place`` starts at.
    files
        (path, bytes, modification time in ms) of each file.
    """

    place: str
    base: str
    files: tuple[tuple[str, int, int], ...]


def find_key_files(place: str | None, base: str) -> KeyFiles | None:
    """List the files of keys at a place; None if ``place`` is None.

    Raises
    ------
    SourceOptionError
        There are none, or one of them is not a file.
    """
    if place is None:
        return None
    directory = StoreDirectory(place, base)
    try:
        root = directory.stat(directory.resolve())
        is_dir = root is not None and root.is_dir
        found = directory.list(directory.resolve()) if is_dir else [root] if root else []
    except StoreError as err:
        raise SourceOptionError(_OPTION, str(err)) from err
    files = [entry for entry in found if not (is_dir and entry.name.startswith(_NO_DATA))]
    for entry in files:
        if entry.is_dir or entry.not_a_file:
            kind = entry.not_a_file or "a directory; give a directory with files only"
            raise SourceOptionError(_OPTION, f"{entry.path} is {kind}")
    if not files:
        what = "has no file" if is_dir else "does not exist"
        raise SourceOptionError(_OPTION, f"{place} {what}; give a file of keys, or a directory")
    return KeyFiles(place, base, tuple(_as_it_is(entry) for entry in files))


@lru_cache(maxsize=1)
def load_keys(key_files: KeyFiles) -> KeySet:
    """Read the keys; the last set is cached for the next task of this process.

    Raises
    ------
    SourceOptionError
        A file is gone, has changed since planning, or does not have keys in a known format.
    """
    directory = StoreDirectory(key_files.place, key_files.base)
    parts = []
    for path, size, modified_ms in key_files.files:
        entry = directory.stat(path)
        if entry is None or _as_it_is(entry) != (path, size, modified_ms):
            what = "is not there" if entry is None else "was changed since the read was planned"
            raise SourceOptionError(_OPTION, f"{path} {what}; load again")
        with directory.open(path) as source:
            parts.append(_keys_in(path, source.read_at(0, source.size)))
    return KeySet(pa.concat_arrays(parts))


def _as_it_is(entry: FileEntry) -> tuple[str, int, int]:
    return entry.path, entry.size, entry.modified_ms


def _keys_in(path: str, data: bytes) -> Array:
    """Return the keys of one file as an array of large strings."""
    try:
        column = _parquet_keys(data) if data.startswith(_PARQUET_MAGIC) else _text_keys(data)
    except (pa.ArrowException, OSError, ValueError) as err:
        raise SourceOptionError(
            _OPTION,
            f"{path}: expected Parquet with column {_KEY!r} or one column, of strings, or "
            f"UTF-8 text with one key per line; {err}",
        ) from err
    keys = column.cast(pa.string()).cast(pa.large_string()).combine_chunks()
    return keys.filter(pc.not_equal(keys, ""))


def _parquet_keys(data: bytes) -> pa.ChunkedArray:
    from pyarrow import parquet  # noqa: PLC0415 (needed for this option only)

    file = parquet.ParquetFile(pa.BufferReader(data))
    names = file.schema_arrow.names
    name = _KEY if _KEY in names else names[0]
    if len(names) > 1 and name != _KEY:
        raise ValueError(f"found columns {', '.join(names)}")
    kind = file.schema_arrow.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ValueError(f"column {name!r} is of {kind}")
    return file.read(columns=[name]).column(0)


def _text_keys(data: bytes) -> pa.ChunkedArray:
    from pyarrow import csv  # noqa: PLC0415 (see above)

    if not data.strip():
        return pa.chunked_array([], pa.string())
    lines = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=[_KEY]),
        csv.ParseOptions(delimiter=_NO_DELIMITER, quote_char=False),
        csv.ConvertOptions(column_types={_KEY: pa.string()}, strings_can_be_null=False),
    )
    return pc.utf8_trim_whitespace(lines.column(0))
