# SPDX-License-Identifier: Apache-2.0
"""Writes a complete RocketMQ 5.x store of any size, at millions of messages a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from bench.index_writer import IndexWriter
from bench.store_content import (
    FIRST_TIMESTAMP_MS,
    QUEUES,
    RecordBuilder,
    Run,
    key_hashes,
    make_run,
    same_length_stop,
    tags_codes,
    topic_names,
)
from store_core.layout import (
    BLANK_MAGIC_CODE,
    BLANK_RECORD_BYTES,
    CHECKPOINT,
    CHECKPOINT_FILE,
    CHECKPOINT_FILE_BYTES,
    COMMIT_LOG_DIR,
    CONFIG_DIR,
    CONSUME_QUEUE_DIR,
    CQ_UNIT,
    INDEX_DIR,
    LOCK_FILE,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    import numpy.typing as npt

RUN_BYTES = 16 << 20
"""Bytes of records that are encoded together."""


def make_store(  # noqa: PLR0913 (RocketMQ's sizes by name)
    root: Path,
    *,
    messages: int,
    body_bytes: int,
    topics: int = 4,
    seed: int = 1,
    segment_bytes: int = 1 << 30,
    units_per_queue_file: int = 300_000,
    max_hash_slot_num: int = 5_000_000,
    max_index_num: int = 20_000_000,
) -> None:
    """Write a store as a 5.x broker leaves it after its first run and a clean stop.

    One in a hundred messages goes to the small topic, one in a thousand to the topic a tenth of
    its size, the others to ``topics`` topics in turn, four queues each. Files have their full
    length and are sparse. ``root`` must not exist.
    """
    root.mkdir(parents=True)
    content = RecordBuilder(body_bytes, topics, seed)
    log = _SegmentWriter(root / COMMIT_LOG_DIR, segment_bytes)
    queues = _QueueWriter(len(topic_names(topics)))
    index = IndexWriter(root / INDEX_DIR, max_hash_slot_num, max_index_num)
    at = 0
    while at < messages:
        size = content.record_bytes(at)
        count = min(messages, same_length_stop(at)) - at
        count = min(count, max(1, RUN_BYTES // size))
        count, first_offset = log.room_for(size, count)
        run = make_run(at, count, topics)
        offsets = first_offset + size * np.arange(count, dtype=np.int64)
        log.append(content.encode(run, offsets, queues.put(run, offsets, size)))
        index.put(
            key_hashes(run, topics).ravel(),
            np.repeat(offsets, 2),
            np.repeat(run.store_timestamp, 2),
        )
        at += count
    log.close()
    index.close()
    queues.write(root / CONSUME_QUEUE_DIR, topic_names(topics), units_per_queue_file)
    last_ms = FIRST_TIMESTAMP_MS + messages - 1 if messages else 0
    write_small_files(root, last_ms, index.full_end_timestamp, topic_names(topics))


class _SegmentWriter:
    def __init__(self, directory: Path, segment_bytes: int) -> None:
        directory.mkdir()
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._file: IO[bytes] | None = None
        self._from_offset = -segment_bytes
        self._wrote = segment_bytes

    def room_for(self, record_bytes: int, count: int) -> tuple[int, int]:
        """Return how many of ``count`` records fit and the offset of the first.

        A record must leave room for a blank one (``CommitLog`` END_FILE_MIN_BLANK_LENGTH).
        """
        fit = (self._segment_bytes - self._wrote - BLANK_RECORD_BYTES) // record_bytes
        if fit < 1:
            fit = (self._segment_bytes - BLANK_RECORD_BYTES) // record_bytes
            if fit < 1:
                raise ValueError("a segment is shorter than one record")
            self._roll()
        return min(fit, count), self._from_offset + self._wrote

    def append(self, records: npt.NDArray[np.void]) -> None:
        assert self._file is not None
        self._file.write(memoryview(records.view(np.uint8)))
        self._wrote += records.nbytes

    def _roll(self) -> None:
        if self._file is not None:
            rest = self._segment_bytes - self._wrote
            self._file.write(RECORD_PREFIX.pack(total_size=rest, magic_code=BLANK_MAGIC_CODE))
        self.close()
        self._from_offset += self._segment_bytes
        self._file = (self._directory / f"{self._from_offset:020d}").open("xb")
        self._file.truncate(self._segment_bytes)
        self._wrote = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _QueueWriter:
    """Collects the units of all queues (20 bytes a message) and writes them at the end."""

    def __init__(self, topics: int) -> None:
        self._units: list[list[bytes]] = [[] for _ in range(topics * QUEUES)]
        self._counts = np.zeros(len(self._units), np.int64)
        self._codes = tags_codes()

    def put(
        self, run: Run, commit_log_offset: npt.NDArray[np.int64], record_bytes: int
    ) -> npt.NDArray[np.int64]:
        """Add the units of a run; return the queue offsets of its messages."""
        units = np.empty(len(run.number), CQ_UNIT.dtype)
        units["commit_log_offset"] = commit_log_offset
        units["message_size"] = record_bytes
        units["tags_code"] = self._codes[run.tag]
        queue = run.topic * QUEUES + run.queue_id
        order = np.argsort(queue, kind="stable")
        counts = np.bincount(queue, minlength=len(self._units))
        stops = np.cumsum(counts)
        for number in np.flatnonzero(counts):
            mine = order[stops[number] - counts[number] : stops[number]]
            self._units[number].append(units[mine].tobytes())
        queue_offset = np.empty(len(queue), np.int64)
        rank = np.arange(len(queue)) - np.repeat(stops - counts, counts)
        queue_offset[order] = rank + np.repeat(self._counts, counts)
        self._counts += counts
        return queue_offset

    def write(self, directory: Path, names: list[str], units_per_file: int) -> None:
        file_bytes = units_per_file * CQ_UNIT.size
        for number, parts in enumerate(self._units):
            if not parts:
                continue
            queue = directory / names[number // QUEUES] / str(number % QUEUES)
            queue.mkdir(parents=True)
            units = b"".join(parts)
            for start in range(0, len(units), file_bytes):
                with (queue / f"{start:020d}").open("xb") as file:
                    file.write(units[start : start + file_bytes])
                    file.truncate(file_bytes)


def write_small_files(
    root: Path,
    last_timestamp: int,
    full_index_timestamp: int,
    names: list[str],
    queues: int = QUEUES,
) -> None:
    """Write checkpoint, lock file and ``topics.json`` of a store that was stopped cleanly.

    Parameters
    ----------
    root
        The store.
    last_timestamp, full_index_timestamp
        Store times (ms) of the last message, and of the last one in a full index file.
    names, queues
        The topics, and how many queues each has.
    """
    checkpoint = CHECKPOINT.pack(
        physic_msg_timestamp=last_timestamp,
        logics_msg_timestamp=last_timestamp,
        index_msg_timestamp=full_index_timestamp,
        master_flushed_offset=0,
        confirm_phy_offset=0,
        logics_physical_offset=0,
    )
    (root / CHECKPOINT_FILE).write_bytes(checkpoint.ljust(CHECKPOINT_FILE_BYTES, b"\0"))
    (root / "abort.bak").touch()
    (root / LOCK_FILE).write_bytes(b"lock")
    (root / CONFIG_DIR).mkdir()
    topics = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name in names
    }
    version = {"counter": len(names), "stateVersion": 0, "timestamp": FIRST_TIMESTAMP_MS}
    text = json.dumps(
        {"dataVersion": version, "topicConfigTable": topics}, indent="\t", separators=(",", ":")
    )
    (root / CONFIG_DIR / "topics.json").write_text(text, encoding="utf-8")
