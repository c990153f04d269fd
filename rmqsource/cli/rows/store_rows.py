# SPDX-License-Identifier: Apache-2.0
"""Rows from the files of stores: messages in order, by id, the newest, new ones as they come."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli.info import show_topics
from rmqsource.cli.metadata import for_stores, whole_table
from rmqsource.cli.read import read_messages, rows_of
from rmqsource.cli.report import progress_bars
from rmqsource.cli.row_source import FoundMessages, RowSource, write_new_rows
from rmqsource.errors import DataLossError
from rmqsource.explore.trace_events import moment
from rmqsource.options.option_values import is_message_id
from rmqsource.options.source_options import sql_option
from rmqsource.options.where import Comparison
from rmqsource.scan.read_columns import no_progress
from rmqsource.scan.store_versions import make_token, parse_token
from store_core.errors import FileVanishedError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from rmqsource.cli.output import Display, RowWriter, Shape
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.cli.row_source import MessageChoice
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table

    Row = dict[str, Any]
    Rows = Iterator[Row]
    Read = Callable[[SourceOptions], Iterator[Row]]

_FOLLOWED = 10
_LOOK_SECONDS = 1.0
_COLUMNS = ("topic", "queue_id", "keys", "tags", "store_timestamp", "properties")
_LOOKED_AT = 10
_UNSELECTED: dict[str, Any] = dict.fromkeys(
    (
        *("topics", "topic_pattern", "queue_ids", "starting_timestamp_ms", "ending_timestamp_ms"),
        *("starting_offsets", "ending_offsets", "keys", "unique_keys", "message_ids", "tags"),
        "sql_filter",
    )
)
PLACE_COLUMNS = ("store_timestamp", "commit_log_offset", "queue_offset", "store")
"""Columns that rows need for ordering."""
_FIRST_WINDOW = 1 << 20
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


class StoreRows(RowSource):
    """Rows of the stores that options name."""

    def __init__(self, options: SourceOptions, report: Report) -> None:
        self._options, self._report = options, report
        self._missing: list[str] = []

    def check(self, wanted: MessageChoice) -> None:
        """Raise `WrongUseError` for flags that contradict each other; see `RowSource`."""
        wanted.check(self._options)

    def messages(
        self, wanted: MessageChoice, found: FoundMessages, limit: int, progress: ProgressBars
    ) -> Generator[Row, None, None]:
        """Yield messages, oldest first, by id or newest first; see `RowSource`."""
        del limit
        read = partial(_read, found, progress)
        if wanted.last is not None:
            yield from newest(self._options, wanted.last, read)
        elif wanted.ids:
            yield from self._of_ids(wanted.ids, read)
        else:
            yield from read(self._options)

    def _of_ids(self, ids: Sequence[str], read: Read) -> Rows:
        """Yield the messages of each id, every message once; record ids without messages."""
        shown = set()
        for text in ids:
            for kind, options in reads_of_id(text, self._options):
                found = 0
                for row in read(options):
                    found += 1
                    place = (row["store"], row["commit_log_offset"], row["queue_offset"])
                    if place not in shown:
                        shown.add(place)
                        yield row
                if found:
                    which = f"id {text!r}: " if len(ids) > 1 else ""
                    self._report.note(f"{which}found by {kind}")
                    break
            else:
                self._missing.append(text)

    def follow(self, wanted: MessageChoice, writer: RowWriter) -> None:
        """Write the newest messages, oldest first, and then new ones; see `RowSource`."""
        self._report.tell_missing(self._options)
        with progress_bars() as progress:
            found = FoundMessages(writer.columns, self._report, wanted.grep)
            read = partial(_read, found, progress)
            follower = Follower(self._options, read, self._report.note)
            rows = follower.begin(_FOLLOWED if wanted.last is None else wanted.last)
        write_new_rows(follower.look, rows, writer, lambda: time.sleep(_LOOK_SECONDS))

    def table(self, name: str, shape: Shape) -> tuple[Table, Shape]:
        """Return a metadata table of all stores; see `RowSource`."""
        return whole_table(name, self._options), for_stores(shape, self._options)

    def show_topics(self, display: Display, limit: int) -> None:
        """Write the disk use of each topic; see `RowSource`."""
        show_topics(self._options, display, limit, self._report)

    def tell_missing(self, seen: Collection[str] = ()) -> None:
        """Report ids, topics and logs that are missing; see `RowSource`."""
        self._report.missing(*not_found(self._missing, self._options))
        topics = set(self._options.topics or ()) & set(seen)
        self._report.tell_missing(self._options, seen=topics)


def _read(found: FoundMessages, progress: ProgressBars, options: SourceOptions) -> Rows:
    """Yield the messages that options select."""
    return found.rows(read_messages(options, found.columns, progress.splits))


def reads_of_id(text: str, options: SourceOptions) -> list[tuple[str, SourceOptions]]:
    """Return the kinds of id that a text may be, each with its read, in the order to try them.

    A client's id (UNIQ_KEY) may look like an offset message id, but the store hardly ever has a
    record with that message id.
    """
    by_key = ("unique key", replace(options, unique_keys=(text,)))
    if not is_message_id(text.upper()):
        return [by_key]
    return [("offset message id", replace(options, message_ids=(text.upper(),))), by_key]


def not_found(ids: Iterable[str], options: SourceOptions) -> Iterator[str]:
    """Yield a text for each id that a read did not find: no such message, or not selected."""
    everything = replace(options, **_UNSELECTED)
    for text in ids:
        for _, read in reads_of_id(text, everything):
            rows = list(islice(_rows_of_ids(read), _LOOKED_AT))
            if rows:
                places = dict.fromkeys(_why_not(row, options) for row in rows)
                yield f"id {text!r} was found, but {'; and '.join(places)}"
                break
        else:
            both = "neither as offset message id nor as unique key"
            what = both if is_message_id(text.upper()) else "as unique key"
            yield f"id {text!r} was not found, {what}"


def _rows_of_ids(options: SourceOptions) -> Iterator[dict[str, Any]]:
    for batch in read_messages(options, _COLUMNS, no_progress):
        yield from (row for row in rows_of(batch) if row["topic"] is not None)


def _why_not(row: dict[str, Any], options: SourceOptions) -> str:
    """Return the reasons why the options do not select a message."""
    topic, pattern, tag = row["topic"], options.topic_pattern, row["tags"]
    keys = row["keys"] or []
    at = round(row["store_timestamp"].timestamp() * 1000) if row["store_timestamp"] else None
    begin, end = options.starting_timestamp_ms, options.ending_timestamp_ms
    reasons = []
    if (options.topics is not None and topic not in options.topics) or (
        pattern and not re.fullmatch(pattern, topic)
    ):
        reasons.append(f"in topic {topic!r}")
    if options.queue_ids is not None and row["queue_id"] not in options.queue_ids:
        reasons.append(f"in queue {row['queue_id']}")
    if options.keys is not None and not set(options.keys) & set(keys):
        reasons.append(f"with keys {', '.join(map(repr, keys))}" if keys else "without keys")
    if options.tags is not None and tag not in options.tags:
        reasons.append("without a tag" if tag is None else f"with tag {tag!r}")
    if at is not None and not (at if begin is None else begin) <= at < (
        at + 1 if end is None else end
    ):
        reasons.append(f"stored at {moment(at)} UTC")
    sql = sql_option(options)
    if sql is not None and not sql.sql_filter.matches(dict(row["properties"])):
        reasons.append("with properties that --sql does not match")
    return ", ".join(reasons) or "another option excludes it"


def newest(
    options: SourceOptions, count: int, read: Read, window: int = _FIRST_WINDOW
) -> list[Row]:
    """Return the newest messages that the options select, newest first.

    Each log is read backwards, in windows of doubling size, until there are enough messages; for
    a topic, only the records that its queues name. Damage is skipped and reported.

    Parameters
    ----------
    read
        Returns the rows that options select, with ``PLACE_COLUMNS`` at least.
    """
    pinned = _pinned(options)
    found = []
    for path, held in parse_token(pinned.snapshot or "").items():
        of_store = replace(pinned, paths=(path,))
        rows: list[Row] = []
        stop, width = held.stop, window
        while stop > held.start and len(rows) < count:
            start = max(stop - width, held.start)
            part = read(_within(of_store, start, stop))
            rows += nlargest(count - len(rows), part, key=_place)
            stop, width = start, 2 * width
        found += rows
    return sorted(found, key=_age, reverse=True)[:count]


class Follower:
    """Returns messages as they come, as ``tail -f`` prints lines."""

    def __init__(self, options: SourceOptions, read: Read, note: Callable[[str], None]) -> None:
        self._options, self._read, self._note = options, read, note
        self._seen: dict[str, int] = {}

    def begin(self, count: int) -> list[Row]:
        """Return the newest messages, oldest first; messages stored later are new."""
        pinned = _pinned(self._options)
        self._seen = {path: end.stop for path, end in parse_token(pinned.snapshot or "").items()}
        return newest(pinned, count, self._read)[::-1] if count else []

    def look(self) -> list[Row]:
        """Return the messages stored since the last call, oldest first."""
        pinned = _pinned(self._options)
        rows: list[Row] = []
        for path, held in parse_token(pinned.snapshot or "").items():
            seen = self._seen.get(path, held.start)
            if held.start > seen:
                self._note(
                    f"{path}: {held.start - seen:,} bytes were deleted before they were read"
                )
            if held.stop < seen:
                self._note(
                    f"{path}: the log was cut at offset {held.stop}; reading continues from there"
                )
            begin = max(seen, held.start)
            try:
                rows += self._span(replace(pinned, paths=(path,)), begin, held.stop)
            except (DataLossError, FileVanishedError):
                continue  # the broker is deleting old files: the next call reports how many bytes
            self._seen[path] = held.stop
        return sorted(rows, key=_age)

    def _span(self, of_store: SourceOptions, begin: int, end: int) -> list[Row]:
        """Return all rows of a part of a log, or fail."""
        return list(self._read(_within(of_store, begin, end))) if begin < end else []


def _pinned(options: SourceOptions) -> SourceOptions:
    """Return options that pin the current ends of the logs, and skip damage.

    Damaged rows have no place among the newest; with ``PERMISSIVE`` the whole log would be read
    for them.
    """
    mode = "DROPMALFORMED" if options.mode == "PERMISSIVE" else options.mode
    return replace(options, mode=mode, snapshot=options.snapshot or make_token(options))


def _within(options: SourceOptions, start: int, stop: int) -> SourceOptions:
    bounds = (
        Comparison("commit_log_offset", ">=", (start,)),
        Comparison("commit_log_offset", "<", (stop,)),
    )
    return replace(options, where=options.where + bounds)


def _place(row: Row) -> tuple[int, int]:
    return row["commit_log_offset"], row["queue_offset"]


def _age(row: Row) -> tuple[Any, ...]:
    return (row["store_timestamp"] or _NEVER, row["store"], *_place(row))
