"""What ``rocketmq-store export`` does beside Spark's job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqsource.cli_job import spark_job
from rmqsource.cli_read import WrongUseError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmqsource.cli_report import Report

_PARTITIONS = ("topic", "day")


def export_messages(
    options: Mapping[str, str], target: Path, file_format: str, partition_by: str, report: Report
) -> None:
    """Write the messages that the options select.

    Raises
    ------
    WrongUseError
        No Java, an unknown partition, or something is at the target already.
    """
    partitions = [name.strip() for name in partition_by.split(",") if name.strip()]
    unknown = [name for name in partitions if name not in _PARTITIONS]
    if unknown:
        raise WrongUseError(f"--partition-by: {unknown[0]!r} is neither topic nor day")
    # Needs Spark's modules, which take a while to load.
    from rmqsource.export_store import new_directory, write_export  # noqa: PLC0415

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
