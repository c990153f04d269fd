"""What ``rocketmq-store salvage`` does, and how it tells of it.

Annotations are real objects here, not text: typer cannot read the text form on Python 3.9.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqsource.cli.arguments import Source, View, examples
from rmqsource.cli.check import (
    config_to_write,
    now_ms,
    one_path,
    stage_progress,
    tell_lost_log,
)
from rmqsource.cli.output import Display, Format, write_result
from rmqsource.cli.read import table_options
from rmqsource.cli.report import Report, reporting
from rmqsource.scan.store_versions import open_snapshots
from store_core.tools.salvage import (
    SalvageOptions,
    SalvageReport,
    checked_target,
    report_path,
    salvage_store,
)

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions

_SHOWN = 10


def add_command(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog=examples(
            "salvage /data/store /data/new-store",
            "salvage /data/store /data/new-store --config broker.conf --format json | jq .notes",
        )
    )(salvage)


def salvage(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The damaged store; only read.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="A new directory for the new store.")],
    *,
    source: Source,
    view: View,
) -> None:
    """Make a new store of all that can be read of a damaged one.

    Records keep their order and their bytes; where some are lost, those after get other physical
    and queue offsets, and consumer offsets follow. OUT.salvage.json lists all of that, and each
    damaged part. OUT appears when all is written, not before. Exit code 1 if something is lost.
    """
    with reporting() as said:
        options = table_options("checkpoint", [path], source.config, source.option)
        salvage_and_tell(options, out, view.display(), said)


def salvage_and_tell(options: "SourceOptions", out: str, display: Display, report: Report) -> None:
    """Salvage a store and say what became of it."""
    path = one_path(options)
    for view in open_snapshots(options):
        with view:
            checked_target(view, out)  # before anything is said of a salvage that cannot be
    if tell_lost_log(options, report):
        return
    config = config_to_write(options, report)
    with stage_progress() as progress:
        done = SalvageOptions(clock=now_ms, progress=progress.step)
        found = salvage_store(path, out, config, done)
    report.rows = found.records
    row = found.as_dict() if display.output is Format.json else salvage_row(found)
    write_result(row, display)
    _tell_losses(found, report)


def salvage_row(found: SalvageReport) -> dict[str, Any]:
    """Return the sums of a salvage by name."""
    return {
        "source": found.source,
        "target": found.target,
        "report": str(report_path(found.target)),
        "records": found.records,
        "record_bytes": found.record_bytes,
        "log_begin": found.log_begin,
        "log_end": found.log_end,
        "log_ends_because": found.log_ends_because,
        "damaged_parts": len(found.gaps),
        "damaged_records": len(found.rejected),
        "lost_bytes": found.lost_bytes,
        "missing_messages": found.missing_messages,
        "corrected_store_times": len(found.corrected_times),
        "queues": len(found.queues),
        "queues_with_other_offsets": found.moved_queues,
        "empty_queues_kept": found.kept_queues,
    }


def _tell_losses(found: SalvageReport, report: Report) -> None:
    for note in found.notes:
        report.note(note)
    for gap in found.gaps[:_SHOWN]:
        report.damage(
            f"{gap.path} at byte {gap.position}: {gap.bytes_lost} bytes hold no record "
            f"({gap.reason})"
        )
    for record in found.rejected[:_SHOWN]:
        report.damage(
            f"record at offset {record.commit_log_offset}, queue {record.queue_id} of topic "
            f"{record.topic!r} at {record.queue_offset}: {record.reason}"
        )
    if found.lost_end is not None:
        report.damage(str(found.lost_end))
    more = max(len(found.gaps) - _SHOWN, 0) + max(len(found.rejected) - _SHOWN, 0)
    if more:
        report.damage(f"{more} more damaged parts and records: see {report_path(found.target)}")
