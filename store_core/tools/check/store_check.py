# SPDX-License-Identifier: Apache-2.0
"""Check a whole store without changing it."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

from store_core.config.config_files import QUEUE_TYPE_ATTRIBUTE
from store_core.errors import CorruptRecordError, StoreError, StoreFormatError, StoreReadError
from store_core.files.segment_list import load_segments
from store_core.layout import (
    CHECKPOINT_FILE,
    CHECKPOINT_FILE_BYTES,
    LMQ_PREFIX,
)
from store_core.log.commit_log import commit_log_directories
from store_core.queue.queue_directories import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    list_consume_queues,
)
from store_core.queue.queue_range import queue_range
from store_core.state.store_state import StoreState, queue_database
from store_core.tools.check.compaction_check import check_compaction
from store_core.tools.check.config_check import check_config, check_consumer_offsets
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import CheckCounts, CheckReport, Findings, unread
from store_core.tools.check.index_check import IndexCheck
from store_core.tools.check.log_check import LogCheck, check_log_end, check_log_is_there
from store_core.tools.check.queue_check import QueueCheck
from store_core.tools.check.timer_check import check_timer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.store_directory import FileEntry
    from store_core.progress import StageProgress
    from store_core.snapshot.store_snapshot import StoreSnapshot

_UNREADABLE = (CorruptRecordError, StoreFormatError, StoreReadError)
_NUMBER = re.compile(r"[0-9]{1,19}|[0-9]{20}", re.ASCII)
_SEGMENT_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_CLOCK_SLACK_MS = 600_000


def check_store(snapshot: StoreSnapshot, progress: StageProgress | None = None) -> CheckReport:
    """Verify a whole store: log, queues, index, compacted logs, timer, files. Reads only.

    It checks every record with its CRCs, every byte of the log's files, every queue unit against
    its record and every record against its unit, every index entry against the record's keys and
    the other way round, every unit and record of compacted logs, and the messages waiting in the
    timer. A live store is checked up to the snapshot's end.

    Memory is bounded: half a million rows of queue columns (30 MB), one batch of the log (32 MB),
    5 bytes an entry of the index file being walked, a few numbers a queue, 62 bytes a unit of batch
    queues; mapped files come on top, as the operating system decides.

    Parameters
    ----------
    progress
        See `StageProgress`; amounts of the log are bytes.

    Raises
    ------
    StoreConfigError
        Configured sizes contradict those that the files prove.
    StoreReadError
        A directory cannot be read.
    """
    tell = progress or (lambda _what, _done, _all: None)
    findings, counts = Findings(), CheckCounts()
    notes = snapshot.kind.unread()
    findings.add(FindingKind.NOT_READ, count=len(notes), examples=notes)
    check_files(snapshot, findings)
    check_config(snapshot.directory, findings)
    dispatched_end = _dispatched_end(snapshot)
    log = LogCheck(snapshot, findings, counts)
    queues = QueueCheck(snapshot, dispatched_end, log, findings, counts)
    begin = max(snapshot.min_phy_offset, 0)
    total = max(snapshot.end_offset - begin, 0)
    with closing(IndexCheck(snapshot, log, findings, counts)) as index:
        index.files(lambda done, total: tell("index files", done, total))
        for frames in log.frames():
            queues.check(frames)
            index.check(frames)
            tell("log", int(frames.column("commit_log_offset")[-1]) - begin, total)
        tell("log", total, total)
        check_log_is_there(snapshot, counts, findings)
        check_log_end(snapshot, findings)
        queues.finish()
        index.finish()
    check_compaction(snapshot, findings, counts)
    check_timer(snapshot, findings, counts)
    check_consumer_offsets(snapshot, findings)
    if snapshot.lost_end is None:  # else the checkpoint is right, and the log is not
        check_checkpoint(snapshot, log.last_store_timestamp, findings)
    return CheckReport(
        store=snapshot.directory.uri,
        state=snapshot.state.value,
        log_begin=begin,
        log_end=snapshot.end_offset,
        log_ends_because=snapshot.end_reason,
        counts=counts,
        findings=findings.sorted(),
    )


def _dispatched_end(snapshot: StoreSnapshot) -> int:
    """Return the end of the last record that is in any queue; damaged queues are ignored.

    Records are dispatched in log order, so all before it were dispatched. The check opens the
    queues again later, when a live broker may have dispatched more.
    """
    end = 0
    for (topic, queue_id), path in snapshot.queue_paths.items():
        try:
            queue = snapshot.open_queue(topic, queue_id, path)
            end = max(end, queue_range(queue, snapshot.log, snapshot.end_offset).last_end)
        except _UNREADABLE:
            continue
    for key in snapshot.batch_queue_paths:
        try:
            units = snapshot.batch_units(*key)
        except _UNREADABLE:
            continue
        if units is None:
            continue
        ends = units["commit_log_offset"] + units["message_size"]
        end = max([end, *ends[ends <= snapshot.end_offset][-1:].tolist()])
    return end


def check_files(snapshot: StoreSnapshot, findings: Findings) -> None:
    """Report files that would stop a broker, and where topics.json contradicts the queues.

    A broker treats every file in these directories as a segment: ``MappedFileQueue.doLoad`` fails
    on a wrong length, ``DefaultMappedFile.init`` on a name that is not a number (RocketMQ 5.3.3).
    """
    directory, config = snapshot.directory, snapshot.config
    log_files = []
    places = [*commit_log_directories(directory, config), *snapshot.dledger_directories]
    for path in places:
        entries = directory.list(path)
        _strange_names(entries, findings)
        log_files += entries
    nominal = snapshot.log.segments.file_size
    _sizes(sorted(log_files), nominal, FindingKind.SEGMENT_SIZE, findings)
    kinds = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)
    for kind in kinds if not queue_database(directory) else ():
        for path in list_consume_queues(directory, kind).queues.values():
            entries = directory.list(path)
            _strange_names(entries, findings)
            try:
                segments = load_segments(
                    entries,
                    file_size=kind.configured_size(config),
                    unit_bytes=kind.unit_bytes,
                    option="the file size",
                )
            except StoreError as err:
                findings.add(unread(err, FindingKind.QUEUE_UNREADABLE), path, examples=[str(err)])
                continue
            _sizes(entries, segments.file_size, FindingKind.QUEUE_FILE_SIZE, findings)
    _state(snapshot, findings)
    _topics(snapshot, findings)


def _strange_names(entries: Sequence[FileEntry], findings: Findings) -> None:
    for entry in entries:
        if not entry.is_dir and not _NUMBER.fullmatch(entry.name):
            findings.add(FindingKind.STRANGE_FILE, entry.path, examples=[entry.name])


def _sizes(
    entries: Sequence[FileEntry], nominal: int, kind: FindingKind, findings: Findings
) -> None:
    files = [e for e in entries if not e.is_dir and _SEGMENT_NAME.fullmatch(e.name)]
    for entry in files:
        if entry.size == nominal or (entry.size == 0 and entry is files[-1]):
            continue  # an empty last file is deleted by the broker
        text = f"{entry.size} bytes; expected {nominal}"
        findings.add(kind, entry.path, position=entry.size, examples=[text])


def _state(snapshot: StoreSnapshot, findings: Findings) -> None:
    if snapshot.state is StoreState.CRASHED:
        findings.add(
            FindingKind.NOT_STOPPED,
            examples=["the file abort exists, and no process holds the file lock"],
        )


def _topics(snapshot: StoreSnapshot, findings: Findings) -> None:
    configs = snapshot.topic_configs
    if not configs:
        return
    unknown = set()
    for is_batch, paths in ((False, snapshot.queue_paths), (True, snapshot.batch_queue_paths)):
        for topic in sorted({topic for topic, _ in paths}):
            config = configs.get(topic)
            if config is None:
                unknown.add(topic)
                continue
            if config.has_batch_queues != is_batch:
                text = f"{QUEUE_TYPE_ATTRIBUTE}={config.attributes.get(QUEUE_TYPE_ATTRIBUTE)}"
                findings.add(FindingKind.QUEUE_TYPE, topic, examples=[text])
    shown = sorted(topic for topic in unknown if not topic.startswith(LMQ_PREFIX))
    findings.add(FindingKind.TOPIC_UNKNOWN, count=len(shown), examples=shown)


def check_checkpoint(
    snapshot: StoreSnapshot, last_store_timestamp: int, findings: Findings
) -> None:
    """Report a checkpoint that is missing or contradicts the log.

    Parameters
    ----------
    last_store_timestamp
        Newest store time (ms) in the log; -1 if it is empty.
    """
    path = snapshot.directory.resolve(CHECKPOINT_FILE)
    entry = snapshot.directory.stat(path)
    point = snapshot.checkpoint
    if entry is None or point is None or entry.size < CHECKPOINT_FILE_BYTES:
        if last_store_timestamp >= 0:
            found = "no file" if entry is None else f"{entry.size} bytes"
            findings.add(FindingKind.NO_CHECKPOINT, path, examples=[found])
        return
    wrong = []
    for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
        value = getattr(point, name) or 0
        if value < 0:
            wrong.append(f"{name} is {value}")
        elif 0 <= last_store_timestamp < value - _CLOCK_SLACK_MS and snapshot.state is not (
            StoreState.LIVE
        ):
            wrong.append(f"{name} is {value}, the newest record is of {last_store_timestamp}")
    confirmed = point.confirm_phy_offset or 0
    if confirmed > snapshot.log.segments.max_offset or confirmed < -1:
        wrong.append(f"confirm_phy_offset is {confirmed}, the log ends at {snapshot.end_offset}")
    dispatched = point.logics_physical_offset or 0
    if dispatched < 0 or not _is_dispatched(snapshot, dispatched):
        wrong.append(f"logics_physical_offset is {dispatched}, where no record starts")
    findings.add(FindingKind.CHECKPOINT, path, count=len(wrong), examples=wrong)


def _is_dispatched(snapshot: StoreSnapshot, commit_log_offset: int) -> bool:
    """Return whether a record starts there, or it cannot be checked; 5.5 may recover from there."""
    if commit_log_offset <= max(snapshot.min_phy_offset, 0) or snapshot.dledger_directories:
        return True
    return snapshot.store_timestamp_at(commit_log_offset) is not None
