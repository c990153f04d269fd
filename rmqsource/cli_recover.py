"""What ``rocketmq-store recover`` does, and how it tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.cli_check import (
    config_to_write,
    now_ms,
    one_path,
    stage_progress,
    tell_lost_log,
)
from rmqsource.cli_output import Format, write_result
from store_core.errors import LogDamageError
from store_core.repair.store_recovery import plan_recovery, recover_store

if TYPE_CHECKING:
    from rmqsource.cli_report import Report
    from rmqsource.options import SourceOptions
    from store_core.repair.store_recovery import RecoveryResult

_SHOWN = 10


def recover(
    options: SourceOptions, output: Format, report: Report, *, dry_run: bool, cut: bool
) -> None:
    """Recover a store, or say what that would do."""
    path, config = one_path(options), config_to_write(options, report)
    if tell_lost_log(options, report):
        return
    if dry_run:
        found = plan_recovery(path, config)
    else:
        try:
            with stage_progress() as progress:
                found = recover_store(
                    path,
                    config,
                    clock=now_ms,
                    progress=lambda done, total: progress.step("log", done, total),
                    cut=cut,
                )
        except LogDamageError as err:
            report.damage(str(err))
            report.note("nothing was cut; --cut cuts there, and keeps a copy below _cut")
            return
    row = recovery_row(path, found, dry_run=dry_run)
    if output is Format.table and len(row["queues_cut"]) > _SHOWN:
        row["queues_cut"] = [*row["queues_cut"][:_SHOWN], "…"]
    write_result(row, output)
    if found.log.records_behind:
        verb = "would be" if dry_run else "were"
        report.damage(
            f"{found.log.records_behind} readable records behind offset {found.log.log_end} "
            f"{verb} cut off"
        )


def recovery_row(path: str, found: RecoveryResult, *, dry_run: bool) -> dict[str, Any]:
    """Return what was done, or would be, by name; ends are exclusive."""
    log = found.log
    return {
        "store": path,
        "done": "nothing (dry run)" if dry_run else "recovered",
        "was_stopped_cleanly": log.last_exit_ok,
        "checked_from": log.start_offset,
        "records_checked": log.records,
        "log_end": log.log_end,
        "log_ends_because": log.reason,
        "bytes_cut": log.cut_bytes,
        "records_cut": log.records_behind,
        "copy_of_what_was_cut": log.kept_at or None,
        "segments_deleted": len(log.deleted_files),
        "units_added": log.dispatched_units,
        "units_repaired": log.repaired_units,
        "queues_cut": [f"{topic}/{queue_id}" for topic, queue_id in log.queues_cut],
        "index_files_dropped": list(found.index_dropped),
        "index_files_dropped_because": found.index_reason or None,
        "indexed_again_from": found.index_from_offset,
    }
