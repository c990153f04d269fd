# SPDX-License-Identifier: Apache-2.0
"""Convert batches of rows to the columns of records, a whole column at a time."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from rmqsource.options.option_values import is_topic_name
from rmqsource.sink.bad_rows import BadRows, Check
from rmqsource.sink.local_host import address_bytes, local_address
from rmqsource.sink.options import MAX_QUEUES
from rmqsource.sink.properties import has_property, merge_properties, rows_with_separators
from rmqsource.sink.queues import QueueChooser
from rmqsource.sink.source_columns import SourceColumns, is_null, newer_format_rows, stored_bodies
from store_core.arrow import binary_parts, pa, pc
from store_core.codec.message_id import parse_host
from store_core.codec.property_columns import joined_words
from store_core.layout import (
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    IPV4_HOST_BYTES,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MAX_TOPIC_BYTES_V2,
    MIN_RECORD_BYTES,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_REAL_QID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    SCHEDULE_TOPIC,
)
from store_core.put.put_checks import inner_count
from store_core.put.put_properties import marked_rows, reserved_faults
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from rmqsource.sink.write_plan import SinkPlan
    from store_core.arrow_types import Array, Columns, RecordBatch
    from store_core.codec.message_id import ClientMessageIds

    Int32s = npt.NDArray[np.int32]
    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FIRST_OF_5 = 5
_NORMAL = "normal"


class RecordRows(NamedTuple):
    """Rows that can be encoded.

    Attributes
    ----------
    properties
        All properties by name, null where a row lacks one; None if they are not known.
    """

    batch: RecordBatch
    topics: list[str]
    topic_code: Int32s
    queue_id: Int32s
    properties: Columns | None

    def filter(self, good: npt.NDArray[np.bool_]) -> RecordRows:
        """Return some of the rows."""
        mask, properties = pa.array(good), self.properties
        if properties is not None:
            properties = {name: values.filter(mask) for name, values in properties.items()}
        return RecordRows(
            self.batch.filter(mask),
            self.topics,
            self.topic_code[good],
            self.queue_id[good],
            properties,
        )


class RowConverter:
    """Converts the batches of one task.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    chooser
        Chooses queues; if None, one as the plan says.
    """

    def __init__(
        self,
        plan: SinkPlan,
        partition_id: int,
        ids: ClientMessageIds,
        clock: Callable[[], int],
        chooser: QueueChooser | None = None,
    ) -> None:
        self._plan, self._ids, self._clock = plan, ids, clock
        known = QueueChooser(plan.options.queues, plan.topic_queues, partition_id)
        self._chooser = chooser or known
        self._born_host = address_bytes(local_address(), 0)
        self.bad_rows = BadRows(plan.options.bad_rows)
        self.delay_levels: set[int] = set()

    @property
    def topics(self) -> dict[str, int]:
        """Topics under the names that consumers use, with the number of queues that each needs."""
        return self._chooser.needed

    def convert(self, batch: RecordBatch) -> RecordRows | None:
        """Return the records of a batch; None if no row is left.

        Raises
        ------
        SinkRowError
            A row cannot be a message, and ``badRows`` is ``fail``.
        """
        columns = self._columns(batch)
        good = self.bad_rows.good_rows(input_checks(columns, self._plan), batch)
        if good is not None:
            batch = batch.filter(pa.array(good))
            columns = self._columns(batch)
        if len(columns) == 0:
            return None
        rows, record_bytes = self._rows(columns)
        checks = size_checks(
            _lengths(rows.batch.column("properties_raw")),
            _lengths(rows.batch.column("body")),
            record_bytes,
            self._plan,
        )
        checks = chain(checks, reserved_checks(columns, rows.batch, rows.topics, rows.topic_code))
        good = self.bad_rows.good_rows(checks, batch)
        if good is None:
            return rows
        if not good.any():
            return None
        return rows.filter(good)

    def _columns(self, batch: RecordBatch) -> SourceColumns:
        return SourceColumns(batch, self._plan.columns, self._plan.options.topic)

    def _rows(self, columns: SourceColumns) -> tuple[RecordRows, npt.NDArray[np.int64]]:
        encoded = columns.coded_topic
        topics = encoded.dictionary.to_pylist()
        topic_code = encoded.indices.to_numpy(zero_copy_only=False)
        queue_id = self._chooser.choose(
            topics, topic_code, columns.integers("queue_id"), columns.sharding_key
        )
        named = self._named(columns)
        topic, delayed = columns.topic, _delayed(columns)
        if delayed is not None and self._plan.by_broker:
            named[PROPERTY_DELAY] = pa.array(delayed, mask=delayed == 0).cast(pa.string())
        elif delayed is not None:
            named.update(_delay_properties(delayed, columns.topic, queue_id))
            self.delay_levels.update(np.unique(delayed[delayed > 0]).tolist())
            topic = pc.if_else(pa.array(delayed > 0), SCHEDULE_TOPIC, topic)
            topic_code = np.where(delayed > 0, len(topics), topic_code).astype(np.int32)
            queue_id = np.where(delayed > 0, delayed - 1, queue_id).astype(np.int32)
            topics = [*topics, SCHEDULE_TOPIC]
        flags = columns.integers("sys_flag")
        stored = stored_bodies(columns.body, columns.raw_rows, flags, self._plan.options)
        values = {
            "topic": topic.cast(pa.binary()),
            "body": stored.body,
            "properties_raw": merge_properties(
                columns.properties_raw, columns.properties, named, len(columns)
            ),
            "queue_id": pa.array(queue_id),
            "sys_flag": pa.array(stored.sys_flag),
            "born_timestamp": pa.array(columns.born_timestamps(self._clock())),
            "born_host": self._born_hosts(columns),
        }
        for name in ("flag", "reconsume_times"):
            given = columns.integers(name)
            if given is not None:
                values[name] = given.fill_null(0).cast(pa.int32())
        batch = pa.record_batch(values)
        is_known = columns.properties_raw is None and columns.properties is None
        properties = _as_found(named) if is_known else None
        rows = RecordRows(batch, topics, topic_code, queue_id, properties)
        return rows, self._record_bytes(batch)

    def _record_bytes(self, batch: RecordBatch) -> npt.NDArray[np.int64]:
        """Return the length of every record (``MessageExtEncoder.calMsgLength``)."""
        topic, born_host = _lengths(batch.column("topic")), _lengths(batch.column("born_host"))
        sizes = MIN_RECORD_BYTES + topic + (topic > MAX_TOPIC_BYTES_V1)
        sizes += born_host + len(self._plan.store_host) - 2 * IPV4_HOST_BYTES
        return sizes + _lengths(batch.column("body")) + _lengths(batch.column("properties_raw"))

    def _named(self, columns: SourceColumns) -> Columns:
        given = {
            PROPERTY_KEYS: columns.keys,
            PROPERTY_TAGS: columns.tags,
            PROPERTY_UNIQ_KEY: self._unique_keys(columns),
            PROPERTY_SHARDING_KEY: columns.sharding_key,
        }
        return {name: joined_words(values) for name, values in given.items() if values is not None}

    def _unique_keys(self, columns: SourceColumns) -> Array | None:
        """Return the unique keys, generated for rows that have none.

        Rows with exact property bytes get no generated key, so that the bytes stay exact.
        """
        count, given = len(columns), columns.unique_key
        missing = is_null(given, count) & is_null(columns.properties_raw, count)
        missing &= ~has_property(columns.properties, PROPERTY_UNIQ_KEY, count)
        rows = np.flatnonzero(missing)
        if len(rows) == 0:
            return given
        made = self._ids.next_ids(len(rows))
        if len(rows) < count:
            place = np.cumsum(missing) - 1
            made = made.take(pa.array(place, mask=~missing))
        return made if given is None else pc.coalesce(given, made)

    def _born_hosts(self, columns: SourceColumns) -> Array:
        if columns.born_host is None:
            return pa.repeat(pa.scalar(self._born_host, pa.binary()), len(columns))
        encoded = columns.born_host.dictionary_encode()
        hosts = [parse_host(text) for text in encoded.dictionary.to_pylist()]
        hosts.append(self._born_host)
        return pa.array(hosts, pa.binary()).take(encoded.indices.fill_null(len(hosts) - 1))


def _as_found(named: Columns) -> Columns:
    """Return values as a decoder reads them: an empty one becomes null."""
    found = {}
    for name, values in named.items():
        texts = values.cast(pa.string())
        empty = pc.equal(pc.binary_length(texts), 0)
        if pc.any(empty).as_py():
            texts = pc.if_else(empty, pa.scalar(None, pa.string()), texts)
        found[name] = texts
    return found


def _lengths(array: Array) -> npt.NDArray[np.int64]:
    return np.diff(binary_parts(array)[0]).astype(np.int64)


def _delayed(columns: SourceColumns) -> npt.NDArray[np.int64] | None:
    """Return the delay level of each row, 0 for no delay; None if no row has one."""
    given = columns.integers("delay_level")
    if given is None:
        return None
    levels: npt.NDArray[np.int64] = given.fill_null(0).to_numpy(zero_copy_only=False)
    return levels if levels.any() else None


def _delay_properties(levels: npt.NDArray[np.int64], topic: Array, queue_id: Int32s) -> Columns:
    """Return the properties a broker adds to a delayed message (``transformDelayLevelMessage``)."""
    none = levels == 0
    return {
        PROPERTY_DELAY: pa.array(levels, mask=none).cast(pa.string()),
        PROPERTY_REAL_TOPIC: pc.if_else(pa.array(none), pa.scalar(None, pa.string()), topic),
        PROPERTY_REAL_QID: pa.array(queue_id, mask=none).cast(pa.string()),
    }


# Source: RocketMQ ``TopicValidator``, ``HookUtils.checkBeforePutMessage``, ``MessageExtEncoder``
# (release 5.3.3).
def input_checks(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    """Yield the checks of the input values."""
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
    """Yield the checks of the sizes that the store limits."""
    yield _too_long("properties", properties_bytes, MAX_PROPERTIES_BYTES, "with everything in it")
    yield _too_long("body", body_bytes, plan.options.max_message_size, "maxMessageSize")
    fits = plan.segment_bytes - 8
    yield _too_long("body", record_bytes, fits, "the whole record in mappedFileSizeCommitLog - 8")


def reserved_checks(
    columns: SourceColumns, records: RecordBatch, topics: Sequence[str], topic_code: Int32s
) -> Iterator[Check]:
    """Yield the checks for reserved properties that a broker could not read or would refuse.

    Parameters
    ----------
    records
        ``pa.RecordBatch`` with the property bytes to be stored.
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
        column,
        lengths > most,
        lambda row: f"has {lengths[row]} bytes, but at most {most} fit ({what})",
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
    """Return the check of a dictionary array; each distinct value is checked once."""
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
            return "is null, and option 'topic' is not set"
        if not is_topic_name(topic):
            return (
                f"{topic!r} is not a topic name: use letters, digits and % | _ - only, at least one"
            )
        if len(topic) > most:
            more = "" if newer else f"; with compatibility=5 up to {MAX_TOPIC_BYTES_V2}"
            return f"{topic!r} has {len(topic)} bytes, but at most {most} fit{more}"
        if topic in plan.batch_topics:
            return f"{topic!r} has batch queues (queue.type=BatchCQ), which take inner batches only"
        if not options.system_topics and topic_kind(topic) != _NORMAL:
            return (
                f"{topic!r} is a topic of kind {topic_kind(topic)}, whose messages a broker "
                "would deliver or check again; set option 'systemTopics' to write it anyway"
            )
        return None

    yield _by_value("topic", columns.coded_topic, len(columns), fault)


def _empty_bodies(columns: SourceColumns, plan: SinkPlan) -> Iterator[Check]:
    """Yield the check for empty bodies: no producer sends one, and clients of 4.x fail on it."""
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
    """Yield the checks for separators inside values; skips exact bytes (``properties_raw``)."""
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
