# SPDX-License-Identifier: Apache-2.0
"""Output of ``rocketmq-store check`` and of the commands that rebuild index and queues."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.cli.output import Display, Format, row_writer, write_record, write_result
from rmqsource.cli.read import WrongUseError, lost_logs
from rmqsource.cli.report import Report, progress_bars
from rmqsource.cli.times import now_ms
from rmqsource.exit_codes import FOUND, NOT_DONE
from rmqsource.scan.store_versions import store_config, store_properties
from store_core.config.message_store_config import MessageStoreConfig, warn_of_ignored
from store_core.files.store_directory import expand_paths
from store_core.layout import CONSUME_QUEUE_DIR, SCHEDULE_TOPIC
from store_core.tools.check import Severity, check_store
from store_core.tools.check.finding_kinds import HINDER_RECOVERY
from store_core.tools.repair.rebuild_in_place import (
    loss_text,
    plan_queues,
    rebuild_index_in_place,
    rebuild_queues_in_place,
)

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.log.log_scan import Gap
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check import CheckReport, Finding
    from store_core.tools.repair.rebuild_in_place import RebuiltQueues

FINDING_COLUMNS = (
    *("severity", "kind", "count", "place", "position", "commit_log_offset", "bytes"),
    *("examples", "meaning", "advice", "store"),
)


def check_and_tell(snapshot: StoreSnapshot, display: Display, report: Report) -> None:
    """Check a store, write the findings, and set the exit code."""
    with progress_bars() as bars:
        found = check_store(snapshot, bars.step)
    if found.with_severity(Severity.NOT_CHECKED):
        report.end_with(NOT_DONE)
    elif not found.is_good:
        report.end_with(FOUND)
    damage = {finding.kind for finding in found.with_severity(Severity.DAMAGE)}
    if damage:
        text = f"rocketmq-store salvage {found.store} NEW copies everything readable to a new store"
        if damage & HINDER_RECOVERY:
            text += "; rocketmq-store recover --cut cuts the log at the first damage"
        report.note(f"what to do: {text}")
    if display.output is Format.json:
        write_result(report_row(found), display)
    elif not display.is_table:
        writer = row_writer(display, FINDING_COLUMNS)
        for finding in found.findings:
            writer.write({**finding_row(finding), "store": found.store})
        writer.close()
    else:
        _tell_person(found, display)


def report_row(found: CheckReport) -> dict[str, Any]:
    """Return a whole report in the form of its JSON."""
    return {
        "store": found.store,
        "state": found.state,
        "verdict": found.verdict_text,
        "log_begin": found.log_begin,
        "log_end": found.log_end,
        "log_ends_because": found.log_ends_because,
        "checked": found.counts.as_dict(),
        "findings": [finding_row(finding) for finding in found.findings],
    }


def finding_row(finding: Finding) -> dict[str, Any]:
    """Return a finding by column; -1 becomes null."""
    return {
        "severity": finding.severity.value,
        "kind": finding.kind.label,
        "count": finding.count,
        "place": finding.place,
        "position": finding.position if finding.position >= 0 else None,
        "commit_log_offset": finding.commit_log_offset if finding.commit_log_offset >= 0 else None,
        "bytes": finding.byte_count or None,
        "examples": list(finding.examples),
        "meaning": finding.meaning,
        "advice": finding.advice,
    }


def _tell_person(found: CheckReport, display: Display) -> None:
    row = report_row(found)
    checked = {k.replace("_", " "): v for k, v in row.pop("checked").items() if v}
    findings = row.pop("findings")
    write_record({**row, **{f"  {name}": number for name, number in checked.items()}}, display)
    for finding in findings:
        finding["examples"] = "; ".join(finding["examples"])
        write_record(
            {name: value for name, value in finding.items() if value not in (None, "")}, display
        )


def rebuild_index(options: SourceOptions, display: Display, report: Report) -> None:
    """Rebuild the index of a store, and report the result."""
    path = one_path(options)
    if tell_lost_log(options, report):
        return
    with progress_bars() as bars:
        rebuilt = rebuild_index_in_place(
            path,
            store_config(options),
            clock=now_ms,
            progress=partial(bars.step, "index"),
            warn=report.damage,
        )
    _tell_gaps(rebuilt.gaps, report)
    row = {
        "store": path,
        "index_files": len(rebuilt.files),
        "entries": rebuilt.entries,
        "records": rebuilt.records,
        "damaged_parts": len(rebuilt.gaps),
    }
    write_result(row, display)


class Accepted(NamedTuple):
    """Changes for consumers that the user accepts when queues are rebuilt."""

    moved: bool
    lost: bool


def rebuild_queues(
    options: SourceOptions, display: Display, report: Report, accepted: Accepted | None
) -> None:
    """Rebuild the queues of a store; if ``accepted`` is None, only report what would be done."""
    path = one_path(options)
    if tell_lost_log(options, report):
        return
    config = config_to_write(options, report)
    with progress_bars() as bars:
        progress = partial(bars.step, "queues")
        if accepted is None:
            rebuilt = plan_queues(path, config, progress, report.damage)
        else:
            rebuilt = rebuild_queues_in_place(
                path,
                config,
                accept_moved=accepted.moved,
                accept_lost=accepted.lost,
                progress=progress,
                warn=report.damage,
            )
    result = rebuilt.result
    _tell_gaps(result.gaps, report)
    for (topic, queue_id), rows in result.refused.items():
        report.note(
            f"no directory can be created for queue {topic!r}/{queue_id}, which has {rows} records"
        )
    write_result({**queues_row(path, rebuilt), "done": accepted is not None}, display)
    _tell_units(rebuilt, report, done=accepted is not None)


def _tell_units(rebuilt: RebuiltQueues, report: Report, *, done: bool) -> None:
    """Report unexpected units, and messages that consumers lose."""
    result, losses = rebuilt.result, rebuilt.losses
    if result.moved:
        report.note(f"{result.moved} units are not at the queue offset of their record")
    if result.unusable:
        report.note(f"{result.unusable} records have no unit, because none can be made for them")
    if result.contradicted:
        report.damage(
            f"{result.contradicted} records have a queue offset that does not fit between "
            "those before and after them; they keep their place in the queue"
        )
    if losses:
        report.damage(f"losses for consumers, by queue: {loss_text(losses)}")
    if not done and any(loss.lost or loss.earlier for loss in losses.values()):
        report.note("the rebuild would be refused without --accept-lost")
    if not done and any(loss.moved for loss in losses.values()):
        report.note("the rebuild would be refused without --accept-moved")


def queues_row(path: str, rebuilt: RebuiltQueues) -> dict[str, Any]:
    """Return the result of a rebuild of the queues, by name."""
    result = rebuilt.result
    return {
        "store": path,
        "queues": result.queues,
        "units": result.units,
        "records": result.records,
        "queues_kept_without_records": rebuilt.kept,
        "queues_not_made": len(result.refused),
        "units_moved": result.moved,
        "queue_offsets_contradicted": result.contradicted,
        "records_without_unit": result.unusable,
        "records_of_earlier_lives": sum(result.earlier.values()),
        "messages_lost": sum(loss.lost for loss in rebuilt.losses.values()),
        "messages_moved": sum(loss.moved for loss in rebuilt.losses.values()),
        "damaged_parts": len(result.gaps),
    }


def config_to_write(options: SourceOptions, report: Report) -> MessageStoreConfig:
    """Return the configuration; warn if delivery times depend on a file that is not given."""
    properties = store_properties(options)
    warn_of_ignored(properties, options.config or "--option")
    config = MessageStoreConfig.from_properties(properties)
    delayed = Path(one_path(options), CONSUME_QUEUE_DIR, SCHEDULE_TOPIC)
    is_default = config.message_delay_level == MessageStoreConfig().message_delay_level
    if is_default and not options.config and delayed.is_dir():
        report.note(
            "warning: the store has delayed messages. Rebuilt queues contain their delivery "
            "times, which are computed from RocketMQ's default delay levels. If the broker "
            "has other levels (messageDelayLevel), run the command again with --config and "
            "the broker's configuration file"
        )
    return config


def tell_lost_log(options: SourceOptions, report: Report) -> bool:
    """Return whether a store has lost its log, and report it if so.

    Queues and index would be rebuilt from nothing, and be empty.
    """
    found = list(lost_logs(options))
    for text in found:
        report.damage(f"{text} Nothing was changed")
    return bool(found)


def one_path(options: SourceOptions) -> str:
    """Return the one store that the options name; WrongUseError if there are several."""
    paths = expand_paths(options.paths)
    if len(paths) != 1:
        raise WrongUseError(f"PATH: expected one store; found {len(paths)}: {' '.join(paths)}")
    return paths[0]


def _tell_gaps(gaps: tuple[Gap, ...], report: Report) -> None:
    for gap in gaps[:10]:
        report.damage(
            f"{gap.path} at byte {gap.position}: {gap.bytes_lost} bytes hold no record "
            f"({gap.reason}); the result lacks what was there"
        )
