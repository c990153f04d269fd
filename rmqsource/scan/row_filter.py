# SPDX-License-Identifier: Apache-2.0
"""Apply a predicate to batches of records, exactly and by column.

Fixed fields come first, on frames, so bodies and properties of rows that fail are never touched.
Conditions on properties come after.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from rmqsource.scan.predicate import ANY, IntRange, load_keys
from store_core.arrow import gather_binary
from store_core.codec.java_string import decode_utf8
from store_core.codec.record_frames import FrameConditions, holds_inner_batch, matching
from store_core.errors import FilterEvaluationError
from store_core.layout import NOT_QUEUED_BIT
from store_core.read.key_match import has_any_key, has_any_word, is_any_of, text_set

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.options.offsets import OffsetBound
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.arrow_types import Array
    from store_core.codec.inner_columns import UnwrappedRows
    from store_core.codec.message_batch_codec import MessageColumns
    from store_core.codec.record_frames import RecordFrames
    from store_core.filter.sql_filter import SqlFilter

    Mask = npt.NDArray[np.bool_]

_REPLACEMENT = "\ufffd"
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def frame_mask(frames: RecordFrames, predicate: ScanPredicate, *, undispatched: bool) -> Mask:
    """Return which records may match by their fixed fields.

    Exact, except for queue offsets of inner batches, which are checked when those are unpacked.
    """
    keep = matching(frames, _conditions(predicate, undispatched=undispatched))
    for field, among in (
        ("queue_id", None if _is_run(predicate.queue_ids) else predicate.queue_ids),
        ("store_timestamp", predicate.store_times_ms),
        ("commit_log_offset", predicate.commit_log_offsets),
    ):
        if among is not None:
            keep &= np.isin(frames.column(field), list(among))
    if bounds_queue_offsets(predicate) or _needs_names(predicate):
        topics = gather_binary(frames.data, frames.topic_start, frames.topic_length)
        keep &= _topic_mask(topics, predicate)
        if bounds_queue_offsets(predicate):
            within = queue_offset_mask(
                topics, frames.column("queue_id"), frames.column("queue_offset"), predicate
            )
            keep &= within | holds_inner_batch(frames.column("sys_flag"))
    return keep


def _conditions(predicate: ScanPredicate, *, undispatched: bool) -> FrameConditions:
    ids = predicate.queue_ids
    ranges = {
        "queue_id": IntRange(min(ids), max(ids) + 1) if ids else predicate.queue_id_range,
        "store_timestamp": predicate.store_time_ms,
        "commit_log_offset": predicate.commit_log_offset_range,
    }
    topics = None if _needs_names(predicate) else predicate.topics
    return FrameConditions(
        without_flags=0 if undispatched else NOT_QUEUED_BIT,
        ranges={field: _bounds_of(wanted) for field, wanted in ranges.items() if wanted != ANY},
        topics=None if topics is None else frozenset(map(_stored_name, topics)),
    )


def _is_run(values: frozenset[int] | None) -> bool:
    """Return whether a range says the same."""
    return max(values) - min(values) + 1 == len(values) if values else False


def _bounds_of(wanted: IntRange) -> tuple[int, int]:
    """Return the least and the greatest integer of a range."""
    least = _LEAST if wanted.start is None else wanted.start
    return least, _GREATEST if wanted.stop is None else wanted.stop - 1


def _stored_name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogatepass")


def _needs_names(predicate: ScanPredicate) -> bool:
    """Return whether topics have to be decoded: stored bytes do not show whether they match."""
    odd = any(_REPLACEMENT in topic for topic in predicate.topics or ())  # of invalid UTF-8
    return odd or predicate.topic_pattern is not None


def _inside(values: npt.NDArray[Any], wanted: IntRange) -> Mask:
    keep = np.ones(len(values), np.bool_)
    if wanted.start is not None:
        keep &= values >= wanted.start
    if wanted.stop is not None:
        keep &= values < wanted.stop
    return keep


def _topic_mask(topics: Array, predicate: ScanPredicate) -> Mask:
    """Return which topics match, if their names are needed for that."""
    keep = np.ones(len(topics), np.bool_)
    if not _needs_names(predicate):
        return keep
    if predicate.topics is not None:
        keep &= _mask_of_names(topics, predicate.topics.__contains__)
    if predicate.topic_pattern is not None:
        pattern = re.compile(predicate.topic_pattern)
        keep &= _mask_of_names(topics, lambda name: pattern.fullmatch(name) is not None)
    return keep


def _mask_of_names(topics: Array, matches: Callable[[str], bool]) -> Mask:
    encoded = topics.dictionary_encode()
    found = [decode_utf8(name) for name in encoded.dictionary.to_pylist()]
    mask = np.array([matches(name) for name in found], np.bool_)
    chosen: Mask = mask[encoded.indices.to_numpy()]
    return chosen


def bounds_queue_offsets(predicate: ScanPredicate) -> bool:
    """Return whether a predicate bounds queue offsets at all."""
    bounds = (predicate.starting_offsets, predicate.ending_offsets)
    given = any(bound is not None and bound.offsets for bound in bounds)
    wanted = predicate.queue_offset_range
    scattered = predicate.queue_offsets is not None
    return given or scattered or wanted.start is not None or wanted.stop is not None


def queue_offset_mask(
    topics: Array,
    queue_ids: npt.NDArray[np.int32],
    queue_offsets: npt.NDArray[np.int64],
    predicate: ScanPredicate,
) -> Mask:
    """Return which queue offsets the predicate selects from their queue."""
    keep = np.ones(len(queue_offsets), np.bool_)
    keep &= _inside(queue_offsets, predicate.queue_offset_range)
    if predicate.queue_offsets is not None:
        keep &= np.isin(queue_offsets, list(predicate.queue_offsets))
    starting, ending = predicate.starting_offsets, predicate.ending_offsets
    if starting is not None and starting.offsets:
        keep &= queue_offsets >= _bounds(topics, queue_ids, starting, 0)
    if ending is not None and ending.offsets:
        keep &= queue_offsets < _bounds(topics, queue_ids, ending, np.iinfo(np.int64).max)
    return keep


def _bounds(
    topics: Array, queue_ids: npt.NDArray[np.int32], bound: OffsetBound, default: int
) -> npt.NDArray[np.int64]:
    """Return the bound of each row's queue."""
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy()
    distinct = encoded.dictionary.to_pylist()  # bytes of frames, or text of decoded messages
    names = {t if isinstance(t, str) else decode_utf8(t): code for code, t in enumerate(distinct)}
    found = np.full(len(queue_ids), default, np.int64)
    for (topic, queue_id), offset in bound.offsets.items():
        code = names.get(topic)
        if code is not None:
            found[(codes == code) & (queue_ids == queue_id)] = offset
    return found


def needs_properties(predicate: ScanPredicate) -> bool:
    """Return whether a predicate has conditions that need decoded messages."""
    return any(
        wanted is not None
        for wanted in (
            predicate.tags,
            predicate.keys,
            predicate.unique_keys,
            predicate.message_ids,
            predicate.key_equals,
            predicate.key_files,
            predicate.sql_filter,
        )
    )


def column_mask(
    columns: MessageColumns | UnwrappedRows, rows: int, predicate: ScanPredicate
) -> Mask:
    """Return which decoded messages match every condition except the SQL filter."""
    keep = np.ones(rows, np.bool_)
    if predicate.tags is not None:
        keep &= columns.are_among("tags", text_set(predicate.tags))
    if predicate.unique_keys is not None:
        keep &= columns.are_among("unique_key", text_set(predicate.unique_keys))
    if predicate.message_ids is not None:
        keep &= is_any_of(columns.column("message_id"), text_set(predicate.message_ids))
    if predicate.keys is not None:
        keep &= has_any_word(columns.column("keys"), text_set(predicate.keys))
    if predicate.key_equals is not None:
        keep &= has_any_key(columns, text_set(predicate.key_equals))
    if predicate.key_files is not None:
        keep &= has_any_key(columns, load_keys(predicate.key_files))
    return keep


class SqlResult(NamedTuple):
    """Result of a SQL filter for some messages.

    Attributes
    ----------
    first_failure
        Why the first failed message has no result; empty if all have one.
    """

    true: Mask
    failed: Mask
    first_failure: str


def sql_result(
    sql_filter: SqlFilter, columns: MessageColumns | UnwrappedRows, keep: Mask
) -> SqlResult:
    """Evaluate a SQL filter for the messages that ``keep`` marks.

    Only the properties that the filter names are decoded.
    """
    values = columns.property_columns(sql_filter.property_names)
    found = sql_filter.evaluate_columns(values, len(keep))
    failed = found.failed & keep
    first = ""
    if failed.any():
        row = int(failed.argmax())
        given = {name: column[row].as_py() for name, column in values.items()}
        try:
            sql_filter.evaluate({name: text for name, text in given.items() if text is not None})
        except FilterEvaluationError as err:
            first = str(err)
    return SqlResult(found.true & keep, failed, first)
