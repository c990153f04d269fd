# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: golden stores, and one Spark session for those that are marked `spark`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import leftovers, tiers
from tests.golden_store import (
    CLUSTER_NAMES,
    GOLDEN_NAMES,
    RECOVERED_NAMES,
    STORE_NAMES,
    GoldenStore,
    golden,
    share_scratch,
)
from tests.spark_home import set_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
_FAILED = pytest.StashKey[bool]()
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SPARK_FIXTURES = {"spark", "pushdown_spark"}

SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}

# Files whose tests take minutes. If a worker begins one of them last, the others idle.
_FIRST = (
    "test_replication",
    "test_ping_pong",
    "test_spark_cluster",
    "test_drive",
    "test_staged_commit",
    "test_s3_stores",
    "test_recovered_stores",
    "test_readme",
    "test_notebooks",
    "test_power_loss",
    "test_killed_writer",
)

# Spark's callback server waits with `select`, which fails for descriptors above 1,023. Then the
# server ends and its caller waits forever. Golden stores that tests share use that many files.
_FIRST_FILES = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]

# The time of an example depends more on the machine's load than on the code.
settings.register_profile("any-load", settings(), deadline=None)
settings.register_profile("quick", settings.get_profile("any-load"), max_examples=15)
settings.load_profile("any-load")


def pytest_configure() -> None:
    """Set what the workers of a parallel run inherit: golden stores, Spark and JVM options."""
    share_scratch()
    set_variables()
    leftovers.watch_starts()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stop what a test leaves running when it fails."""
    before = leftovers.running()
    yield
    if item.stash.get(_FAILED, False):
        leftovers.stop_started(before)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Escape text in the captured log that is not UTF-8, such as a path: workers cannot send it."""
    outcome = yield
    report = outcome.get_result()
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and mark tests that ask for a session `spark`.

    With ``-m "not spark"`` no JVM starts.
    """
    place = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(_FIRST)))
    for item in items:
        if SPARK_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
        tiers.mark(item, frozenset(GOLDEN_NAMES))


@pytest.fixture
def without_rocksdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the extra `rocksdb` look as if it were not installed."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a local session of two cores whose workers run this Python and import this clone."""
    # The JVM starts the workers, so the environment they inherit must be set before it starts.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    _start_callback_server(session)
    yield session
    session.stop()


def _start_callback_server(session: SparkSession) -> None:
    """Start the session while some of the first files are free; see `_FIRST_FILES`."""
    from pyspark.java_gateway import ensure_callback_server_started

    while _FIRST_FILES:
        os.close(_FIRST_FILES.pop())
    ensure_callback_server_started(session.sparkContext._gateway)


@pytest.fixture
def pushdown_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Return the session with filter pushdown on. Spark 4.0 has none and ignores the setting."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(params=GOLDEN_NAMES)
def golden_store(request: pytest.FixtureRequest) -> GoldenStore:
    """Return every golden store in turn."""
    return golden(request.param)


@pytest.fixture(params=STORE_NAMES)
def plain_golden_store(request: pytest.FixtureRequest) -> GoldenStore:
    """Return every golden store that RocketMQ's store classes wrote."""
    return golden(request.param)


@pytest.fixture(params=CLUSTER_NAMES)
def cluster_golden_store(request: pytest.FixtureRequest) -> GoldenStore:
    """Return every golden store that a complete broker wrote."""
    return golden(request.param)


@pytest.fixture(params=RECOVERED_NAMES)
def recovered_golden_store(request: pytest.FixtureRequest) -> GoldenStore:
    """Return the golden stores as RocketMQ's recovery left them."""
    return golden(request.param, recovered=True)


@pytest.fixture(scope="session")
def soak_seconds() -> float:
    """Return how long each long test may run (``make soak MINUTES=…``)."""
    return 60 * float(os.environ.get("SOAK_MINUTES", "10"))


@pytest.fixture(scope="session")
def soak_seed() -> int:
    """Return the seed of the long tests (``make soak SEED=…``)."""
    return int(os.environ.get("SOAK_SEED", "1"))
