# SPDX-License-Identifier: Apache-2.0
"""A first look at a store with Spark: ``python -m rmqsource.demo [STORE] [--config BROKER.CONF]``.

Without a store, the one that is bundled with the package is unpacked and shown.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from rmqsource.cli.job import java_problem, quiet_session
from rmqsource.demo.data import DemoStore, next_commands, python_example, unpack_store
from rmqsource.safe_text import printable

__all__ = ["Demo", "main"]

_PURPOSE = "Explore a RocketMQ store with Spark: topics, a time window, one key."
_SHOWN = ("store_timestamp", "queue_id", "queue_offset", "tags", "cast(body as string) body")
_WINDOW = 1_000_000  # microseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ROWS = 5
_LARGEST_SCAN_BYTES = 1 << 30
_LOG_LINES = 30
_OWN_ERRORS = ("rmqsource.errors.", "store_core.errors.")


class Demo:
    """The steps of the demo on one store."""

    def __init__(self, spark: Any, store: DemoStore) -> None:
        self._spark = spark
        self._store = store

    def run(self) -> None:
        """Show topics, a time window and one key, and suggest what to try next."""
        topics = self.show_topics()
        busiest = topics.where("kind = 'normal' AND messages > 0").orderBy("messages", "topic")
        first = busiest.selectExpr("topic", "unix_micros(min_store_timestamp)").tail(1)
        if not first:
            _say("This store has no topic with messages, so the demo ends here.")
            return
        topic, start = first[0]
        self.show_window(topic, start)
        key = self.some_key(topic)
        if key is None:
            _say(f"No message of topic {topic} has a key.")
        else:
            self.show_key(topic, key)
        _title("What to try next")
        _say("\n".join(next_commands(self._store, topic, key)))
        _say("\nNotebooks with plots: notebooks/ in the clone, opened with jupyter lab notebooks/")
        _say("\nOr in Python:\n\n" + python_example(self._store, topic))

    def show_topics(self) -> Any:
        """Show the topics that have messages; return all topics."""
        _title("1. The topics")
        _say('spark.read.format("rocketmq-store").option("table", "topics").load(path)\n')
        topics = self._read(table="topics").drop("store")
        held = topics.where("messages > 0").orderBy("kind", "topic")
        _show(held, 40, truncate=False)
        return topics

    def show_window(self, topic: str, start: int | None) -> None:
        """Show the first messages of a topic within one second from ``start``."""
        _title(f"2. A time window: one second of topic {topic}")
        where = f"topic = {_sql_text(topic)}"
        if start is not None:
            where += f" AND store_timestamp >= {_sql_time(start)}"
            where += f" AND store_timestamp < {_sql_time(start + _WINDOW)}"
        _say('spark.read.format("rocketmq-store").option("where", where).load(path), where is\n')
        _say(where.replace(" AND ", "\n  AND ") + "\n")
        _show(self._read(where=where).selectExpr(*_SHOWN), _ROWS, truncate=60)

    def some_key(self, topic: str) -> str | None:
        """Return the most frequent of the topic's first thousand keys."""
        keys = self._read(table="keys", topic=topic).where("key_kind = 'KEYS'").limit(1000)
        count = keys.groupBy("key").count().orderBy("count", "key").tail(1)
        return str(count[0].key) if count else None

    def show_key(self, topic: str, key: str) -> None:
        """Show the messages of a key, the plan of the read, and the cost of a full scan."""
        from rmqsource import explain  # noqa: PLC0415 (after the checks)

        _title(f"3. The messages of one key: {key} in topic {topic}")
        options = {"topic": topic, "keys": json.dumps([key])}
        _say(f"Options: {_shown_options(options)}\n")
        _show(self._read(**options).selectExpr(*_SHOWN), _ROWS, truncate=60)
        _say("\nThe plan that found them, by rmqsource.explain(path, options):\n")
        _say(_indented(explain(self._store.path, {**self._store.options, **options})))
        scan = {**options, "access": "commitlog"}
        _say(f"\nThe same with a full scan, options: {_shown_options(scan)}\n")
        _say(_indented(explain(self._store.path, {**self._store.options, **scan})))
        plan = self._read(table="plan", **scan).first()
        if plan.bytes_to_read > _LARGEST_SCAN_BYTES:
            _say("\nThe scan is not run here, because it would take a while.")
            return
        self._timed_count(options)  # the first such job is slow, whatever it reads
        found, took = self._timed_count(options)
        same, scan_took = self._timed_count(scan)
        _say(
            f"\nBy the plan {found} messages in {took:.2f} s, "
            f"by the scan {same} in {scan_took:.2f} s."
        )
        if plan.bytes_to_read < _LARGEST_SCAN_BYTES >> 4:
            _say("In such a small store both are just the time that Spark needs to run any job;")
            _say("in a large store the number of bytes to read decides.")

    def _read(self, **options: str) -> Any:
        reader = self._spark.read.format("rocketmq-store")
        return reader.options(**self._store.options, **options).load(self._store.path)

    def _timed_count(self, options: dict[str, str]) -> tuple[int, float]:
        begin = time.perf_counter()
        count = self._read(**options).count()
        return count, time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return the exit code."""
    given = _parse(arguments)
    store = DemoStore(given.store, given.config) if given.store else None
    problem = java_problem() or (store_problem(store) if store else "")
    if problem:
        return _complain(problem)
    if store is None:
        store = unpack_store()
        _say(
            "This demo explores the store of a RocketMQ 5.3.3 broker with a few seconds of traffic."
        )
        _say(f"It is unpacked in {store.path} and stays there for you to play with.")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "spark.log"
        try:
            _say("Starting Spark with two cores ...")
            with quiet_session(log, "rmqsource demo") as spark:
                Demo(spark, store).run()
        except _failures() as err:
            return _complain(_failure(err, log))
    return 0


def _failures() -> tuple[type[Exception], ...]:
    """Return the errors that are not bugs of the demo: of Spark, Java, stores, the system."""
    from py4j.protocol import (  # type: ignore[import-untyped]  # noqa: PLC0415 (after the checks)
        Py4JError,
    )
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from rmqsource.errors import SourceError  # noqa: PLC0415
    from store_core.errors import StoreError  # noqa: PLC0415

    return (PySparkException, Py4JError, SourceError, StoreError, OSError)


def store_problem(store: DemoStore) -> str:
    """Return why a store cannot be read; empty if it can be."""
    from rmqsource import snapshot  # noqa: PLC0415 (numpy and pyarrow on demand)
    from rmqsource.errors import SourceError  # noqa: PLC0415
    from store_core.errors import StoreError  # noqa: PLC0415

    try:
        snapshot(store.path, store.options)
    except (SourceError, StoreError) as err:
        return str(err)
    return ""


def _complain(text: str) -> int:
    print(_printable_lines(text), file=sys.stderr)
    return 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rmqsource.demo", description=_PURPOSE)
    parser.add_argument("store", nargs="?", help="a store root; without it, the bundled store")
    parser.add_argument(
        "--config", default="", help="the broker's configuration file: sizes, delay levels"
    )
    return parser.parse_args(arguments)


def _failure(err: Exception, log: Path) -> str:
    """Return the source's error text, or else Spark's with the end of its log."""
    own = [line for line in str(err).splitlines() if line.startswith(_OWN_ERRORS)]
    if own:
        return "The demo failed: " + own[-1].split(": ", 1)[-1]
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = ["What Spark and Java said last:", *lines[-_LOG_LINES:]] if lines else []
    return "\n".join([f"The demo failed: {str(err).strip() or type(err).__name__}", *said])


def _shown_options(options: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_time(microseconds: int) -> str:
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return f"'{moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}'"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _title(text: str) -> None:
    _say(f"\n{text}\n{'-' * len(text)}")


def _show(frame: Any, rows: int, *, truncate: int | bool) -> None:
    """Show rows like Spark, but without the control characters that Spark prints unchanged."""
    with redirect_stdout(io.StringIO()) as shown:
        frame.show(rows, truncate=truncate)
    _say(shown.getvalue())


def _say(text: str) -> None:
    print(_printable_lines(text), flush=True)


def _printable_lines(text: str) -> str:
    """Return a text without control characters other than its line ends."""
    return "\n".join(map(printable, text.split("\n")))


if __name__ == "__main__":
    sys.exit(main())
