"""Files of a store, and what is known of each without reading it through."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import NO_RECORD
from store_core.errors import StoreFormatError
from store_core.layout.index import index_file_bytes
from store_core.layout.store_paths import COMMIT_LOG_DIR, INDEX_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.options.source_options import SourceOptions
    from store_core.files.store_directory import FileEntry
    from store_core.store_snapshot import StoreSnapshot

_SEGMENT_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_MAX_OFFSET = 2**63 - 1
_DEEPEST = 2
"""Directories of queues lie below a topic: ``<topic>/<queue id>``."""


class StoreFile(NamedTuple):
    """One row of the table; None is not known.

    Store times come from the header (``first_ms``, ``last_ms``) or from records of the log.
    """

    kind: str
    path: str
    from_offset: int | None
    file_size: int
    used_bytes: int | None = None
    messages: int | None = None
    first_record: int = NO_RECORD
    last_record: int = NO_RECORD
    first_ms: int | None = None
    last_ms: int | None = None


def numbered_files(kind: str, entries: Sequence[FileEntry]) -> list[StoreFile]:
    """Return the files of a listing whose names are byte offsets."""
    return [
        StoreFile(kind, entry.path, int(entry.name), entry.size)
        for entry in entries
        if not entry.is_dir
        and _SEGMENT_NAME.fullmatch(entry.name)
        and int(entry.name) <= _MAX_OFFSET
    ]


def commit_log_files(snapshot: StoreSnapshot) -> list[StoreFile]:
    """Return the segments of the log, of all its directories."""
    files = []
    for segment in snapshot.log.segments:
        used = min(max(snapshot.end_offset - segment.from_offset, 0), segment.size)
        file = StoreFile(COMMIT_LOG_DIR, segment.path, segment.from_offset, segment.size, used)
        first = segment.from_offset + segment.header_bytes
        files.append(file._replace(first_record=first if used else NO_RECORD))
    return files


def index_files(snapshot: StoreSnapshot, options: SourceOptions) -> list[StoreFile]:
    """Return the index files, in the order of their names."""
    directory = snapshot.directory
    lengths = {e.path: e.size for e in directory.list(directory.resolve(INDEX_DIR)) if not e.is_dir}
    files = [
        StoreFile(INDEX_DIR, path, None, lengths.get(path, 0))
        for path, _ in snapshot.index.unusable
    ]
    for unusable in snapshot.index.unusable:
        with skip_damaged("the content of an index file", options):
            raise StoreFormatError(unusable.reason, unusable.path)
    slots = snapshot.index.sizes[0] if snapshot.index.sizes else 0
    for path, header in snapshot.index.files:
        has_entries = header.entry_count > 0
        file = StoreFile(
            INDEX_DIR,
            path,
            None,
            lengths.get(path, 0),
            used_bytes=index_file_bytes(slots, header.index_count),
            first_ms=header.begin_timestamp if has_entries else None,
            last_ms=header.end_timestamp if has_entries else None,
        )
        files.append(file)
    return sorted(files, key=lambda file: file.path)


def other_files(snapshot: StoreSnapshot, *place: str) -> Iterator[StoreFile]:
    """Yield the numbered files in and below a directory, of which only names are looked at."""
    directory = snapshot.directory
    root = directory.stat(directory.resolve(*place))
    pending = [(root.path, 0)] if root is not None and root.is_dir else []
    while pending:
        path, depth = pending.pop()
        entries = directory.list(path)
        yield from numbered_files(place[-1], entries)
        if depth < _DEEPEST:
            pending += [(e.path, depth + 1) for e in reversed(entries) if e.is_dir]
