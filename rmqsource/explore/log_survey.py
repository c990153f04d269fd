# SPDX-License-Identifier: Apache-2.0
"""Counts of the log's messages, made in one pass: traffic, bytes, sizes, latency, tags, keys."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from rmqsource.scan.read_columns import no_progress, read_columns
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa, pc
from store_core.layout import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SEPARATOR,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_MASK,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Columns, DataType, Table

    Int64s = npt.NDArray[np.int64]

WIDTHS_MS = (
    *(10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000),
    *(86_400_000, 864_000_000),
)
"""Widths of time steps; each divides the next, so that narrow steps can be combined."""
_CLASS_BITS = 8
CLASSES_PER_DOUBLING = 1 << _CLASS_BITS
"""Sizes and waits are counted in classes that are at most 1/256 wide; at most 15,000 a topic."""
_COLUMNS = (
    *("topic", "queue_id", "commit_log_offset", "store_size", "tags", "keys"),
    *("born_timestamp", "store_timestamp", "sys_flag", "properties_raw"),
)
_REAL_TOPIC = f"{PROPERTY_REAL_TOPIC}{chr(NAME_VALUE_SEPARATOR)}"
_HAS_REAL_TOPIC = f"(^|{chr(PROPERTY_SEPARATOR)}){_REAL_TOPIC}"
_STEPS = 2_000
_KEPT_TEXTS = 20_000
_NUMBERS = ("step", "queue_id", "size_class", "latency_class")
_TEXTS = ("tags", "key")
_TIMES = ("store_timestamp", "born_timestamp")
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 32 << 20
_LISTED_DAMAGE = 100
_MERGE_ROWS = 1 << 18
_MOST_BINS = 1 << 20


@dataclass
class Survey:
    """Counts of one pass. Tables are Arrow; `rmqsource.explore` converts them to pandas.

    Messages of inner batches are counted one by one; the bytes of their record count once.

    Attributes
    ----------
    first_ms, last_ms
        Oldest and newest store time; None if there are no messages.
    traffic
        topic, step (of ``step_ms`` since the epoch), messages, bytes.
    queues
        topic, queue_id, messages, bytes.
    sizes
        topic, size_class, messages, bytes, greatest (of the class); see `class_of`.
    latency
        topic, is_later, latency_class, messages, bytes, greatest: store time minus born time in ms,
        below 0 if the producer's clock is ahead. Messages without one of the two are left out.
        ``is_later``: stored again by the broker, which keeps the born time, so that the latency
        includes an intended delay (see `is_later`).
    tags
        topic, tags (null if none), messages; the most frequent ones.
    keys
        topic, key, messages; the most frequent ones.
    keys_missed, tags_missed
        Most by which a count in ``keys`` or ``tags`` may be too low; 0 if all are exact.
    gaps, gap_bytes, damage
        Number of damaged places, bytes lost in them, and the first hundred of them.
    """

    stores: tuple[str, ...]
    messages: int = 0
    bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    step_ms: int = WIDTHS_MS[0]
    traffic: Table = None  # None, like the tables below, until the pass ends
    queues: Table = None
    sizes: Table = None
    latency: Table = None
    tags: Table = None
    keys: Table = None
    keys_missed: int = 0
    tags_missed: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    damage: list[dict[str, Any]] = field(default_factory=list)


def survey_log(
    options: SourceOptions, progress: Callable[[int, int], None] = no_progress
) -> Survey:
    """Count the messages that the options select, in one pass; bodies are not decoded.

    Memory does not grow with the messages: only the 20,000 most frequent keys and tags are kept.
    """
    stores, begin, end = _stores_and_times(options)
    counts = _Counts(_step_for(begin, end))
    wide = replace(
        options,
        batch_rows=max(options.batch_rows, _BATCH_ROWS),
        batch_bytes=max(options.batch_bytes, _BATCH_BYTES),
        mode="FAILFAST" if options.mode == "FAILFAST" else "PERMISSIVE",
    )
    for batch in read_columns(wide, _COLUMNS, progress):
        counts.add(batch)
    return counts.result(stores)


def _stores_and_times(options: SourceOptions) -> tuple[tuple[str, ...], int, int]:
    """Return the stores, and roughly when their logs begin and end (first records of segments)."""
    stores: list[str] = []
    times: list[int] = []
    for snapshot in open_snapshots(options):
        with snapshot:
            stores.append(snapshot.directory.uri)
            for segment in snapshot.log.segments:
                if segment.from_offset < snapshot.end_offset:
                    time = snapshot.log.first_store_timestamp(segment, snapshot.end_offset)
                    times += [] if time is None else [time]
            last = snapshot.newest_store_timestamp()
            times += [] if last is None else [last]
    return tuple(stores), min(times, default=0), max(times, default=0)


def _step_for(begin_ms: int, end_ms: int) -> int:
    for width in WIDTHS_MS:
        if (end_ms - begin_ms) // width <= _STEPS:
            return width
    return WIDTHS_MS[-1]


class _Counts:
    """The tallies of one pass, in which topics are numbered by first occurrence."""

    def __init__(self, step_ms: int) -> None:
        self._total = Survey(())
        self._step_ms = step_ms
        self._last_record = -1
        self._topics: dict[str, int] = {}
        self._by_number = {
            name: Tally(("topic", name), ("messages", "bytes"), greatest=_greatest(name))
            for name in _NUMBERS
        }
        self._by_text = {
            name: Tally(("topic", name), ("messages",), _KEPT_TEXTS) for name in _TEXTS
        }

    def add(self, batch: Columns) -> None:
        damage = batch.pop(CORRUPT_RECORD.name, None)
        if damage is not None and damage.null_count < len(damage):
            self._note_damage(damage.drop_null().to_pylist())
            keep = pc.is_null(damage)
            batch = {name: column.filter(keep) for name, column in batch.items()}
        if len(batch["topic"]) == 0:
            return
        topics = self._topic_numbers(batch["topic"])
        stored, born = (_milliseconds(batch[name]) for name in _TIMES)
        sizes = batch["store_size"].to_numpy(zero_copy_only=False).astype(np.int64)
        record_bytes = self._record_bytes(batch["commit_log_offset"], sizes)
        numbers = {
            "step": stored // self._step_ms,
            "queue_id": batch["queue_id"].to_numpy(zero_copy_only=False).astype(np.int64),
        }
        for name, values in numbers.items():
            self._add_numbers(name, topics, values, record_bytes)
        self._add_numbers("size_class", topics, class_of(sizes), record_bytes, sizes)
        timed = np.flatnonzero((stored != 0) & (born != 0))
        waits = (stored - born)[timed]
        ways = 2 * topics + is_later(batch["sys_flag"], batch["properties_raw"])
        self._add_numbers("latency_class", ways[timed], class_of(waits), record_bytes[timed], waits)
        self._add_texts("tags", topics, batch["tags"])
        # A key that a message has twice counts twice, as the index has two entries for it.
        parents = pc.list_parent_indices(batch["keys"]).to_numpy()
        self._add_texts("key", topics[parents], pc.list_flatten(batch["keys"]))
        self._note_totals(stored, int(record_bytes.sum()))

    def _add_numbers(
        self,
        name: str,
        topics: Int64s,
        numbers: Int64s,
        record_bytes: Int64s,
        values: Int64s | None = None,
    ) -> None:
        if len(topics) == 0:
            return
        columns = counted_pairs(topics, numbers, record_bytes, values)
        names = ("topic", name, "messages", "bytes", "greatest")
        self._by_number[name].add(pa.table(dict(zip(names, columns))))

    def _topic_numbers(self, topics: Array) -> Int64s:
        encoded = topics.dictionary_encode()
        numbers = [
            self._topics.setdefault(name, len(self._topics))
            for name in encoded.dictionary.to_pylist()
        ]
        found: Int64s = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
        return found

    def _add_texts(self, name: str, topics: Int64s, texts: Array) -> None:
        if len(texts) == 0:
            return
        encoded = texts.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        topic, code, messages, _ = counted_pairs(topics, codes, np.zeros(len(codes), np.int64))
        values = encoded.dictionary.take(pa.array(code))
        self._by_text[name].add(pa.table({"topic": topic, name: values, "messages": messages}))

    def _record_bytes(self, places: Array, sizes: Int64s) -> Int64s:
        """Return each record's size at its first message, 0 at further messages of a batch."""
        offsets = places.to_numpy(zero_copy_only=False)
        before = np.concatenate([[self._last_record], offsets[:-1]])
        self._last_record = int(offsets[-1])
        counted: Int64s = np.where(offsets == before, 0, sizes)
        return counted

    def _note_totals(self, stored: Int64s, record_bytes: int) -> None:
        total = self._total
        total.messages += len(stored)
        total.bytes += record_bytes
        low, high = int(stored.min()), int(stored.max())
        total.first_ms = low if total.first_ms is None else min(total.first_ms, low)
        total.last_ms = high if total.last_ms is None else max(total.last_ms, high)

    def _note_damage(self, texts: list[str]) -> None:
        for text in texts:
            gap = json.loads(text)
            self._total.gaps += 1
            self._total.gap_bytes += int(gap["bytes_lost"])
            if len(self._total.damage) < _LISTED_DAMAGE:
                self._total.damage.append(gap)

    def result(self, stores: tuple[str, ...]) -> Survey:
        total = replace(self._total, stores=stores, step_ms=self._step_ms)
        total.traffic = self._named(self._by_number["step"], "step", pa.int64())
        total.queues = self._named(self._by_number["queue_id"], "queue_id", pa.int64())
        total.sizes = self._named(self._by_number["size_class"], "size_class", pa.int64())
        total.latency = self._latency()
        total.tags = self._named(self._by_text["tags"], "tags", pa.string())
        total.keys = self._named(self._by_text["key"], "key", pa.string())
        total.keys_missed = self._by_text["key"].missed
        total.tags_missed = self._by_text["tags"].missed
        return total

    def _latency(self) -> Table:
        """Return the latency table; its tally numbers topics by ``2 * number + is_later``."""
        tally = self._by_number["latency_class"]
        ways = tally.table()
        if ways is None:
            found = self._named(tally, "latency_class", pa.int64())
            return found.add_column(1, "is_later", pa.nulls(0, pa.bool_()))
        way = ways["topic"].to_numpy()
        topic, is_later = pa.array(way // 2), pa.array(way % 2 == 1)
        found = self._with_names(ways.set_column(0, "topic", topic))
        return found.add_column(1, "is_later", is_later)

    def _named(self, tally: Tally, name: str, kind: DataType) -> Table:
        """Return a tally's table with names of topics instead of numbers."""
        found = tally.table()
        if found is None:
            sums = ["messages"] if name in _TEXTS else ["messages", "bytes"]
            counts = ((n, pa.int64()) for n in (*sums, *_greatest(name)))
            fields = [("topic", pa.string()), (name, kind), *counts]
            return pa.schema(fields).empty_table()
        return self._with_names(found)

    def _with_names(self, found: Table) -> Table:
        names = pa.array(list(self._topics), pa.string())
        return found.set_column(0, "topic", names.take(found["topic"].combine_chunks()))


def _greatest(name: str) -> tuple[str, ...]:
    """Return the columns whose maximum a tally keeps besides its sums."""
    return ("greatest",) if name.endswith("_class") else ()


def is_later(sys_flag: Array, properties: Array) -> npt.NDArray[np.bool_]:
    """Return which records a broker wrote for messages that it had stored before.

    The flag marks those of committed transactions. Those that waited (delay level, timer wheel,
    retry) keep the property with their real topic, and so does the waiting record itself.
    """
    flags = sys_flag.to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = flags & TRANSACTION_MASK == TRANSACTION_COMMIT_TYPE
    data = properties.buffers()[-1]
    # In most batches no message has waited: searching all bytes is five times as fast as each row.
    if data is not None and _REAL_TOPIC.encode() in data.to_pybytes():
        rows = np.flatnonzero(pc.match_substring(properties, _REAL_TOPIC))
        # The property's name may also be the end of another name.
        exact = pc.match_substring_regex(properties.take(pa.array(rows)), _HAS_REAL_TOPIC)
        found[rows] |= exact.to_numpy(zero_copy_only=False)
    return found


def _milliseconds(timestamps: Array) -> Int64s:
    """Return times in ms; 0 for null."""
    micros: Int64s = timestamps.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return micros // 1000


def class_of(values: Int64s) -> Int64s:
    """Return the class of each number; classes of negative numbers mirror the positive ones.

    Each number below 512 is its own class. Above, each doubling has 256 classes of equal width, as
    in Gil Tene's HDR histogram: 512 and 513 are class 512, 1024 to 1027 are class 768.
    """
    sizes = np.abs(values)
    # The exponent from frexp is that of the next power of two: 512 = 0.5 * 2**10.
    shifts = np.maximum(np.frexp(sizes.astype(np.float64))[1] - (_CLASS_BITS + 1), 0)
    classes = (shifts.astype(np.int64) << _CLASS_BITS) + (sizes >> shifts)
    found: Int64s = np.where(values < 0, -classes, classes)
    return found


def class_bounds(number: int) -> tuple[int, int]:
    """Return ``[low, high)`` of a class."""
    if number < 0:
        low, high = class_bounds(-number)
        return (1 - high, 1 - low)
    if number < 2 * CLASSES_PER_DOUBLING:
        return (number, number + 1)
    shift = (number >> _CLASS_BITS) - 1
    low = (CLASSES_PER_DOUBLING + number % CLASSES_PER_DOUBLING) << shift
    return (low, low + (1 << shift))


def quantile(greatest: Int64s, counts: Int64s, percent: int) -> int:
    """Return a percentile: the greatest number of the class in which it falls.

    The result is a number that occurs, at most 0.4 % above the exact percentile, and never above
    the greatest of all.

    Parameters
    ----------
    percent
        1 to 100.

    Raises
    ------
    ValueError
        Nothing was counted.
    """
    total = int(counts.sum()) if len(counts) else 0
    if total == 0:
        raise ValueError("no number was counted")
    order = np.argsort(greatest, kind="stable")
    wanted = -(-percent * total // 100)
    return int(greatest[order][np.searchsorted(np.cumsum(counts[order]), wanted, "left")])


class Tally:
    """Sums of numbers, grouped by one or several keys.

    Parameters
    ----------
    limit
        Most groups to keep; all if None. Beyond it the groups with the smallest first sum are
        dropped, and ``missed`` grows: no remaining sum is too low by more, and no dropped group is
        larger.
    """

    def __init__(
        self,
        keys: tuple[str, ...],
        sums: tuple[str, ...],
        limit: int | None = None,
        *,
        greatest: tuple[str, ...] = (),
    ) -> None:
        self._keys = list(keys)
        self._sums = list(sums)
        self._greatest = list(greatest)
        self._limit = limit
        self._parts: list[Table] = []
        self._rows = 0
        self.missed = 0

    def add(self, part: Table) -> None:
        """Add the rows of a ``pa.Table`` with these columns; groups may occur more than once."""
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > _MERGE_ROWS and len(self._parts) > 1:
            self._merge()

    def table(self) -> Table | None:
        """Return the groups, largest first sum first; None if nothing has been added."""
        if not self._parts:
            return None
        self._merge()
        order = [(self._sums[0], "descending"), *((key, "ascending") for key in self._keys)]
        return self._parts[0].sort_by(order)

    def _merge(self) -> None:
        merged = self._grouped(pa.concat_tables(self._parts))
        if self._limit is not None and merged.num_rows > self._limit:
            ordered = merged.sort_by([(self._sums[0], "descending")])
            self.missed += int(ordered[self._sums[0]][self._limit].as_py())
            merged = ordered.slice(0, self._limit)
        self._parts, self._rows = [merged], 0

    def _grouped(self, part: Table) -> Table:
        wanted = [(name, "sum") for name in self._sums] + [(name, "max") for name in self._greatest]
        found = part.group_by(self._keys).aggregate(wanted)
        names = [*self._keys, *(f"{name}_{what}" for name, what in wanted)]
        return found.select(names).rename_columns([*self._keys, *(name for name, _ in wanted)])


def counted_pairs(
    first: Int64s, second: Int64s, weights: Int64s, values: Int64s | None = None
) -> tuple[Int64s, ...]:
    """Return the distinct pairs of two columns, the count of each, and the sum of its weights.

    With ``values``, also the greatest value of each pair. ``first`` counts from 0. Dense pairs are
    counted in bins, which is ten times as fast as grouping them; sums of weights are exact up to
    2**53.
    """
    low = int(second.min())
    span = int(second.max()) - low + 1
    pairs = first * span + (second - low)
    bins = (int(first.max()) + 1) * span
    if bins <= _MOST_BINS:
        all_counts = np.bincount(pairs)
        found = np.flatnonzero(all_counts)
        counts, sums = all_counts[found], np.bincount(pairs, weights)[found]
        places = (np.cumsum(all_counts > 0) - 1)[pairs]
    else:
        found, places, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        sums = np.bincount(places, weights)
    columns = (found // span, found % span + low, counts, sums.astype(np.int64))
    if values is None:
        return columns
    greatest = np.full(len(found), np.iinfo(np.int64).min)
    np.maximum.at(greatest, places, values)
    return (*columns, greatest)
