from __future__ import annotations

from pathlib import Path

import pytest

from bench.make_store import make_store
from bench.scenarios.replication import ReplicatedLog, begin_copy
from bench.side_process import SideProcess, python_side

MESSAGES = 3_000
DEADLINE_S = 60


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
    return ReplicatedLog.of(tmp_path, MESSAGES)


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
