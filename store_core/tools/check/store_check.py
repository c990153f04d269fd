"""Check a whole store without changing it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.queue.queue_range import queue_range
from store_core.tools.check.compaction_check import check_compaction
from store_core.tools.check.config_check import check_config, check_consumer_offsets
from store_core.tools.check.file_check import check_checkpoint, check_files
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import CheckCounts, CheckReport, Findings
from store_core.tools.check.index_check import IndexCheck
from store_core.tools.check.log_check import LogCheck, check_log_end, check_log_is_there
from store_core.tools.check.queue_check import QueueCheck
from store_core.tools.check.timer_check import check_timer

if TYPE_CHECKING:
    from store_core.progress import StageProgress
    from store_core.store_snapshot import StoreSnapshot

_UNREADABLE = (CorruptRecordError, StoreFormatError, StoreReadError)


def check_store(snapshot: StoreSnapshot, progress: StageProgress | None = None) -> CheckReport:
    """Verify a whole store: log, queues, index, compacted logs, timer, files. Reads only.

    Every record with its CRCs, every byte of the log's files, every queue unit against its
    record, every record against its unit, every index entry against the record's keys and the
    other way round; every unit and record of compacted logs; what waits in the timer. A live store
    is checked up to the end that the snapshot has.

    Memory is bounded: half a million rows of queue columns (30 MB), one batch of the log (32 MB),
    5 bytes an entry of the index file being walked, a few numbers a queue, 62 bytes a unit of batch
    queues; mapped files come on top, as the system sees fit.

    Parameters
    ----------
    progress
        See `StageProgress`; the log's numbers are bytes.

    Raises
    ------
    StoreConfigError
        Configured sizes contradict what is proved by the files.
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
    """Return the end of the last record that is in any queue; damaged queues say nothing.

    Records are dispatched in the order of the log, so all before it were dispatched. The queues
    are opened again for the check: a live broker may have gone on since.
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
