# SPDX-License-Identifier: Apache-2.0
"""Read everything of a store through every structure, and check what comes back after damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from store_core.codec.crc32 import body_crc_failures
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.message_codec import StoredRecord
from store_core.codec.record_frames import RecordFrames
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import header_layout
from store_core.log.commit_log import scan_log
from store_core.log.log_scan import BatchSizer, Gap
from store_core.queue.queue_range import QueueRange
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.store_factory import StoreFactory

CONFIG = MessageStoreConfig()
KEYS = [("TopicA", "k7"), ("TopicA", "all"), ("TopicB", "k9"), ("TopicB", "none")]
_MOST_PARTS = 10_000
COLUMNS = [name for name in message_schema().names if not name.endswith("_timestamp")]


def scan(view: StoreSnapshot, rows: int = 7) -> Iterator[RecordFrames | Gap]:
    """Yield the parts of the whole log; batches are small, so that there are many."""
    start, sizer = max(view.min_phy_offset, 0), BatchSizer(rows, 2000)
    yield from scan_log(view.log, start, view.end_offset, sizer=sizer)


def rows_of(frames: RecordFrames, check_crc: bool = False) -> list[dict[str, Any]]:
    """Return rows as dicts of all columns; rows whose body has a wrong CRC are left out."""
    columns = MessageColumns(frames)
    values = {name: columns.column(name).to_pylist() for name in COLUMNS}
    for name in ("born_timestamp", "store_timestamp"):
        values[name] = frames.column(name).tolist()
    wrong = {failure.row for failure in body_crc_failures(frames)} if check_crc else set()
    return [
        {name: column[row] for name, column in values.items()}
        for row in range(len(frames))
        if row not in wrong
    ]


def read_everything(
    root: object, check_crc: bool = False, directory: StoreDirectory | None = None
) -> tuple[list[dict[str, Any]], list[Gap], StoreError | None]:
    """Return the rows and gaps of a store up to its first store error, and that error.

    Any other exception is a fault of the reader and is not caught.
    """
    rows: list[dict[str, Any]] = []
    gaps: list[Gap] = []
    try:
        with StoreSnapshot(directory or StoreDirectory(str(root)), CONFIG) as view:
            for number, part in enumerate(scan(view, rows=64)):
                assert number < _MOST_PARTS, "the reader does not end"
                if isinstance(part, Gap):
                    gaps.append(part)
                else:
                    rows += rows_of(part, check_crc)
    except StoreError as err:
        return rows, gaps, err
    return rows, gaps, None


def read_structures(
    root: object,
    keys: list[tuple[str, str]],
    ranges: Mapping[tuple[str, int], QueueRange] | None = None,
) -> list[str]:
    """Use queues, index and configuration; return the names of the store errors.

    No queue may have more than ``ranges`` says.
    """
    errors: list[str] = []
    try:
        view = StoreSnapshot(root, CONFIG)
    except StoreError as err:
        return [type(err).__name__]
    with view:
        for use in (
            lambda: _use_queues(view, ranges or {}),
            lambda: _use_topics(view),
            lambda: [_use_index(view, topic, key) for topic, key in keys],
        ):
            try:
                use()
            except StoreError as err:
                errors.append(type(err).__name__)
    return errors


def _use_queues(view: StoreSnapshot, ranges: Mapping[tuple[str, int], QueueRange]) -> None:
    for topic, queue_id in view.queue_paths:
        found = view.queue_range(topic, queue_id)
        assert found.max_offset <= ranges.get((topic, queue_id), found).max_offset
        assert found.min_offset <= found.max_offset
        queue = view.consume_queue(topic, queue_id)
        assert queue is not None
        queue.read_units(found.min_offset, found.max_offset)
    view.last_dispatched()


def _use_topics(view: StoreSnapshot) -> None:
    assert view.topic_configs is None or isinstance(view.topic_configs, dict)


def _use_index(view: StoreSnapshot, topic: str, key: str) -> None:
    minimum = max(view.min_phy_offset, 0)
    lookup = view.index.lookup(topic, [key], minimum, view.end_offset, view.store_timestamp_at)
    offsets = lookup.commit_log_offsets.tolist()
    assert offsets == sorted(set(offsets))
    for offset in offsets:
        view.log.is_record(offset, view.end_offset)
    view.index.query_offset(topic, key, 64, 0, 2**62)


class Sweep:
    """A store that is damaged in one place at a time, and the results of each case.

    Attributes
    ----------
    cases, errors, undetected
        Cases run; cases by class of the error; changed bytes that no check saw, by field.
    """

    def __init__(self, factory: StoreFactory) -> None:
        self.factory = factory
        self.root = factory.write()
        self.originals = {row["commit_log_offset"]: row for row in read_everything(self.root)[0]}
        assert len(self.originals) == len(factory.records)
        self.files = {p: p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file()}
        with StoreSnapshot(self.root, CONFIG) as view:
            self.ranges = {key: view.queue_range(*key) for key in view.queue_paths}
        self.cases = 0
        self.errors: Counter[str] = Counter()
        self.undetected: Counter[str] = Counter()

    def segments(self) -> list[Path]:
        """Return the files of the commit log."""
        return [path for path in self.files if path.parent.name == "commitlog"]

    def others(self) -> list[Path]:
        """Return all other files."""
        return [path for path in self.files if path.parent.name != "commitlog"]

    def truncate_segment(self, path: Path, length: int) -> None:
        """Cut a segment; records before the cut come back, and nothing that never was there."""
        end = int(path.name) + length
        self._write(path, self.files[path][:length])
        segment = range(int(path.name), int(path.name) + len(self.files[path]))
        kept = {
            r.commit_log_offset
            for r in self.factory.records
            if r.commit_log_offset not in segment or r.commit_log_offset + r.total_size <= end
        }
        self._judge_rows(path, kept, hit=None)

    def change_segment(self, path: Path, at: int, data: bytes) -> None:
        """Overwrite bytes of a segment; every record that they do not touch comes back."""
        content = bytearray(self.files[path])
        content[at : at + len(data)] = data
        self._write(path, bytes(content))
        start, stop = int(path.name) + at, int(path.name) + at + len(data)
        hit = [
            r
            for r in self.factory.records
            if r.commit_log_offset < stop and r.commit_log_offset + r.total_size > start
        ]
        kept = self.originals.keys() - {r.commit_log_offset for r in hit}
        self._judge_rows(path, kept, hit=(hit, start))

    def change_other(self, path: Path, content: bytes) -> None:
        """Replace a file outside the log: the log reads as before, the rest is right or refused."""
        self._write(path, content)
        rows, gaps, error = read_everything(self.root)
        if error is None:
            assert [row["commit_log_offset"] for row in rows] == list(self.originals), path
            assert gaps == []
        found = read_structures(self.root, KEYS, self.ranges)
        self._done(path, type(error).__name__ if error else ", ".join(found))

    def _judge_rows(self, path: Path, kept: Collection[int], hit: Any) -> None:
        rows, gaps, error = read_everything(self.root)
        if error is None:
            self._judge_complete(rows, gaps, kept, hit)
        for row in read_everything(self.root, check_crc=True)[0]:
            original = self.originals.get(row["commit_log_offset"])
            assert original is not None
            assert row["body"] in (None, original["body"])
        self._done(path, type(error).__name__ if error else "")

    def _judge_complete(
        self, rows: list[dict[str, Any]], gaps: list[Gap], kept: Collection[int], hit: Any
    ) -> None:
        found = {row["commit_log_offset"]: row for row in rows}
        assert len(found) == len(rows)
        for offset in kept:
            assert found.get(offset) == self.originals[offset]
        for gap in gaps:
            inside = range(gap.commit_log_offset, gap.commit_log_offset + gap.bytes_lost)
            assert not any(offset in inside for offset in kept)
        for offset in found.keys() - set(kept):
            assert hit is not None
            assert offset in {record.commit_log_offset for record in hit[0]}
            if found[offset] != self.originals[offset]:
                self.undetected[field_at(hit[0][0], hit[1])] += 1

    def _write(self, path: Path, content: bytes) -> None:
        path.unlink()  # a new file: a map of the old one may be in use
        path.write_bytes(content)

    def _done(self, path: Path, error: str) -> None:
        self.cases += 1
        self.errors[error or "none"] += 1
        self._write(path, self.files[path])


def field_at(record: StoredRecord, offset: int) -> str:
    """Return the field of a record to which an offset of the log belongs."""
    layout = header_layout(record.sys_flag)
    at = offset - record.commit_log_offset
    if at < layout.size:
        return [name for name in layout.dtype.names or () if layout.at(name) <= at][-1]
    at -= layout.size
    parts = [("body", len(record.body)), ("topic_length", 1), ("topic", len(record.topic_bytes))]
    for name, length in [*parts, ("properties_length", 2)]:
        if at < length:
            return name
        at -= length
    return "properties"
