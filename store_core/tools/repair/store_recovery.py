# SPDX-License-Identifier: Apache-2.0
"""Recover a whole store that no process has open, or report what that would do."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable

from store_core.errors import StoreConfigError, StoreNotFoundError
from store_core.files.file_writing import write_errors
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.index.index_dispatcher import IndexDispatcher
from store_core.index.index_entries import with_tag_index
from store_core.index.index_file import IndexFile
from store_core.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIR,
    CONSUME_QUEUE_DIR,
)
from store_core.log.commit_log import CommitLog, commit_log_directories
from store_core.recovery.queue_repair import lost_queues, queues_not_of_log
from store_core.recovery.recovery import LogRecovery, plan_log
from store_core.recovery.recovery_plan import Loss
from store_core.recovery.store_files import (
    OpenOptions,
    StoreFiles,
    open_store_files,
    recovery_parts,
)
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.staged_commit.staging import uncommitted_offset
from store_core.state.store_state import require_writable
from store_core.tools.check.finding_kinds import FindingKind, Severity
from store_core.tools.check.findings import Findings
from store_core.tools.check.index_check import misplaced_ends
from store_core.tools.check.store_check import check_checkpoint, check_files

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.index.index_file_set import IndexFileSet
    from store_core.log.commit_log import ReadableLog
    from store_core.progress import Progress
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey

_CATCH_UP_BYTES = 256 << 20
_UNCOMMITTED = "a staged job that was not committed begins here"
_LOST = (Severity.DAMAGE, Severity.REPAIRABLE)


@dataclass(frozen=True)
class RecoveryResult:
    """Changes that recovery made to a store, or would make."""

    log: LogRecovery
    index_dropped: tuple[str, ...] = ()
    index_reason: str = ""
    index_from_offset: int = 0
    queues_not_mended: tuple[QueueKey, ...] = ()
    files_not_mended: tuple[UnrepairedFile, ...] = ()


def recover_store(
    root: str,
    config: MessageStoreConfig,
    *,
    clock: Callable[[], int],
    progress: Progress | None = None,
    cut: bool = False,
) -> RecoveryResult:
    """Recover a store that no process has open, and leave it as after a clean stop.

    Takes the lock, cuts log and queues where the log ends, adds missing units and index entries,
    flushes everything, writes the checkpoint, removes ``abort``. A broker can then open the store
    as after its own stop.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    progress
        Called with the bytes of the log done and their total.

    Raises
    ------
    StoreLockedError
        Another process has it open.
    LogDamageError
        There is a damaged record before readable ones, and ``cut`` is False.
    StoreFormatError, StoreConfigError
        Files and configuration do not fit; a broker would not start either.
    StoreReadError, StoreWriteError
        A file cannot be read or written; the call may be repeated.
    """
    root = local_path(root)
    _check_is_store(root, config)
    config = replace(config, store_path_root_dir=root)
    parts = open_store_files(config, OpenOptions(clock, progress, cut))
    clean = False
    try:
        with write_errors(root), closing(CommitLog(StoreDirectory(root), config)) as log:
            while parts.index.catch_up(log, parts.recovery.log_end, _CATCH_UP_BYTES):
                pass
            not_mended = queues_not_of_log(parts.queues, log, parts.recovery.log_end)
            end = parts.recovery.log_end
            not_mended += _lost_queues(parts.queues, log, parts.recovery, end)
            not_mended = tuple(dict.fromkeys((*not_mended, *parts.recovery.queues_moved)))
            parts.index.flush()
            _write_checkpoint(parts, clock())
        clean = True
    finally:
        parts.close(clean=clean)
    unmended = unrepaired_findings(root, config, parts.recovery)
    return _result(parts.recovery, parts.index_files, not_mended, unmended)


def plan_recovery(root: str, config: MessageStoreConfig) -> RecoveryResult:
    """Return what `recover_store` with ``cut`` would do; takes no lock, changes nothing.

    Raises
    ------
    StoreFormatError, StoreConfigError, StoreReadError
        As `recover_store`.
    """
    root = local_path(root)
    _check_is_store(root, config)
    directory = StoreDirectory(root)
    last_exit_ok = directory.stat(directory.resolve(ABORT_FILE)) is None
    config = replace(config, store_path_root_dir=root)
    options = OpenOptions(clock=lambda: 0)
    with closing(CommitLog(directory, config)) as log:
        config = with_tag_index(config, directory, log)
        parts = recovery_parts(config, options, log, last_exit_ok=last_exit_ok)
        queues, found = parts.queues, plan_log(parts)
        if found.log_end == uncommitted_offset(directory, log):
            loss = Loss.NOTHING if found.lost_end is None else Loss.END
            found = replace(found, reason=_UNCOMMITTED, records_behind=0, loss=loss)
        index = IndexDispatcher(root, config, options.clock)
        files = index.plan(parts.recovered(log.min_offset, found.log_end))
        # After a crash, recovery itself compares the queues that it reads, and repairs some.
        not_mended = queues_not_of_log(queues, log, found.log_end) if last_exit_ok else ()
        end = min(found.log_end, queues.dispatch_from)  # recovery would dispatch the rest
        not_mended += _lost_queues(queues, log, found, end)
    unmended = unrepaired_findings(root, config, found, files.dropped if files is not None else ())
    return _result(found, files, not_mended, unmended)


def _check_is_store(root: str, config: MessageStoreConfig) -> None:
    directory = StoreDirectory(root)
    if not directory.is_local:
        raise StoreConfigError(f"{directory.uri}: only a store on this machine can be recovered")
    directory.check_root()
    require_writable(directory)
    if not any(directory.list(path) for path in commit_log_directories(directory, config)):
        names = (COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, CHECKPOINT_FILE)
        if not any(directory.stat(directory.resolve(name)) for name in names):
            raise StoreNotFoundError(f"{root}: no RocketMQ store; expected commitlog/")


def _lost_queues(
    queues: ConsumeQueueStore, log: ReadableLog, found: LogRecovery, end: int
) -> tuple[QueueKey, ...]:
    """Return the queues that lack their last records; none after a crash, as recovery adds them."""
    if not found.last_exit_ok:
        return ()
    return lost_queues(queues, log, (found.start_offset, end))


def _write_checkpoint(parts: StoreFiles, now_ms: int) -> None:
    """Record that everything is flushed; a clean store's times stay, if they are possible."""
    file, found = parts.checkpoint, parts.recovery
    if parts.index_files is not None:
        file.index_msg_timestamp = parts.index.flushed_end_timestamp
    if found.last_start >= 0:
        last = found.last_timestamp
        if not 0 <= file.index_msg_timestamp <= last:
            file.index_msg_timestamp = 0  # no file counts as flushed: the next recovery proves them
        if not found.last_exit_ok or not 0 <= file.physic_msg_timestamp <= last:
            file.physic_msg_timestamp = last
        if not found.last_exit_ok or not 0 <= file.logics_msg_timestamp <= last:
            file.logics_msg_timestamp = last
        file.set_dispatched(found.last_start, 0)
    file.hold_back(now_ms)  # the last record's time may be damaged
    file.flush()


def _result(
    found: LogRecovery,
    files: IndexFileSet | None,
    queues: tuple[QueueKey, ...],
    unmended: tuple[UnrepairedFile, ...],
) -> RecoveryResult:
    if files is None:
        return RecoveryResult(
            log=found,
            index_dropped=(),
            index_reason="",
            index_from_offset=found.log_end,
            queues_not_mended=queues,
            files_not_mended=unmended,
        )
    index = (files.dropped, files.reason, files.from_offset)
    return RecoveryResult(found, *index, queues, unmended)


@dataclass(frozen=True)
class UnrepairedFile:
    """A file that is still damaged, what is wrong with it, and what to do."""

    path: str
    found: str
    advice: str


def unrepaired_findings(
    root: str, config: MessageStoreConfig, found: LogRecovery, dropped: Collection[str] = ()
) -> tuple[UnrepairedFile, ...]:
    """Return the problems ``check`` will report that show without reading whole files."""
    findings = Findings()
    with StoreSnapshot(root, config, found.log_end) as view:
        check_files(view, findings)
        check_checkpoint(view, found.last_timestamp, findings)
        if config.message_index_enable and view.index.sizes is not None:
            for path, reason in view.index.unusable:
                if path.rpartition("/")[2] not in dropped:
                    findings.add(FindingKind.INDEX_UNUSABLE, path, examples=[reason])
            _check_index_headers(view, findings, dropped)
    return tuple(
        UnrepairedFile(one.place, f"{one.kind.label}: {'; '.join(one.examples)}", one.advice)
        for one in findings.sorted()
        if one.severity in _LOST
    )


def _check_index_headers(view: StoreSnapshot, findings: Findings, dropped: Collection[str]) -> None:
    """Report files whose first or last entry is not the one that the header names."""
    for path, _ in view.index.files:
        if view.index.sizes is None or path.rpartition("/")[2] in dropped:
            continue
        with view.directory.open(path) as source:
            wrong = misplaced_ends(IndexFile(source, *view.index.sizes))
        if wrong:
            findings.add(FindingKind.INDEX_HEADER, path, position=0, examples=wrong)
