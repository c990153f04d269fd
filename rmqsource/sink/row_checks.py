"""The rules that a row must keep to be a message, each for a whole batch at once.

Source: RocketMQ ``TopicValidator``, ``HookUtils.checkBeforePutMessage``, ``MessageExtEncoder``
(release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from rmqsource.sink.bad_rows import Check
from rmqsource.sink.bodies import newer_format_rows
from rmqsource.sink.option_table import MAX_QUEUES, is_topic_name
from rmqsource.sink.properties import rows_with_separators
from rmqsource.sink.source_columns import is_null
from store_core.arrow import pc
from store_core.codec.hosts import parse_host
from store_core.layout.message import (
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_BYTES_V2,
)
from store_core.put.put_checks import inner_count
from store_core.put.reserved_properties import marked_rows, reserved_faults
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from rmqsource.sink.source_columns import SourceColumns
    from rmqsource.sink.write_plan import SinkPlan
    from store_core.arrow_types import Array, RecordBatch

    Bools = npt.NDArray[np.bool_]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FIRST_OF_5 = 5
_NORMAL = "normal"


def input_checks(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    """Yield what is wrong with the values as they came."""
    count = len(columns)
    yield from _topic_checks(columns, plan)
    yield Check("body", is_null(columns.body, count), _says("is null"))
    yield from _empty_bodies(columns, plan)
    yield _bounds(columns, "queue_id", 0, MAX_QUEUES - 1)
    yield _bounds(columns, "delay_level", 0, len(plan.delay_levels_ms))
    for name in ("flag", "reconsume_times", "sys_flag"):
        yield _bounds(columns, name, _INT32_MIN, _INT32_MAX)
    hosts = None if columns.born_host is None else columns.born_host.dictionary_encode()
    yield _by_value("born_host", hosts, count, _host_fault)
    yield from _separator_checks(columns, plan)
    yield from _format_checks(columns, plan)


def size_checks(
    properties_bytes: Int64s, body_bytes: Int64s, record_bytes: Int64s, plan: SinkPlan
) -> Iterator[Check]:
    """Yield what is too long for the store.

    Parameters
    ----------
    properties_bytes, body_bytes, record_bytes
        As stored, of every row.
    """
    yield _too_long("properties", properties_bytes, MAX_PROPERTIES_BYTES, "with all that is in it")
    yield _too_long("body", body_bytes, plan.options.max_message_size, "maxMessageSize")
    fits = plan.segment_bytes - 8
    yield _too_long("body", record_bytes, fits, "the whole record in mappedFileSizeCommitLog - 8")


def reserved_checks(
    columns: SourceColumns, records: RecordBatch, topics: Sequence[str], topic_code: Int32s
) -> Iterator[Check]:
    """Yield the rows with a reserved property that a broker could not read, or would not take.

    Parameters
    ----------
    columns
        As they came.
    records
        ``pa.RecordBatch`` with the property bytes as they are stored.
    topics, topic_code
        Names, and which of them each record has.
    """
    if columns.properties_raw is None and columns.properties is None:
        return
    stored = records.column("properties_raw")
    refused = reserved_faults(stored, topics, topic_code)
    for row in marked_rows(stored).tolist():
        if row not in refused:
            _, refusal = inner_count(topics[topic_code[row]], 0, stored[row].as_py(), False)
            if refusal is not None:
                refused[row] = refusal.reason
    if not refused:
        return
    bad = np.zeros(len(columns), bool)
    bad[list(refused)] = True
    built = is_null(columns.properties_raw, len(columns))
    yield Check("properties", bad & built, refused.__getitem__)
    yield Check("properties_raw", bad & ~built, refused.__getitem__)


def _says(text: str) -> Callable[[int], str]:
    return lambda _: text


def _too_long(column: str, lengths: Int64s, most: int, what: str) -> Check:
    return Check(
        column, lengths > most, lambda row: f"has {lengths[row]} bytes, at most {most} fit ({what})"
    )


def _bounds(columns: SourceColumns, name: str, low: int, high: int) -> Check:
    given = columns.integers(name)
    if given is None:
        return Check(name, np.zeros(len(columns), bool), _says(""))
    values = given.fill_null(max(low, 0)).to_numpy(zero_copy_only=False)
    return Check(
        name,
        (values < low) | (values > high),
        lambda row: f"is {values[row]}; it must be {low} to {high}",
    )


def _by_value(
    column: str, encoded: Array | None, count: int, fault: Callable[[str | None], str | None]
) -> Check:
    """Return the check of a dictionary array: each value is looked at once."""
    if encoded is None:
        return Check(column, np.zeros(count, bool), _says(""))
    faults = [fault(value) for value in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(faults)).to_numpy(zero_copy_only=False)
    faults.append(fault(None))
    bad = np.array([text is not None for text in faults], bool)[codes]
    return Check(column, bad, lambda row: faults[codes[row]] or "")


def _topic_checks(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    options = plan.options
    newer = options.compatibility >= _FIRST_OF_5
    most = MAX_TOPIC_BYTES_V2 if newer else MAX_TOPIC_BYTES_V1

    def fault(topic: str | None) -> str | None:
        if topic is None:
            return "is null, and no topic is named by option 'topic'"
        if not is_topic_name(topic):
            return f"{topic!r} is no topic name: letters, digits and % | _ - only, at least one"
        if len(topic) > most:
            more = "" if newer else f"; with compatibility=5 up to {MAX_TOPIC_BYTES_V2}"
            return f"{topic!r} has {len(topic)} bytes, at most {most} fit{more}"
        if topic in plan.batch_topics:
            return f"{topic!r} has batch queues (queue.type=BatchCQ), which take inner batches only"
        if not options.system_topics and topic_kind(topic) != _NORMAL:
            return (
                f"{topic!r} is a topic of kind {topic_kind(topic)}, whose messages a broker would "
                "deliver or check again; set option 'systemTopics' to true to write it all the same"
            )
        return None

    yield _by_value("topic", columns.coded_topic, len(columns), fault)


def _empty_bodies(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    """Yield rows with an empty body: no producer sends one, and clients of 4.x fail on it."""
    if plan.options.compatibility >= _FIRST_OF_5 or columns.body is None:
        return
    empty = pc.equal(pc.binary_length(columns.body), 0).fill_null(False)
    text = "is empty, and a push consumer of 4.x stops there; set compatibility to 5 to write it"
    yield Check("body", empty.to_numpy(zero_copy_only=False), _says(text))


def _host_fault(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        parse_host(text)
    except ValueError as err:
        return str(err)
    return None


def _separator_checks(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    """Yield values that would fall apart; exact bytes (``properties_raw``) are not looked into."""
    built = is_null(columns.properties_raw, len(columns))
    text = "holds U+0001 or U+0002, which separate properties"
    newer = plan.options.compatibility >= _FIRST_OF_5
    if columns.properties is not None:
        named = rows_with_separators(columns.properties, names=True)
        valued = rows_with_separators(columns.properties, lenient=newer)
        yield Check("properties", named & built, _says(f"a name {text}"))
        yield Check("properties", valued & built, _says(f"a value {text}"))
    for name in ("keys", "tags", "unique_key", "sharding_key"):
        values = getattr(columns, name)
        if values is not None:
            yield Check(name, rows_with_separators(values) & built, _says(text))


def _format_checks(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    flags = columns.integers("sys_flag")
    if flags is None or columns.body is None:
        return
    newer = newer_format_rows(len(columns), columns.raw_rows, flags)
    kinds = flags.fill_null(0).to_numpy(zero_copy_only=False) & COMPRESSION_TYPE_MASK
    if plan.options.compatibility >= _FIRST_OF_5:
        newer &= kinds > COMPRESSION_ZLIB
        yield Check("sys_flag", newer, lambda row: f"compression type {kinds[row] >> 8} is unknown")
        return
    text = "the body is compressed in a format that 4.x does not know; set compatibility to 5"
    yield Check("sys_flag", newer, _says(text))
