# SPDX-License-Identifier: Apache-2.0
"""``follow``: making and updating a copy of a running master on the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqsource.exit_codes import FOUND, GOOD, NOT_DONE
from store_core import (
    FollowState,
    HAService,
    Message,
    MessageStore,
    MessageStoreConfig,
    StoreSnapshot,
)
from tests.conftest import ROOT
from tests.rmqsource.cli.command_line import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("typer")
from rmqsource.cli.follow_state import lag_text

SEGMENT = 1 << 16
SIZES = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 400,
}
OPTIONS = tuple(word for key, size in SIZES.items() for word in ("--option", f"{key}={size}"))
DEADLINE_S = 60


def config(root: Path, **more: Any) -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(
        {"storePathRootDir": str(root), **{key: str(size) for key, size in SIZES.items()}, **more}
    )


def put(store: MessageStore, count: int, first: int = 0) -> int:
    for number in range(first, first + count):
        body = bytes([number % 251]) * 300
        message = Message("orders", body, queue_id=number % 2, keys=[f"K{number}"])
        assert store.put_message(message).status.name == "PUT_OK"
    return store.max_phy_offset


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """Return a store of five segments."""
    settings = config(tmp_path / "master", haSendHeartbeatInterval="200")
    with MessageStore(settings) as store:
        put(store, 600)
        yield store


@pytest.fixture
def service(master: MessageStore) -> Iterator[HAService]:
    with HAService(master, port=0) as serving:
        yield serving


def log_bytes(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def assert_copied(copy: Path, master: Path) -> None:
    originals = log_bytes(master)
    assert log_bytes(copy) == {name: originals[name] for name in log_bytes(copy)}


def log_end(root: Path) -> int:
    with StoreSnapshot(root) as found:
        return found.max_phy_offset


def test_a_whole_copy_is_made_and_read(
    run: Run, master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    copy, end = tmp_path / "copy", master.max_phy_offset
    answer = run(
        *("follow", service.address, copy, *OPTIONS),
        *("--from-offset", "earliest", "--until", end),
    )
    assert (answer.code, answer.out) == (GOOD, "")
    assert f"{copy} is new and begins with the master's oldest message" in answer.err
    assert "inSyncReplicas above 1 counts it as a replica" in answer.err
    assert "consumer offsets, delay offsets and consumer groups are not replicated" in answer.err
    assert (
        f"the log has reached offset {end}; the copy has the log up to offset {end}" in answer.err
    )
    assert_copied(copy, tmp_path / "master")
    assert min(log_bytes(copy)) == "0" * 20
    found = run("messages", copy, "--topic", "orders", "--key", "K333", "--format", "json")
    assert [row["keys"] for row in found.rows] == [["K333"]]
    assert run("check", copy, *OPTIONS).code == GOOD


def test_it_goes_on_where_it_was(
    run: Run, master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    first = run("follow", service.address, copy, *OPTIONS, "--until", master.max_phy_offset)
    assert "is new and begins at the first byte of the master's last segment" in first.err
    begin = master.max_phy_offset - master.max_phy_offset % SEGMENT
    assert min(log_bytes(copy)) == f"{begin:020}"
    end = put(master, 300, 600)
    again = ("follow", service.address, copy, *OPTIONS, "--until", end, "--from-offset", "5")
    answer = run(*again)
    assert answer.code == GOOD
    assert "from offset" in answer.err
    assert f"--from-offset has no effect: {copy} already has a log" in answer.err
    assert_copied(copy, tmp_path / "master")
    assert log_end(copy) == end


def test_json_lines_tell_how_far_it_is(
    run: Run, master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    end = master.max_phy_offset
    answer = run(
        *("follow", service.address, tmp_path / "copy", *OPTIONS),
        *("--until", end, "--format", "json", "--ack", "never"),
    )
    assert answer.code == GOOD
    last = answer.rows[-1]
    assert (last["max_offset"], last["master"]) == (end, service.address)
    assert last["store"] == str(tmp_path / "copy")
    assert last["acked_offset"] == 0
    assert {"time", "connection", "lag_bytes", "lag_ms", "flushed_offset", "error"} <= set(last)
    assert "this copy acknowledges nothing" in answer.err


def test_a_copy_cannot_begin_after_the_end_of_the_master(
    run: Run, service: HAService, tmp_path: Path
) -> None:
    follow = ("follow", service.address, tmp_path / "copy", *OPTIONS, *impatient(tmp_path))
    answer = run(*follow, "--from-offset", 100 * SEGMENT)
    assert answer.code == FOUND
    assert f"has nothing at offset {100 * SEGMENT}" in answer.err
    assert "has everything" not in answer.err


def impatient(place: Path) -> tuple[str, str]:
    """Return a configuration with short heartbeat intervals instead of five seconds."""
    file = place / "broker.conf"
    file.write_text("brokerName=a\nhaSendHeartbeatInterval=200\n")
    return "--config", str(file)


def test_a_copy_that_is_ahead_is_told_and_cut_if_wanted(
    run: Run, master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    copy, end = tmp_path / "copy", master.max_phy_offset
    follow = ("follow", service.address, copy, *OPTIONS, *impatient(tmp_path))
    assert run(*follow, "--until", end).code == GOOD
    with MessageStore(config(copy)) as store:
        put(store, 5, 5000)
    ahead = run(*follow, "--until", end)
    assert ahead.code == FOUND
    assert f"this copy is ahead of {service.address}" in ahead.err
    assert ahead.err.count("this copy is ahead") == 1
    later = put(master, 10, 600)
    cut = run(*follow, "--until", later, "--cut")
    assert cut.code == GOOD
    assert_copied(copy, tmp_path / "master")
    assert log_end(copy) == later


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("nowhere", "copy"), "nowhere"),
        (("127.0.0.1:0", "copy"), "127.0.0.1:0"),
        (("127.0.0.1:10912", "copy", "--from-offset", "last"), "--from-offset: expected a number"),
        (("127.0.0.1:10912", "copy", "--option", "topics=a"), "did you mean"),
        (("127.0.0.1:10912", "other"), "the directory has other contents (letter.txt)"),
        (("127.0.0.1:10912", "copy", "--config", "elsewhere.conf"), "/data/log, outside the store"),
    ],
)
def test_wrong_use_makes_nothing(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    (tmp_path / "elsewhere.conf").write_text("brokerName=a\nstorePathCommitLog=/data/log\n")
    answer = run("follow", *arguments)
    assert answer.code == NOT_DONE
    assert expected in answer.err
    assert not (tmp_path / "copy").exists()


class Following:
    """The command in a process of its own."""

    def __init__(self, address: str, copy: Path, *more: str) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rmqsource.cli", "follow", address, str(copy)),
                *(*OPTIONS, "--format", "json", *more),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.timer = threading.Timer(DEADLINE_S, self.process.kill)
        self.timer.start()

    def until_it_has(self, offset: int) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["max_offset"] >= offset:
                return
        raise AssertionError(self.process.communicate()[1])

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate()
        self.timer.cancel()
        return self.process.returncode, err


def test_a_signal_stops_it_cleanly(
    master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    following = Following(service.address, copy)
    following.until_it_has(master.max_phy_offset)
    end = put(master, 20, 600)
    following.until_it_has(end)
    code, err = following.stop(signal.SIGTERM)  # Ctrl-C is in the test with a terminal
    assert code == GOOD, err
    assert f"stopped; the copy has the log up to offset {end}" in err
    assert not (copy / "abort").exists()
    assert log_end(copy) == end


def test_a_person_sees_how_far_it_is(
    master: MessageStore, service: HAService, tmp_path: Path
) -> None:
    terminal = pytest.importorskip("tests.rmqsource.cli.test_interrupt")
    command = terminal.Command("follow", service.address, str(tmp_path / "copy"), *OPTIONS)
    whole = f"offset {master.max_phy_offset:,}, [0-9.]+ MB/s, up to date"
    assert command.interrupt_when(re.compile(whole.encode())) == GOOD, command.shown


def state(**more: Any) -> FollowState:
    values: dict[str, Any] = {field.name: 0 for field in fields(FollowState)}
    return FollowState(**{**values, "is_caught_up": False, **more})


def test_the_lag_is_told_in_bytes_and_seconds() -> None:
    assert lag_text(state(is_caught_up=True)) == "up to date"
    assert lag_text(state(lag_bytes=None)) == "lag not known"
    assert lag_text(state(lag_bytes=12_345, lag_ms=None)) == "12,345 bytes behind"
    assert lag_text(state(lag_bytes=12_345, lag_ms=2_340)) == "12,345 bytes, 2.3 s behind"


def test_it_waits_for_a_master_that_is_away(master: MessageStore, tmp_path: Path) -> None:
    with HAService(master, port=0) as first:
        address = first.address
        following = Following(address, tmp_path / "copy")
        following.until_it_has(master.max_phy_offset)
    end = put(master, 20, 600)
    port = int(address.rpartition(":")[2])
    with HAService(master, port=port):
        following.until_it_has(end)
        code, err = following.stop(signal.SIGTERM)
    assert (code, "trying again" in err) == (GOOD, True), err


def test_a_copy_is_read_while_it_follows(
    master: MessageStore, service: HAService, tmp_path: Path, run: Run
) -> None:
    copy = tmp_path / "copy"
    following = Following(service.address, copy, "--from-offset", "earliest")
    end = master.max_phy_offset
    following.until_it_has(end)
    for count in (600, 620):
        answer = run("messages", copy, "--topic", "orders", "--format", "json", *OPTIONS)
        assert (answer.code, len(answer.rows), answer.err) == (GOOD, count, "")
        following.until_it_has(put(master, 20, count))
    assert following.stop(signal.SIGTERM)[0] == GOOD
