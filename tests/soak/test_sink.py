# SPDX-License-Identifier: Apache-2.0
"""Writes are killed, with Spark and without: every job is stored completely once, or not at all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import rmqsource
from rmqsource.options.source_options import parse_options
from rmqsource.scan.read_columns import read_columns
from store_core.staged_commit.job import Ledger
from tests.interop import java_oracle
from tests.interop.test_staged_commit import assert_sound, note_sizes, write
from tests.rmqsource.sink.killed_sink import APPLICATION, SIZES, rows_of
from tests.rmqsource.sink.spark_jobs import READY
from tests.rmqsource.sink.test_killed_sink import KILLS_PER_STORE, MODULE, judge_store, kill_jobs
from tests.soak.test_crash import stores
from tests.store_core.test_killed_writer import Writers

pytestmark = pytest.mark.soak

SPARK_KILLS, KILLS_BEFORE_ROCKETMQ = 10, 5
_ROOT = Path(__file__).parents[2]
_JOBS = "tests.rmqsource.sink.spark_jobs"
_LONGEST_S = 6.0
_DIE_AFTER_COMMIT = """
import os, signal, pathlib
import rmqsource.sink.committing as committing
whole = committing.commit_parts
def commit_parts(*given, **named):
    done = whole(*given, **named)
    if done is not None and done.version == {version}:
        for pid in pathlib.Path({pids!r}).read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    return done
committing.commit_parts = commit_parts
"""


def test_kills(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers(MODULE), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_jobs(root / "store", writers, seed, KILLS_PER_STORE)
    finally:
        with capsys.disabled():
            print(f"\n{kills} killed writes")
    writers.close()


def test_rocketmq_opens_what_kills_left(tmp_path, capsys, soak_seconds, soak_seed):
    """Both releases in turn; the next job uses the store as they left it."""
    writers, opened = Writers(MODULE), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            opened += _let_rocketmq_open(root / "store", writers, seed)
    finally:
        with capsys.disabled():
            print(f"\n{opened} stores of killed writes that RocketMQ opened")
    writers.close()


def _let_rocketmq_open(root: Path, writers: Writers, seed: int) -> int:
    generator, api = random.Random(seed), java_oracle.APIS[seed % len(java_oracle.APIS)]
    root.mkdir()
    config = note_sizes(root, SIZES)
    write(root, seed << 10)
    messages, opened = rows_of(seed << 10), 0
    for version in range((seed << 10) + 1, (seed << 10) + 1 + KILLS_BEFORE_ROCKETMQ):
        die_after = generator.randrange(1, 260)
        task = {"root": str(root), "version": version, "seed": version, "die_after": die_after}
        status = writers.run(task, None)
        assert status in {0, signal.SIGKILL}, f"job {task} ended with {status}"
        found = java_oracle.check(root, api=api)
        whole = messages + rows_of(version)
        assert found["ok"], (task, found)
        assert found["messages"] in ({messages, whole} if status else {whole}), (task, found)
        messages, opened = found["messages"], opened + (status != 0)
    assert_sound(root, config, messages)
    return opened


def test_kills_of_spark(tmp_path, soak_seed):
    generator = random.Random(soak_seed)
    root, version, committed = tmp_path / "store", 0, []
    for kill in range(SPARK_KILLS):
        with subprocess.Popen(
            _command("write", root, version),
            env=_environment(),
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
            start_new_session=True,
        ) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == f"{READY}\n"
            time.sleep(generator.uniform(0, _LONGEST_S))  # the moment of the kill
            _kill_session(job.pid)
        last = Ledger(str(root)).last_version(APPLICATION)
        if last is not None:
            committed = list(range(last + 1))
            version = last + 1
        version += judge_store(root, committed, version, 1 + kill % 3)


def _kill_session(leader: int) -> None:
    """Kill Spark and its Python workers, which are in groups of their own, and await their end."""
    while alive := [pid for pid in _processes() if _session(pid) == leader]:
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _session(process: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, _, _, session = status.rpartition(")")[2].split()[:4]
    return None if state in "ZX" else int(session)


def test_killed_between_its_commit_and_sparks_own(tmp_path):
    """A streaming batch that is in the store is not appended again."""
    root, source = tmp_path / "store", tmp_path / "source"
    source.mkdir()
    pids, customized = tmp_path / "pids", tmp_path / "python"
    customized.mkdir()
    site = customized / "sitecustomize.py"
    command = _command("stream", root, source, tmp_path / "checkpoint", pids)
    written = 0
    for version in range(3):
        lines = [json.dumps({"topic": "A", "body": str(written + i)}) for i in range(20)]
        written += len(lines)
        (source / f"{version}.json").write_text("\n".join(lines))
        site.write_text(_DIE_AFTER_COMMIT.format(version=version, pids=str(pids)))
        killed = subprocess.run(command, env=_environment(customized), cwd=_ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert not (tmp_path / "checkpoint" / "commits" / str(version)).exists()
        site.unlink()
        subprocess.run(command, env=_environment(), cwd=_ROOT, check=True)
        assert (tmp_path / "checkpoint" / "commits" / str(version)).exists()
        last = rmqsource.last_commit(str(root))
        assert last is not None
        assert last.version == version
        assert _numbers(root) == list(range(written))


def _numbers(root: Path) -> list[int]:
    options = parse_options({"path": str(root)})
    parts = read_columns(options, ("body",))
    return sorted(int(body) for part in parts for body in part["body"].to_pylist())


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", _JOBS, *map(str, arguments)]


def _environment(*python_path: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, [*python_path, _ROOT]))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
