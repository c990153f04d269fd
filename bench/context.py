# SPDX-License-Identifier: Apache-2.0
"""Resources shared by the scenarios of a run: stores, Spark session, Java side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.java_side import JavaSide
from bench.spark_side import make_session
from bench.stores import FULL, QUICK, StoreSpec, ensure_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Context:
    """Shared resources, each created at its first use.

    Parameters
    ----------
    work
        Directory for stores, the Java side and results.
    quick
        Use small stores and few runs: shows that everything works, but measures nothing.
    """

    def __init__(self, work: Path, quick: bool) -> None:
        self.work = work
        self.quick = quick
        self.sizes = QUICK if quick else FULL
        self.java = JavaSide(work)
        self.scan_runs = 1 if quick else 7
        self.decode_runs = 1 if quick else 3
        self.job_runs = 2 if quick else 15
        self.queries = 200 if quick else 5_000
        self.puts = 5_000 if quick else 300_000
        self.sync_puts = 500 if quick else 20_000
        self.commit_runs = 1 if quick else 7
        self.store_runs = 1 if quick else 3
        self.idle_seconds = 1 if quick else 5
        self.followed_messages = 10 if quick else 100
        self._spark: Any = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        if self._spark is None:
            self._spark = make_session()
        session: SparkSession = self._spark
        return session

    def root(self, spec: StoreSpec) -> str:
        """Return the path of a store, which no scenario may change."""
        return str(ensure_store(self.work, spec).resolve())

    def close(self) -> None:
        """Stop the session, if there is one, and its workers; the next use starts another."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
