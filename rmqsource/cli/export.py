"""What ``rocketmq-store export`` does beside Spark's job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rmqsource.cli.job import spark_job
from rmqsource.cli.read import WrongUseError, check_for_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rmqsource.cli.report import Report

_PARTITIONS = ("topic", "day")


def checked_partitions(names: Sequence[str]) -> list[str]:
    """Return what directories are made by; WrongUseError where one cannot be."""
    for name in names:
        if name not in _PARTITIONS:
            raise WrongUseError(f"--partition-by: {name!r} is neither topic nor day")
    return list(names)


def check_target(target: Path) -> None:
    """Raise `WrongUseError` where no files can be written: before Spark starts, not after."""
    check_for_spark("--output", target)
    try:
        if target.is_dir() and not any(target.iterdir()):
            return
        if target.exists():
            raise WrongUseError(f"--output {target}: exists already; give a new directory")
        place = next(parent for parent in target.absolute().parents if parent.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise WrongUseError(f"--output {target}: no directory can be made in {place}")
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err


def export_messages(
    options: Mapping[str, str],
    target: Path,
    file_format: str,
    partitions: Sequence[str],
    report: Report,
) -> None:
    """Write the messages that the options select.

    Raises
    ------
    WrongUseError
        No Java, or something is at the target already.
    """
    # Needs Spark's modules, which take a while to load.
    from rmqsource.transfer.export_store import new_directory, write_export  # noqa: PLC0415

    try:
        # Spark ends first: a task could still write.
        with new_directory(target) as place, spark_job("export", "exporting") as spark:
            done = write_export(spark, options, place, file_format, partitions)
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err
    report.rows = done.messages
    if done.gaps:
        report.damage(f"{done.gaps:,} places cannot be read; what was there is not in the files")
    files = [path for path in target.rglob("part-*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    report.note(f"{target}: {done.messages:,} messages in {len(files):,} files, {size:,} bytes")
