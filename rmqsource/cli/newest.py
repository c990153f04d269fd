"""The newest messages of a store, and those that come: read from the end of the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.errors import DataLossError
from rmqsource.options.where import Comparison
from rmqsource.scan.store_versions import make_token, parse_token
from store_core.errors import FileVanishedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions

    Row = dict[str, Any]
    Read = Callable[[SourceOptions], Iterator[Row]]

PLACE_COLUMNS = ("store_timestamp", "commit_log_offset", "queue_offset", "store")
"""What rows need so that they can be ordered."""

_FIRST_WINDOW = 1 << 20
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def newest(
    options: SourceOptions, count: int, read: Read, window: int = _FIRST_WINDOW
) -> list[Row]:
    """Return the newest messages that the options select, newest first.

    Each log is read backwards, in windows of doubling size, until there are enough; of a topic
    only what its queues name there. Damage is passed over, and told of.

    Parameters
    ----------
    options
        Of table ``messages``.
    count
        How many, over all stores.
    read
        Gives the rows that options select, with ``PLACE_COLUMNS`` at least.
    window
        Bytes of the first window.
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
    """Tells of messages as they come, as ``tail -f`` does of lines.

    Parameters
    ----------
    options
        Of table ``messages``; which messages.
    read
        As for `newest`.
    note
        Is told what happened to a log beside its growth.
    """

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
