"""How ``rocketmq-store messages`` shows the rows of one read."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rmqsource.cli.output import Display, Shape, row_writer, write_record
from rmqsource.cli.read import (
    GREP_COLUMNS,
    MESSAGE_COLUMNS,
    WrongUseError,
    read_messages,
    rows_of,
)
from rmqsource.cli.report import progress_bars
from rmqsource.errors import DataLossError
from rmqsource.explore.trace_events import moment
from rmqsource.options.option_values import is_message_id
from rmqsource.options.source_options import sql_option
from rmqsource.options.where import Comparison
from rmqsource.scan.read_columns import no_progress
from rmqsource.scan.store_versions import make_token, parse_token
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pc
from store_core.errors import FileVanishedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.cli.output import RowWriter
    from rmqsource.cli.read import Grep
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns

    Rows = Iterator[dict[str, Any]]
    Row = dict[str, Any]
    Read = Callable[[SourceOptions], Iterator[Row]]

SHAPE = Shape(
    ("store_timestamp", "topic", "queue_id", "queue_offset", "message_id", "tags", "keys", "body"),
    MESSAGE_COLUMNS,
    drop=("queue_offset", "queue_id", "tags", "keys", "body", "topic"),
)
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
"""What rows need so that they can be ordered."""
_FIRST_WINDOW = 1 << 20
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


class MessageChoice(NamedTuple):
    """Which of the selected messages to show."""

    ids: Sequence[str] = ()
    limit: int | None = None
    last: int | None = None
    follow: bool = False
    grep: Grep | None = None

    def check(self, options: SourceOptions) -> None:
        """Raise `WrongUseError` for what cannot go together."""
        for name in ("unique_keys", "message_ids"):
            if self.ids and getattr(options, name):
                raise WrongUseError("--id: is given by --option too; give one of them")
        for flag, other, is_both in (
            ("--last", "--id", self.last is not None and self.ids),
            ("--follow", "--id", self.follow and self.ids),
            ("--last", "--limit", self.last is not None and self.limit is not None),
            ("--follow", "--limit", self.follow and self.limit is not None),
            ("--follow", "--option snapshot", self.follow and options.snapshot),
        ):
            if is_both:
                raise WrongUseError(f"{flag}: cannot be given together with {other}; drop one")


def show_messages(
    options: SourceOptions, wanted: MessageChoice, display: Display, limit: int, report: Report
) -> None:
    """Write the messages that the options select, and that have one of the ids if there are any.

    Rows of damage go to the report, as does what was asked for and is not there.
    """
    wanted.check(options)
    writer = MessageWriter(display, limit, report, in_full=bool(wanted.ids))
    if wanted.follow:
        _follow(options, wanted, writer.rows, report)
    missing: list[str] = []
    with progress_bars() as progress:
        read = _Read(writer.rows.columns, progress, report, wanted.grep)
        writer.write(_rows(read, options, wanted, missing), progress)
    writer.close()
    report.missing(*not_found(missing, options))
    report.tell_missing(options, seen=set(options.topics or ()) & writer.topics)


class MessageWriter:
    """Writes rows of messages, so many at most, and tells of what is left out.

    Parameters
    ----------
    limit
        Most rows; 0: all.
    """

    def __init__(
        self, display: Display, limit: int, report: Report, *, in_full: bool = False
    ) -> None:
        self._display, self._limit, self._report = display, limit, report
        self._in_full = display.is_table and in_full
        shape = SHAPE._replace(shown=MESSAGE_COLUMNS) if self._in_full else SHAPE
        self.rows = row_writer(display, shape)
        self.topics: set[str] = set()
        self._has_more = False

    def write(self, rows: Rows, progress: ProgressBars) -> None:
        """Write rows until there are enough."""
        for row in rows:
            if self._limit and self._report.rows == self._limit:
                self._has_more = True
                return
            self._report.rows += 1
            self.topics.add(row["topic"])
            if self._in_full or (sys.stdout.isatty() and not self._display.is_table):
                progress.stop()
            if self._in_full:
                write_record({name: row[name] for name in MESSAGE_COLUMNS}, self._display)
            else:
                self.rows.write(row)

    def close(self) -> None:
        """Write what was held back, and say if that is not all, or nothing."""
        self.rows.close()
        if self._has_more:
            self._report.note(f"there is more than these {self._limit}: --limit 0 shows all")
        self._report.nothing("no message matches")


def _rows(read: _Read, options: SourceOptions, wanted: MessageChoice, missing: list[str]) -> Rows:
    if wanted.last is not None:
        return iter(newest(options, wanted.last, read.of))
    return read.of_ids(wanted.ids, options, missing) if wanted.ids else read.of(options)


def _follow(
    options: SourceOptions, wanted: MessageChoice, writer: RowWriter, report: Report
) -> None:
    """Show the newest messages, oldest first, and then what comes, until Ctrl-C."""
    report.tell_missing(options)
    with progress_bars() as progress:
        read = _Read(writer.columns, progress, report, wanted.grep)
        follower = Follower(options, read.of, report.note)
        rows = follower.begin(_FOLLOWED if wanted.last is None else wanted.last)
    follow(follower.look, rows, writer, lambda: time.sleep(_LOOK_SECONDS))


def follow(
    look: Callable[[], list[dict[str, Any]]],
    rows: list[dict[str, Any]],
    writer: RowWriter,
    wait: Callable[[], None],
) -> None:
    """Write rows as they come; ends when ``wait`` raises."""
    while True:
        for row in rows:
            writer.write(row)
        writer.flush()
        wait()
        rows = look()


class FoundMessages:
    """Rows of what was read, without what is no message: that is told."""

    def __init__(self, columns: Sequence[str], report: Report, grep: Grep | None = None) -> None:
        needed = ("topic", "store_timestamp", "commit_log_offset", "queue_offset", "store")
        searched = GREP_COLUMNS if grep else ()
        self.columns = tuple(dict.fromkeys((*columns, *needed, *searched)))
        self._report, self._grep = report, grep

    def rows(self, batches: Iterable[Columns]) -> Rows:
        """Yield the messages of batches."""
        for batch in batches:
            for row in rows_of(self._searched(batch)):
                corrupt = row.pop(CORRUPT_RECORD.name, None)
                if corrupt is not None:
                    self._report.damage(corrupt)
                else:
                    yield row

    def _searched(self, batch: Columns) -> Columns:
        """Return the rows in which the pattern is found, and those of damage."""
        if self._grep is None:
            return batch
        keep = self._grep.mask(batch)
        damage = batch.get(CORRUPT_RECORD.name)
        if damage is not None:
            keep = pc.or_(keep, pc.is_valid(damage))
        return {name: column.filter(keep) for name, column in batch.items()}


class _Read(FoundMessages):
    """Reads messages of files."""

    def __init__(
        self,
        columns: Sequence[str],
        progress: ProgressBars,
        report: Report,
        grep: Grep | None = None,
    ) -> None:
        super().__init__(columns, report, grep)
        self._progress = progress

    def of(self, options: SourceOptions) -> Rows:
        """Yield what the options select."""
        return self.rows(read_messages(options, self.columns, self._progress.splits))

    def of_ids(self, ids: Sequence[str], options: SourceOptions, missing: list[str]) -> Rows:
        """Yield the messages of each id, every message once; note ids of which there is none."""
        shown = set()
        for text in ids:
            for kind, read in reads_of_id(text, options):
                found = 0
                for row in self.of(read):
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
                missing.append(text)


def reads_of_id(text: str, options: SourceOptions) -> list[tuple[str, SourceOptions]]:
    """Return what an id may be, and the read that finds it so, in the order to try them.

    A client's id (UNIQ_KEY) can have the form of an offset message id, but hardly ever names a
    record of the store that has this id.
    """
    by_key = ("unique key", replace(options, unique_keys=(text,)))
    if not is_message_id(text.upper()):
        return [by_key]
    return [("offset message id", replace(options, message_ids=(text.upper(),))), by_key]


def not_found(ids: Iterable[str], options: SourceOptions) -> Iterator[str]:
    """Yield what to say of ids that a read did not find: there is none, or it is not selected."""
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
    """Say what of a message the options do not select."""
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
        reasons.append("with other properties than --sql asks for")
    return ", ".join(reasons) or "another option leaves it out"


def newest(
    options: SourceOptions, count: int, read: Read, window: int = _FIRST_WINDOW
) -> list[Row]:
    """Return the newest messages that the options select, newest first.

    Each log is read backwards, in windows of doubling size, until there are enough; of a topic
    only what its queues name there. Damage is passed over, and told of.

    Parameters
    ----------
    read
        Gives the rows that options select, with ``PLACE_COLUMNS`` at least.
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
    """Tells of messages as they come, as ``tail -f`` does of lines."""

    def __init__(self, options: SourceOptions, read: Read, note: Callable[[str], None]) -> None:
        self._options, self._read, self._note = options, read, note
        self._seen: dict[str, int] = {}

    def begin(self, count: int) -> list[Row]:
        """Return the newest messages, oldest first; from here on others are new."""
        pinned = _pinned(self._options)
        self._seen = {path: end.stop for path, end in parse_token(pinned.snapshot or "").items()}
        return newest(pinned, count, self._read)[::-1] if count else []

    def look(self) -> list[Row]:
        """Return what came since the last look, oldest first."""
        pinned = _pinned(self._options)
        rows: list[Row] = []
        for path, held in parse_token(pinned.snapshot or "").items():
            seen = self._seen.get(path, held.start)
            if held.start > seen:
                self._note(
                    f"{path}: {held.start - seen:,} bytes were deleted before they were read"
                )
            if held.stop < seen:
                self._note(f"{path}: the log was cut at offset {held.stop}, and goes on from there")
            begin = max(seen, held.start)
            try:
                rows += self._span(replace(pinned, paths=(path,)), begin, held.stop)
            except (DataLossError, FileVanishedError):
                continue  # the broker deletes old files meanwhile: the next look tells how many
            self._seen[path] = held.stop
        return sorted(rows, key=_age)

    def _span(self, of_store: SourceOptions, begin: int, end: int) -> list[Row]:
        """Return the rows of a part of a log; all of them or an error."""
        return list(self._read(_within(of_store, begin, end))) if begin < end else []


def _pinned(options: SourceOptions) -> SourceOptions:
    """Return options that pin where the logs end now, and pass over damage.

    Rows of damage have no place among the newest; with ``PERMISSIVE`` all of a log would be read
    to find them.
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
