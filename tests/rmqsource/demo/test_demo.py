# SPDX-License-Identifier: Apache-2.0
"""The demo: its output, its advice, and its errors if something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rmqsource
from rmqsource.demo import __main__ as tour
from rmqsource.demo.data import DemoStore, next_commands, python_example, unpack_store
from tests.conftest import ROOT
from tests.golden_store import golden
from tests.store_factory import StoreFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> DemoStore:
    return unpack_store(str(tmp_path_factory.mktemp("demo")))


def test_demo_shows_topics_window_key_and_plan(
    spark: SparkSession, bundled: DemoStore, capfd: pytest.CaptureFixture[str]
) -> None:
    tour.Demo(spark, bundled).run()
    shown, errors = capfd.readouterr()
    assert "|orders                           |4     |236     |74857 |" in shown
    assert "AND store_timestamp >= '2026-11-21T12:26:32.316Z'" in shown
    assert "AND store_timestamp < '2026-11-21T12:26:33.316Z'" in shown
    assert "|2026-11-21 12:26:32.3" in shown
    assert "access path      index" in shown
    assert "access path      commitlog" in shown
    assert "By the plan 30 messages in " in shown
    assert f"messages {bundled.path} --topic orders --key shared-key" in shown
    assert "Traceback" not in errors


def test_demo_of_a_store_without_messages(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    tour.Demo(spark, DemoStore(str(golden("empty-5x").root), "")).run()
    assert "no topic with messages" in capfd.readouterr().out


HOSTILE = "a\x1b]0;x\x07\u202eb"


def test_nothing_of_a_store_steers_the_terminal(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = StoreFactory(tmp_path / "store")
    for number in range(3):
        properties = {"KEYS": HOSTILE, "TAGS": HOSTILE}
        store.add(HOSTILE, f"{number}{HOSTILE}".encode(), properties=properties)
    root = str(store.write())
    tour.Demo(spark, DemoStore(root, "")).run()
    shown, _ = capfd.readouterr()
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(r"a\x1b]0;x\x07\u202eb") > 6
    plan = rmqsource.explain(root, {"topic": json.dumps([HOSTILE, "no\nsuch"])})
    assert all(line.isprintable() for line in plan.split("\n"))
    pytest.importorskip("typer")
    command = next_commands(DemoStore(root, ""), HOSTILE, HOSTILE)[3] + " --format json"
    assert command.isprintable()
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr


def test_advised_commands_work(
    bundled: DemoStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("typer")
    monkeypatch.chdir(tmp_path)  # commands are for the present directory
    commands = next_commands(bundled, "orders", "shared-key")
    assert len(commands) == 6
    for command in commands:
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
    assert len((tmp_path / "messages.jsonl").read_text().splitlines()) == 236
    assert "Verdict" in (tmp_path / "report.html").read_text("utf-8")


def test_advised_python_works(bundled: DemoStore, spark: SparkSession) -> None:
    assert spark is not None
    source = python_example(bundled, "orders")
    exec(compile(source, "example", "exec"), {})


def test_names_are_quoted_for_the_shell() -> None:
    pytest.importorskip("typer")
    commands = next_commands(DemoStore("/a b/store", ""), "%RETRY%a b", "it's")
    assert "'/a b/store'" in commands[0]
    assert "--topic '%RETRY%a b'" in commands[1]
    assert commands[3].endswith("""--key 'it'"'"'s'""")


def test_without_java(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tour.main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Spark needs Java, but there is none on PATH. Install")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert tour.main([]) == 1
    assert f"{tmp_path}/bin/java does not run" in capsys.readouterr().err


def test_no_store_is_said_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(tour, "java_problem", str)
    assert tour.main([str(tmp_path / "none")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "does not exist; give the store root" in said.err


def test_failure_shows_the_reason_and_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("".join(f"line {i}\n" for i in range(100)))
    failure = tour._failure(RuntimeError("Java gateway process exited"), log)
    assert failure.startswith("The demo failed: Java gateway process exited\n")
    assert failure.endswith("line 98\nline 99")
    own = RuntimeError("Traceback\n\nstore_core.errors.StoreReadError: /a: no\nSQLSTATE: 38000")
    assert tour._failure(own, log) == "The demo failed: /a: no"


def test_unpacked_store_is_whole(bundled: DemoStore) -> None:
    assert len(list((Path(bundled.path) / "commitlog").iterdir())) == 4
    assert "mappedFileSizeCommitLog" in Path(bundled.config).read_text()
    assert bundled.options == {"config": bundled.config}


def test_the_packages_work_out_of_a_zip(tmp_path: Path) -> None:
    """They are packed as for ``spark-submit --py-files``."""
    archive = tmp_path / "rmqsource.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("rmqsource", "store_core"):
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    packed.write(path, path.relative_to(ROOT))
    program = """
import rmqsource, rmqsource.spark.store_format, rmqsource.report.page
from rmqsource.demo.data import unpack_store
from store_core.snapshot.store_snapshot import StoreSnapshot

with StoreSnapshot(unpack_store("demo").path) as snapshot:
    print(rmqsource.__file__, snapshot.look_message_by_offset(snapshot.min_phy_offset).topic)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**ENVIRONMENT, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive))
