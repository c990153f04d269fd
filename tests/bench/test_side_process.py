# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.java_side import JavaSide, JavaSideError, last_round
from bench.make_store import make_store
from bench.scenarios.replication import ReplicatedLog, begin_copy
from bench.side_process import SideError, SideProcess, parse_figures, python_side

TALKER = """
import sys
from bench.side_process import tell, until_input_ends
print("a line of a log")
tell("first", seconds=1.5)
tell("second", count=2)
until_input_ends()
tell("last", count=3)
"""
OUTPUT = """2026-01-01 INFO store loaded
{"figure":"scan_decode","count":5,"seconds":2.0,"round":0}
{"other":1}
{"figure":"scan_decode","count":5,"seconds":1.0,"round":1}
{"figure":"else","count":7,"seconds":1.0}
"""
MESSAGES = 3_000
DEADLINE_S = 60


def started(program: str) -> SideProcess:
    return SideProcess([sys.executable, "-c", program])


def test_figures_come_while_the_process_lives_and_it_ends_with_its_input():
    with started(TALKER) as side:
        assert side.figure("second", 30) == {"figure": "second", "count": 2}
    assert side.figure("last", 30)["count"] == 3


def test_a_process_that_ended_is_told_with_what_it_said():
    expected = "ended without figure 'put'.*no room"
    with started("raise SystemExit('no room')") as side, pytest.raises(SideError, match=expected):
        side.figure("put", 30)


def test_a_figure_that_does_not_come_is_told():
    with started(TALKER) as side:
        side.figure("second", 30)
        with pytest.raises(SideError, match=r"no figure 'third' in 0.2 s"):
            side.figure("third", 0.2)


def test_bytes_of_files_arrive(tmp_path):
    sizes = [3_000_000, 5]
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes):
        path.write_bytes(bytes(size))
    stream = [sys.executable, "-m", "bench.byte_stream"]
    with SideProcess([*stream, "send", *map(str, paths)]) as sender:
        port = str(sender.figure("listening", 30)["port"])
        with SideProcess([*stream, "receive", port, str(sum(sizes))]) as receiver:
            assert receiver.figure("received", 30)["count"] == sum(sizes)


def test_figures_are_found_among_log_lines():
    figures = parse_figures(OUTPUT)
    assert [figure["figure"] for figure in figures] == ["scan_decode", "scan_decode", "else"]
    assert last_round(figures, "scan_decode")["seconds"] == 1.0


def test_missing_maven_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaSideError, match="JDK and Maven"):
        JavaSide(tmp_path).build()


@pytest.fixture
def log(tmp_path: Path) -> ReplicatedLog:
    make_store(
        tmp_path / "master",
        messages=MESSAGES,
        body_bytes=100,
        segment_bytes=1 << 18,
        units_per_queue_file=1_000,
        max_hash_slot_num=1_000,
        max_index_num=10_000,
    )
    begin_copy(tmp_path / "master", tmp_path / "begun")
    return ReplicatedLog.make(tmp_path, MESSAGES)


def side(command: str, *arguments: object) -> SideProcess:
    return python_side("bench.replica_side", command, *map(str, arguments))


def address(master: SideProcess) -> str:
    return f"127.0.0.1:{master.figure('listening', DEADLINE_S)['port']}"


def test_a_slave_begins_with_the_first_record_and_gets_all_others(log: ReplicatedLog) -> None:
    master = side("master", log.master)
    with master, side("slave", log.fresh_slave(), address(master), log.end, "flushed") as slave:
        assert slave.figure("log", DEADLINE_S)["seconds"] > 0
        slave.figure("dispatched", DEADLINE_S)
    log.check_slave()


def test_a_slave_that_lacks_messages_is_told(log: ReplicatedLog) -> None:
    log.fresh_slave()
    with pytest.raises(ValueError, match="1 of 3000 messages"):
        log.check_slave()


@pytest.mark.parametrize("sync", [(), ("--sync",)])
def test_messages_are_put_while_a_slave_follows(tmp_path: Path, sync: tuple[str, ...]) -> None:
    arguments = (tmp_path / "master", 200, 100, 2, "--slaves", 1, "--rounds", 2, *sync)
    master = side("put", *arguments)
    with master, side("slave", tmp_path / "slave", address(master), 0, "appended"):
        assert [master.figure("put", DEADLINE_S)["round"] for _ in range(2)] == [0, 1]
        master.figure("followed", DEADLINE_S)
