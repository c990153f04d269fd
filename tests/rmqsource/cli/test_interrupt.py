# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command with code 130, leaves nothing half done and nothing running."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT
from tests.golden_store import golden, tree_state
from tests.store_factory import small_store

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("typer")
pty = pytest.importorskip("pty")

DEADLINE_SECONDS = 300
SOME_TASKS_ARE_DONE = re.compile(rb"[1-9][0-9]?%")
TASKS = 400
"""So many that the job takes seconds after the bar has moved."""


def is_readable(file: Any, timeout_s: float) -> bool:
    """Return whether input comes in time; earlier tests may have many files open."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(max(timeout_s, 0) * 1000))


class Command:
    """A command with a terminal, so that it shows its progress bar."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.shown = b""
        self._terminal, its_side = pty.openpty()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rmqsource.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=its_side,
            env={**os.environ, "PYTHONPATH": path, "TERM": "xterm", **environment},
        )
        os.close(its_side)

    def interrupt_when(self, shown: re.Pattern[bytes]) -> int:
        """Return the exit code; fail if a process that it started still runs then."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while not shown.search(self.shown):
                assert self._read(deadline), self.shown
            self._process.send_signal(signal.SIGINT)
            while self._read(deadline):
                pass
            code = self._process.wait(deadline - time.monotonic())
            output = self._process.stdout
            assert output is not None
            # Spark's Java process has this end of the pipe too.
            assert is_readable(output, 0)
            assert output.read() == b""
        finally:
            self._process.kill()
            self._process.communicate()
            os.close(self._terminal)
        return code

    def _read(self, deadline: float) -> bytes:
        """Return the next output; empty if the command has ended."""
        assert is_readable(self._terminal, deadline - time.monotonic()), self.shown
        try:
            found = os.read(self._terminal, 1 << 16)
        except OSError:  # of a terminal without a writer
            found = b""
        self.shown += found
        return found


def test_export(tmp_path: Path) -> None:
    store = golden("cluster-5x")
    command = Command(
        *("export", str(store.root), "--config", str(store.config_file)),
        *("-o", str(tmp_path / "out"), "--option", f"minPartitions={TASKS}"),
    )
    assert command.interrupt_when(SOME_TASKS_ARE_DONE) == 130, command.shown
    assert command.shown.startswith("starting Spark …\r\x1b[K".encode())
    assert command.shown.endswith(b"rocketmq-store: interrupted\r\n")
    assert list(tmp_path.iterdir()) == []


def test_import(tmp_path: Path) -> None:
    export, settings = tmp_path / "export", tmp_path / "conf"
    for directory in (export, settings):
        directory.mkdir()
    for number in range(TASKS):
        row = {**MESSAGE, "commit_log_offset": 100 * number, "queue_offset": number}
        (export / f"part-{number:05d}.json").write_text(json.dumps(row))
    # One task for each file: no file is split, and opening one counts as much as a task may have.
    sizes = "spark.sql.files.maxPartitionBytes 1k\nspark.sql.files.openCostInBytes 1k\n"
    (settings / "spark-defaults.conf").write_text(sizes)
    command = Command(
        *("import", str(export), str(tmp_path / "store")), SPARK_CONF_DIR=str(settings)
    )
    assert command.interrupt_when(SOME_TASKS_ARE_DONE) == 130, command.shown
    assert command.shown.endswith(b"rocketmq-store: interrupted\r\n")
    assert not (tmp_path / "store").exists()


MESSAGE = {
    "topic": "T",
    "queue_id": 0,
    "body": "eA==",
    "properties_raw": "",
    "flag": 0,
    "born_timestamp": "2026-01-31T09:00:00.000Z",
    "born_host": "1.2.3.4:5",
    "reconsume_times": 0,
    "store": "/old",
}


@pytest.fixture
def pressing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace a method by a function that presses Ctrl-C twice."""

    def press(*_: Any) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    return lambda owner, name: monkeypatch.setattr(owner, name, press)


def exit_code(*arguments: str) -> int:
    from typer.testing import CliRunner

    from rmqsource.cli.app import app

    handler = signal.getsignal(signal.SIGINT)
    code = CliRunner().invoke(app, arguments).exit_code
    assert signal.getsignal(signal.SIGINT) is handler
    return code


def test_salvage(pressing: Callable[..., None], tmp_path: Path) -> None:
    from rmqsource.cli.report import ProgressBars

    root = small_store(tmp_path / "old", 40).write()
    pressing(ProgressBars, "step")
    assert exit_code("salvage", str(root), str(tmp_path / "new")) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_report(pressing: Callable[..., None], tmp_path: Path) -> None:
    root = small_store(tmp_path / "old", 40).write()
    pressing(os, "replace")
    page = tmp_path / "page.html"
    page.write_text("of yesterday")
    assert exit_code("report", str(root), "-o", str(page)) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "page.html"]
    assert page.read_text() == "of yesterday"


IMPORTS = (
    *("typer", "rich.cells", "numpy", "store_core.errors"),
    *("rmqsource.cli.app", "rmqsource.cli.check", "rmqsource.scan.store_versions"),
)
INTERRUPT_AT = """
import importlib.abc, os, signal, sys

module = sys.argv.pop(1)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from rmqsource.cli import main
main()
"""


def interrupted_at(module: str, *arguments: str) -> None:
    command = [sys.executable, "-c", INTERRUPT_AT, module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"rocketmq-store: interrupted\n"


@pytest.mark.parametrize("module", IMPORTS)
def test_start_up(module: str) -> None:
    interrupted_at(module)


@pytest.mark.parametrize("module", ["pyarrow", "pyarrow.compute"])
def test_what_is_loaded_when_it_is_used(module: str, tmp_path: Path) -> None:
    interrupted_at(module, "messages", str(small_store(tmp_path / "store", 4).write()))


@pytest.mark.parametrize("command", ["rebuild-index", "rebuild-queues"])
@pytest.mark.parametrize("at", ["progress", "swap"])
def test_rebuild(pressing: Callable[..., None], tmp_path: Path, command: str, at: str) -> None:
    from rmqsource.cli.report import ProgressBars
    from store_core.tools.repair import rebuild_in_place

    root = small_store(tmp_path / "old", 40).write()
    before = tree_state(root)
    if at == "progress":
        pressing(ProgressBars, "step")
    else:
        pressing(rebuild_in_place, "put_in_place")
    sizes = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    assert exit_code(command, str(root), *sizes) == 130
    after = tree_state(root)
    assert {path: what[2] for path, what in after.items()} == {p: w[2] for p, w in before.items()}
