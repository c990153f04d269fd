# SPDX-License-Identifier: Apache-2.0
"""The file of ``report``, which is written completely or not at all."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqsource.cli.read import WrongUseError
from rmqsource.extras import MissingExtraError, notebook_package
from rmqsource.safe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.options.source_options import SourceOptions


def write_report(
    options: SourceOptions,
    target: Path,
    file_format: str,
    progress: ProgressBars,
    report: Report,
) -> None:
    """Read the stores and write the page, or its data as one JSON object.

    Raises
    ------
    WrongUseError
        The extra ``notebook`` is missing, or the file cannot be written.
    """
    _check_target(target)
    try:
        # Missing packages are reported before the log is read.
        notebook_package("pandas")
        notebook_package("matplotlib")
        text = _content(options, file_format, progress, report)
    except MissingExtraError as err:
        raise WrongUseError(f"report: {err}") from err
    try:
        _write_whole(target, text)
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err
    report.note(f"{target}: {len(text.encode()):,} bytes")
    report.nothing_in(target)


def _check_target(target: Path) -> None:
    """Raise `WrongUseError` if the file cannot be written, before the log is read."""
    if not target.parent.is_dir():
        raise WrongUseError(f"--output {target}: No such file or directory: {target.parent}")
    if target.is_dir():
        raise WrongUseError(f"--output {target}: is a directory; give the name of a file")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise WrongUseError(f"--output {target}: {target.parent} is not writable")


def _content(
    options: SourceOptions, file_format: str, progress: ProgressBars, report: Report
) -> str:
    # pandas and matplotlib are imported only now: other commands start without them.
    from rmqsource.report.report_data import collect  # noqa: PLC0415

    with no_library_warnings():
        findings = collect(options, progress.splits)
    progress.hide()
    report.rows = findings.counts.messages
    report.tell_missing(options, seen=findings.counts.queues["topic"].unique().to_pylist())
    findings.told = tuple(dict.fromkeys(report.damages))
    if findings.counts.gaps:
        report.damage(
            f"{findings.counts.gaps:,} damaged places of {findings.counts.gap_bytes:,} bytes; "
            "the report lists them"
        )
    now = time.time_ns() // 1_000_000
    with no_library_warnings():
        if file_format == "json":
            from rmqsource.report.verdict import verdict  # noqa: PLC0415

            lines = [asdict(line) for line in verdict(findings, now)]
            return json_text({"verdict": lines, **findings.to_dict()}, _plain) + "\n"
        from rmqsource.report.page import report_page  # noqa: PLC0415

        return report_page(findings, now)


@contextmanager
def no_library_warnings() -> Iterator[None]:
    """Hide warnings of pandas and matplotlib, which are for programmers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.item() if hasattr(value, "item") else str(value)


def _write_whole(target: Path, text: str) -> None:
    """Write a temporary file in the same directory and rename it, so that it is never partial."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # Only the owner may read a file of mkstemp.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # noqa: PTH101
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink()
        raise
