# SPDX-License-Identifier: Apache-2.0
"""Exit codes mean one thing: every command on good, damaged, lost, forbidden and missing stores."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqsource.exit_codes import FOUND, GOOD, MEANINGS, NOT_DONE
from store_core import HAService, MessageStore, MessageStoreConfig
from tests.conftest import ROOT
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

STORE = golden("cluster-5x")
SIZES = ("--config", str(STORE.config_file))

COMMANDS = {
    "info": "{store}",
    "topics": "{store}",
    "messages": "{store} --limit 0",
    "check": "{store}",
    "recover": "{store}",
    "rebuild-index": "{store}",
    "rebuild-queues": "{store}",
    "salvage": "{store} {out}",
    "trace": "{store} --key R0",
    "report": "{store} -o {out}",
    "diff": "{store} {good}",
    "export": "{store} -o {out}",
    "copy": "{store} {out}",
    "import": "{store} {out}",
    "clean-staging": "{store}",
    "lag": "{store}",
    "groups": "{store}",
    "dlq": "{store}",
    "delayed": "{store}",
    "timers": "{store}",
    "transactions": "{store}",
    "queues": "{store}",
    "segments": "{store}",
    "plan": "{store}",
    "follow": "{master} {store} --until 1",
}
"""Command -> its arguments; ``--config`` is added if the store has a configuration."""

OF_CLUSTERS = {"send", "tail"}
"""These work without a store; the tests of clusters cover them."""
RUNS_ON = {"serve"}
"""Only a signal ends it; its tests send one."""
WITHOUT_CONFIG = {"import", "clean-staging"}
STARTS_SPARK = {"export", "copy", "import"}
SEES_BODIES = {"messages", "check", "salvage", "report", "diff", "export", "copy"}
HAS_ALERTS = {
    **{"lag": "3", "dlq": "0", "delayed": "0", "timers": "0", "transactions": "0"},
    "segments": "1k",
}
READS_NO_LOG = {"clean-staging"}
MAKES_ITS_STORE = {"follow"}
TOPIC_FLAG = {
    "topics": ("--option", "topic=Order"),
    **dict.fromkeys(
        ("lag", "queues", "plan", "messages", "trace", "report", "diff", "export", "copy"),
        ("--topic", "Order"),
    ),
}


def good(place: Path) -> Path:
    return Path(shutil.copytree(STORE.root, place))


def damaged(place: Path) -> Path:
    """Return a store with a damaged body, made much as in the README."""
    with (good(place) / "commitlog" / "00000000000000131072").open("r+b") as segment:
        segment.seek(5000)
        segment.write(b"oops" * 100)
    return place


def lost(place: Path) -> Path:
    """Return a store whose log is on a disk that is not mounted."""
    for segment in (good(place) / "commitlog").iterdir():
        segment.unlink()
    return place


def other(place: Path) -> Path:
    place.mkdir()
    (place / "letter.txt").write_text("no store")
    return place


def missing(place: Path) -> Path:
    return place


def expected(command: str, state: str) -> int:
    """Return the exit code that its description demands."""
    if state in {"missing", "other", "wrong option"}:
        return NOT_DONE
    if command in READS_NO_LOG or state == "good":
        return GOOD
    if state == "forbidden":
        return NOT_DONE
    if state == "damaged":
        return FOUND if command in SEES_BODIES else GOOD
    return FOUND  # the log is lost, or the topic misspelt


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a master that has the log of the good store."""
    settings = MessageStoreConfig.from_file(str(STORE.config_file))
    settings = replace(settings, store_path_root_dir=str(good(tmp_path / "master")))
    with MessageStore(settings) as store, HAService(store, port=0) as service:
        yield service.address


@pytest.fixture
def call(
    run: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., tuple[int, str]]:
    def called(command: str, store: Path, *more: str) -> tuple[int, str]:
        words = COMMANDS[command].split()
        places = {"store": store, "good": STORE.root, "out": tmp_path / "out"}
        if command == "follow":
            places["master"] = request.getfixturevalue("master")
        config = () if command in WITHOUT_CONFIG else SIZES
        answer = run(command, *(word.format(**places) for word in words), *config, *more)
        assert "Traceback" not in answer.err
        if answer.code not in {GOOD, FOUND}:
            assert answer.err
        return answer.code, answer.out + answer.err

    return called


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None, raising=False)


def test_every_command_is_walked() -> None:
    from rmqsource.cli.app import app

    names = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    assert sorted(names) == sorted({*COMMANDS, *OF_CLUSTERS, *RUNS_ON})


@pytest.mark.parametrize("state", [good, damaged, lost, other, missing])
@pytest.mark.parametrize("command", COMMANDS)
def test_stores(
    call: Callable[..., tuple[int, str]], tmp_path: Path, command: str, state: Any
) -> None:
    if command in STARTS_SPARK and state not in {other, missing}:
        return  # below
    if command in MAKES_ITS_STORE and state is missing:
        return  # that is its purpose
    store = state(tmp_path / "store")
    before = sorted(store.rglob("*"))
    code, said = call(command, store)
    assert code == expected(command, state.__name__), said
    if state is lost and command not in READS_NO_LOG:
        assert "mounted" in said
        assert sorted(store.rglob("*")) == before
    if state is lost and command in {"info", "check"}:
        assert "stopped cleanly" not in said or command == "check"
        assert "verdict           good" not in said


@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_may_not_be_read(
    call: Callable[..., tuple[int, str]],
    tmp_path: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if command in STARTS_SPARK:
        return  # a worker meets it: see the source's own tests
    store = good(tmp_path / "store")
    opened = os.open

    def forbidding(path: Any, *args: Any, **more: Any) -> int:
        if str(path).startswith(str(store / "commitlog")):  # root may read all files
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *args, **more)

    monkeypatch.setattr(os, "open", forbidding)
    code, said = call(command, store)
    assert code == expected(command, "forbidden"), said
    assert command in READS_NO_LOG or "ermission" in said


@pytest.mark.parametrize("command", TOPIC_FLAG)
def test_a_misspelt_topic(
    call: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("rmqsource.cli.commands.explore.export_messages", lambda *_: None)
    monkeypatch.setattr("rmqsource.cli.commands.sink.spark_job", lambda *_: nullcontext())
    copied = pytest.importorskip("rmqsource.transfer.copy_store")
    monkeypatch.setattr(copied, "copy_store", lambda *_: copied.Copied(None, 0))
    code, said = call(command, STORE.root, *TOPIC_FLAG[command])
    assert code == expected(command, "misspelt topic")
    assert "no topic 'Order', did you mean 'orders'?" in said


NOTHING = ("--since", "2031-01-01T00:00:00Z")


@pytest.mark.parametrize("output", ["html", "json"])
def test_a_page_without_messages_is_written_and_told(run: Run, tmp_path: Path, output: str) -> None:
    target = tmp_path / "page"
    answer = run("report", STORE.root, *SIZES, *NOTHING, "-o", target, "--format", output)
    assert answer.code == FOUND
    assert f"no message matches: {target} was written without any" in answer.err
    if output == "json":
        assert json.loads(target.read_text())["messages"] == 0
    else:
        assert target.read_text().startswith("<!DOCTYPE html>")


def test_an_export_without_messages_is_written_and_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    from rmqsource import register

    register(spark)
    monkeypatch.setattr("rmqsource.cli.job.spark_job", lambda *_: nullcontext(spark))
    answer = run("export", STORE.root, *SIZES, *NOTHING, "-o", tmp_path / "out")
    assert answer.code == FOUND
    assert f"no message matches: {tmp_path / 'out'} was written without any" in answer.err
    read = spark.read.parquet(str(tmp_path / "out"))
    assert (read.count(), "commit_log_offset" in read.columns) == (0, True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_option(call: Callable[..., tuple[int, str]], command: str) -> None:
    code, said = call(command, STORE.root, "--option", "topics=a")
    assert code == expected(command, "wrong option")
    assert "did you mean" in said or command in WITHOUT_CONFIG


def test_bytes_that_are_no_log_are_not_stopped_cleanly(run: Run, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(range(1, 256)) * 100)
    answer = run("info", tmp_path, "--format", "json")
    assert (answer.code, answer.rows[0]["state"]) == (FOUND, "unknown")
    assert "begins with bytes that are not a record" in answer.err


@pytest.mark.parametrize("checked", [True, False])
def test_a_page_says_whether_bodies_were_checked(run: Run, tmp_path: Path, checked: bool) -> None:
    store = damaged(tmp_path / "store")
    page = tmp_path / "page.html"
    skip = () if checked else ("--option", "checkCRC=false")
    answer = run("report", store, "-o", page, *SIZES, *skip)
    text = page.read_text()
    assert answer.code == (FOUND if checked else GOOD)
    assert ("1 damaged place in the log" in text) is checked
    assert ("Every body was checked against its CRC" in text) is checked
    assert ("Bodies were not checked" in text) is not checked


def test_a_page_has_what_was_passed_over(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("report", lost(tmp_path / "store"), "-o", page, *SIZES).code == FOUND
    assert "is its disk mounted" in page.read_text()
    store = good(tmp_path / "torn")
    queue = store / "consumequeue" / "orders" / "0" / ("0" * 20)
    queue.write_bytes(queue.read_bytes()[:-7])
    answer = run("report", store, "-o", page, *SIZES)
    assert (answer.code, str(queue.parent) in page.read_text()) == (FOUND, True)


def test_a_difference_tells_what_it_passed_over(run: Run, tmp_path: Path) -> None:
    store = damaged(tmp_path / "store")
    answer = run("diff", store, STORE.root, *SIZES, "--option", "mode=PERMISSIVE")
    assert answer.code == FOUND
    assert answer.err.startswith('damage: {"reason"')
    assert "1 only in B" in answer.err
    trusting = ("--option", "checkCRC=false", "--option", "mode=PERMISSIVE")
    assert run("diff", store, STORE.root, *SIZES, *trusting).code == FOUND


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_an_export_tells_what_it_passed_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any, file_format: str
) -> None:
    from rmqsource import register

    register(spark)
    monkeypatch.setattr("rmqsource.cli.job.spark_job", lambda *_: nullcontext(spark))
    kind = ("--format", file_format)
    store = damaged(tmp_path / "store")
    passing = ("--option", "mode=DROPMALFORMED")
    found = run("export", store, "-o", tmp_path / "a", *kind, *SIZES, *passing)
    assert (found.code, "1 places cannot be read" in found.err) == (FOUND, True)
    assert "706 messages in" in found.err
    whole = run("export", STORE.root, "-o", tmp_path / "b", *kind, *SIZES)
    assert (whole.code, "707 messages in" in whole.err) == (GOOD, True)
    none = run("export", STORE.root, "-o", tmp_path / "c", *kind, *SIZES, "--topic", "Order")
    assert (none.code, "no message matches" in none.err) == (FOUND, True)


def test_a_copy_tells_what_it_passed_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    from rmqsource import register

    register(spark)
    monkeypatch.setattr("rmqsource.cli.commands.sink.spark_job", lambda *_: nullcontext(spark))
    store = damaged(tmp_path / "store")
    passing = ("--option", "mode=PERMISSIVE", "--topic", "documents,orders")
    found = run("copy", store, tmp_path / "new", *SIZES, *passing, "--format", "json")
    assert (found.code, found.rows[0]["damaged_parts"]) == (FOUND, 1), found.err


@pytest.mark.parametrize("command", HAS_ALERTS)
def test_alerts_are_one(call: Callable[..., tuple[int, str]], command: str) -> None:
    quiet = call(command, STORE.root, "--fail-above", "1000000000")
    assert (quiet[0], "alert: " in quiet[1]) == (GOOD, False)
    loud = call(command, STORE.root, "--fail-above", HAS_ALERTS[command])
    assert (loud[0], "alert: " in loud[1]) == (FOUND, True), loud[1]
    for wrong in ("-1", "many", ""):
        code, said = call(command, STORE.root, "--fail-above", wrong)
        assert (code, "--fail-above: expected" in said) == (NOT_DONE, True), said


def test_the_page_of_the_command_line_has_them_all() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert all(f"| {code} | {meaning} |" in text for code, meaning in MEANINGS.items())
