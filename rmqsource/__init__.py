# SPDX-License-Identifier: Apache-2.0
"""RocketMQ stores as Spark tables: read a broker's own files without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import Union

    from pyspark.sql import SparkSession

    from rmqsource.spark.stream_listener import StreamLagListener
    from store_core import __version__ as __version__
    from store_core.staged_commit.staging import Commit

    Paths = Union[str, PathLike[str], Sequence[Union[str, PathLike[str]]]]

__all__ = [
    "StreamLagListener",
    "clean_staging",
    "explain",
    "last_commit",
    "register",
    "snapshot",
]


def __getattr__(name: str) -> Any:
    if name == "StreamLagListener":
        from rmqsource.spark.stream_listener import StreamLagListener  # noqa: PLC0415 (pyspark on demand)

        return StreamLagListener
    if name == "__version__":
        from store_core import __version__  # noqa: PLC0415 (on demand)

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: SparkSession) -> None:
    """Register the formats ``rocketmq-store`` and ``rocketmq`` in a session.

    Needed only if Spark does not find the installed package by itself: with ``--py-files``, or if
    the driver's JVM runs another Python; and in each thread of your own that writes.

    If Spark has already found the package, this changes nothing: executors then look for it only in
    the Python of the driver's environment variables, not in ``--py-files`` (docs/cluster.md).
    """
    from rmqsource.spark.live_format import RocketMQDataSource  # noqa: PLC0415 (pyspark on demand)
    from rmqsource.spark.store_format import RocketMQStoreDataSource  # noqa: PLC0415
    from rmqsource.spark_compat import register_source  # noqa: PLC0415

    register_source(spark, RocketMQStoreDataSource)
    register_source(spark, RocketMQDataSource)


def snapshot(path: Paths, options: Mapping[str, Any] | None = None) -> str:
    """Return a token that pins where the log of each store begins and ends now.

    Passed as option ``snapshot`` to several reads of a live store, it makes them read the same part
    of the log. If some of that part is gone by then, that is data loss (option ``failOnDataLoss``).

    Parameters
    ----------
    path
        A store root or a list of them, as for ``load``; strings or ``pathlib`` paths.
    options
        Options of the read that matter for the files, such as ``storePathCommitLog``.
    """
    from rmqsource.scan.store_versions import make_token  # noqa: PLC0415 (numpy and pyarrow on demand)

    return make_token(_options(path, options))


def explain(
    path: Paths,
    options: Mapping[str, Any] | None = None,
    where: str | list[Any] | None = None,
) -> str:
    """Describe the access path that a read would take to its rows, and why.

    Spark's own plan does not show the choices of a Python source.

    Parameters
    ----------
    path
        A store root or a list of them, as for ``load``; strings or ``pathlib`` paths.
    options
        Options of the read.
    where
        A condition like option ``where``; if both are given, both apply. Or filters of
        ``pyspark.sql.datasource``, as passed by a Spark that pushes filters.
    """
    from rmqsource.options.source_options import narrowed  # noqa: PLC0415 (on demand)
    from rmqsource.scan.predicate import from_options, with_filters  # noqa: PLC0415
    from rmqsource.scan.read_columns import plan_read, plan_text  # noqa: PLC0415

    parsed = _options(path, options)
    if isinstance(where, str):
        parsed, where = narrowed(parsed, where), None
    predicate, _ = with_filters(from_options(parsed), where or [], parsed.table)
    return plan_text(plan_read(parsed, predicate))


def last_commit(path: str | PathLike[str]) -> Commit | None:
    """Return the newest commit of this project's writes to a store; None before the first.

    Its attributes say how much was appended and where: ``messages``, ``record_bytes``,
    ``start_offset`` and ``end_offset`` in the log, ``queues`` (topic, queue id, first queue offset,
    messages), ``dropped`` (rows left out, by column), ``application`` and ``version``.

    Parameters
    ----------
    path
        A local store root.
    """
    from store_core.files.store_directory import StoreDirectory  # noqa: PLC0415 (on demand)
    from store_core.staged_commit.job import Ledger  # noqa: PLC0415

    return Ledger(StoreDirectory(path).resolve()).last_commit()


def clean_staging(
    path: str | PathLike[str], older_than_ms: int = 24 * 3600 * 1000
) -> list[tuple[str, int]]:
    """Delete staged files of writes that never committed; return the directories and their bytes.

    A write does this by itself for jobs older than a day.

    Parameters
    ----------
    path
        A local store root.
    older_than_ms
        Delete jobs to which nothing was written for this long. A running job is deleted as well if
        it is older.
    """
    from rmqsource.sink.local_host import now_ms  # noqa: PLC0415 (on demand)
    from store_core.files.store_directory import StoreDirectory  # noqa: PLC0415
    from store_core.staged_commit import resolve_open_jobs  # noqa: PLC0415

    root = StoreDirectory(path).resolve()
    return list(resolve_open_jobs.remove_staging(root, older_than_ms, now_ms))


def _options(path: Paths, options: Mapping[str, Any] | None) -> Any:
    from rmqsource.options.source_options import options_for  # noqa: PLC0415 (on demand)

    return options_for(path, options)
