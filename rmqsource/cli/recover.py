# SPDX-License-Identifier: Apache-2.0
"""The work of ``rocketmq-store recover``, and its output."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rmqsource.cli.check import config_to_write, one_path, tell_lost_log
from rmqsource.cli.output import write_result
from rmqsource.cli.report import Report, progress_bars
from rmqsource.cli.times import now_ms
from rmqsource.exit_codes import TAIL_CUT
from store_core.errors import LogDamageError
from store_core.files.store_directory import StoreDirectory
from store_core.queue.queue_directories import queue_file_sizes
from store_core.recovery.recovery_plan import Loss
from store_core.tools.repair.store_recovery import plan_recovery, recover_store

if TYPE_CHECKING:
    from rmqsource.cli.output import Display
    from rmqsource.options.source_options import SourceOptions
    from store_core.recovery.recovery import LogRecovery
    from store_core.tools.repair.store_recovery import RecoveryResult

_SHOWN = 10


def recover(
    options: SourceOptions, display: Display, report: Report, *, dry_run: bool, cut: bool
) -> None:
    """Recover a store, or report what that would do."""
    path, config = one_path(options), config_to_write(options, report)
    if tell_lost_log(options, report):
        return
    sizes = queue_file_sizes(StoreDirectory(path), config)
    if dry_run:
        found = plan_recovery(path, config)
    else:
        try:
            with progress_bars() as bars:
                found = recover_store(
                    path,
                    config,
                    clock=now_ms,
                    progress=partial(bars.step, "log"),
                    cut=cut,
                )
        except LogDamageError as err:
            report.damage(str(err))
            report.note(
                "nothing was cut; --cut cuts the log there and keeps a copy in the directory _cut"
            )
            return
    row = recovery_row(path, found, dry_run=dry_run)
    for name in ("queues_cut", "queues_not_mended", "files_not_mended"):
        if display.is_table and len(row[name]) > _SHOWN:
            row[name] = [*row[name][:_SHOWN], "…"]
    write_result(row, display)
    _tell_cut(found.log, report, dry_run=dry_run)
    if queue_file_sizes(StoreDirectory(path), config) != sizes:
        report.note(
            "no queue file is left that shows the size of queue files: give the broker's "
            "configuration to the program that opens this store next "
            f"(mappedFileSizeConsumeQueue={sizes.simple}, "
            f"mapperFileSizeBatchConsumeQueue={sizes.batch})"
        )
    _tell_not_mended(found, report)


def _tell_not_mended(found: RecoveryResult, report: Report) -> None:
    """Report unrepaired queues and files, and the parts that were not checked."""
    if found.queues_not_mended:
        report.damage(
            f"{len(found.queues_not_mended)} queues do not match the log and were not "
            "repaired: `rocketmq-store check` checks them completely, `rocketmq-store "
            "rebuild-queues` rebuilds them"
        )
    for file in found.files_not_mended[:_SHOWN]:
        report.damage(f"{file.path}: not repaired: {file.found}. What to do: {file.advice}")
    if len(found.files_not_mended) > _SHOWN:
        report.damage(f"and {len(found.files_not_mended) - _SHOWN} more files were not repaired")
    report.note(
        f"checked were the log from offset {found.log.start_offset} on, and the parts of "
        "queues, index and files that a recovery needs; `rocketmq-store check` checks "
        "everything"
    )


def _tell_cut(log: LogRecovery, report: Report, *, dry_run: bool) -> None:
    """Report lost messages and readable records that were cut off; set the exit code."""
    if log.lost_end is not None:
        verb = "would be" if dry_run else "were"
        flag = " (only with --cut)" if dry_run else ""
        report.damage(
            f"{log.lost_end.count_text} after offset {log.log_end} {verb} given up{flag}: "
            f"{'; '.join(log.lost_end.proofs)}"
        )
    if not log.records_behind:
        return
    verb = "would be" if dry_run else "were"
    text = f"{log.records_behind} readable records after offset {log.log_end} {verb} cut off"
    if log.loss is Loss.OLD_CUT:
        report.note(f"{text}: an earlier cut left them; they are not messages of this store")
    elif log.loss is Loss.CRASH_TAIL:
        report.note(f"{text}: they were neither flushed nor dispatched before the crash")
        report.end_with(TAIL_CUT)
    else:
        report.damage(f"{text} (only with --cut)" if dry_run else text)


def recovery_row(path: str, found: RecoveryResult, *, dry_run: bool) -> dict[str, Any]:
    """Return the changes that were or would be made, by name; ends are exclusive."""
    log = found.log
    return {
        "store": path,
        "done": "nothing (dry run)" if dry_run else _done(found),
        "was_stopped_cleanly": log.last_exit_ok,
        "checked_from": log.start_offset,
        "records_checked": log.records,
        "log_end": log.log_end,
        "log_ends_because": log.reason,
        "bytes_cut": log.cut_bytes,
        "records_cut": log.records_behind,
        "cut_was": log.loss.value if log.cut_bytes else None,
        "copy_of_what_was_cut": log.kept_at or None,
        "messages_given_up": log.lost_end.messages if log.lost_end is not None else 0,
        "segments_deleted": len(log.deleted_files),
        "units_added": log.dispatched_units,
        "units_repaired": log.repaired_units,
        "queues_cut": [f"{topic}/{queue_id}" for topic, queue_id in log.queues_cut],
        "queues_not_mended": [f"{topic}/{number}" for topic, number in found.queues_not_mended],
        "files_not_mended": [file.path for file in found.files_not_mended],
        "index_files_dropped": list(found.index_dropped),
        "index_files_dropped_because": found.index_reason or None,
        "indexed_again_from": found.index_from_offset,
    }


def _done(found: RecoveryResult) -> str:
    if found.queues_not_mended:
        return "recovered, but some queues do not match the log"
    if found.files_not_mended:
        return "recovered, but some files still need repair"
    if found.log.lost_end is not None:
        return "recovered, and lost messages were given up"
    if found.log.records_behind and found.log.loss is not Loss.OLD_CUT:
        return "recovered, and readable records were cut off"
    log = found.log
    changed = (
        *(log.cut_bytes, log.deleted_files, log.dispatched_units, log.repaired_units),
        *(log.queues_cut, found.index_dropped),
    )
    if log.last_exit_ok and not any(changed):
        return "nothing needed repair"
    return "recovered"
