# SPDX-License-Identifier: Apache-2.0
"""The newest messages are read from the end of the log; new ones are followed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqsource.cli.output import Display, Format, row_writer
from rmqsource.cli.read import Grep, read_messages, rows_of
from rmqsource.cli.row_source import write_new_rows
from rmqsource.cli.rows.store_rows import PLACE_COLUMNS, Follower, newest
from rmqsource.errors import DataLossError
from rmqsource.options.source_options import SourceOptions, options_for
from rmqsource.scan.read_columns import no_progress
from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import FileVanishedError
from tests.conftest import ROOT
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file)
COLUMNS = ("topic", "body", *PLACE_COLUMNS)


def read(options: SourceOptions) -> Any:
    for batch in read_messages(options, COLUMNS, no_progress):
        yield from rows_of(batch)


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["commit_log_offset"], row["queue_offset"]) for row in rows]


@pytest.mark.parametrize("name", ["cluster-5x", "batch-5x", "expired-5x", "multipath-5x"])
@pytest.mark.parametrize("window", [1 << 20, 1000, 37])
def test_they_are_the_last_of_all(name: str, window: int) -> None:
    store = golden(name)
    options = options_for(str(store.root), store.options)
    everything = sorted(places(list(read(options))))
    for count in (1, 7, 50, 10_000):
        if window == 37 and count > 7:
            continue
        found = places(newest(options, count, read, window))
        assert found == everything[::-1][:count], (name, window, count)


def test_selections_hold_for_the_newest(run: Run) -> None:
    every = run("messages", STORE.root, *SIZES, "--format", "json").rows
    for flags, chosen in (
        (["--topic", "orders"], lambda row: row["topic"] == "orders"),
        (["--tag", "TagA,TagB"], lambda row: row["tags"] in {"TagA", "TagB"}),
        (["--where", "queue_id = 1"], lambda row: row["queue_id"] == 1),
        (["--grep", "größe"], lambda row: "größe" in (row["body_text"] or "")),
        (["--key", "shared-key"], lambda row: "shared-key" in (row["keys"] or ())),
    ):
        answer = run("messages", STORE.root, *SIZES, "--last", "5", "--format", "json", *flags)
        expected = [row for row in every if chosen(row)]
        expected.sort(key=lambda row: row["commit_log_offset"])
        assert answer.rows == expected[::-1][:5], flags


def test_little_is_read_for_the_last(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 3000)
    spans = []

    def noting(options: SourceOptions) -> Any:
        bounds = [c.values[0] for c in options.where if c.column == "commit_log_offset"]
        spans.append(bounds[1] - bounds[0])
        return read(options)

    options = options_for(str(root))
    assert len(newest(options, 5, noting, 1 << 14)) == 5
    assert spans == [1 << 14]
    # Of a topic at the log's begin only the queue is read there: the windows double.
    spans.clear()
    first = newest(replace(options, topics=("first",)), 1, noting, 1 << 12)
    assert places(first) == [(0, 0)]
    assert spans[:-1] == sorted(spans[:-1])  # the last one ends where the log begins
    assert len(spans) < 20


def store_of(root: Path, messages: int) -> Path:
    with MessageStore(MessageStoreConfig(store_path_root_dir=str(root))) as store:
        store.put_message(Message(topic="first", queue_id=0, body=b"0"))
        for number in range(1, messages):
            store.put_message(Message(topic="orders", queue_id=0, body=b"%d" % number))
    return root


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"].decode() for row in rows]


def test_a_live_store_is_followed(tmp_path: Path) -> None:
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path / "store"))
    notes: list[str] = []
    with MessageStore(config) as store:

        def put(*texts: str, topic: str = "orders") -> None:
            for text in texts:
                store.put_message(Message(topic=topic, queue_id=0, body=text.encode()))

        put("a", "b", "c")
        options = options_for(str(tmp_path / "store"))
        follower = Follower(options, read, notes.append)
        orders = Follower(replace(options, topics=("orders",)), read, notes.append)
        assert bodies(follower.begin(2)) == ["b", "c"]
        assert bodies(orders.begin(0)) == []
        assert follower.look() == []
        put("d", "e")
        put("other", topic="jobs")
        assert bodies(follower.look()) == ["d", "e", "other"]
        assert bodies(orders.look()) == ["d", "e"]
        assert (follower.look(), orders.look()) == ([], [])
        put("f")
        assert bodies(follower.look()) == ["f"]
    assert notes == []


def test_what_happened_to_the_log_is_told(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 20)
    notes: list[str] = []
    follower = Follower(options_for(str(root)), read, notes.append)
    follower.begin(0)
    shutil.rmtree(root)
    store_of(root, 5)
    assert follower.look() == []
    assert "the log was cut at offset" in notes[0]
    assert follower.look() == []
    follower._seen = {str(root): -100}
    assert len(follower.look()) == 5
    assert notes[1:] == [f"{root}: 100 bytes were deleted before they were read"]


def test_files_that_go_while_they_are_read_are_looked_for_again(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 3)
    failures = [DataLossError("store", "gone"), FileVanishedError("gone", "file")]

    def failing(options: SourceOptions) -> Any:
        rows = list(read(options))
        yield rows[0]
        if failures:
            raise failures.pop()
        yield from rows[1:]

    follower = Follower(options_for(str(root)), failing, pytest.fail)
    follower._seen = {str(root): 0}
    assert (follower.look(), follower.look()) == ([], [])
    assert bodies(follower.look()) == ["0", "1", "2"]


def test_following_writes_as_rows_come(capsys: pytest.CaptureFixture[str]) -> None:
    looks = [[{"a": 1}], [], [{"a": 22_222_222}, {"a": 3}]]
    seen = []

    def wait() -> None:
        seen.append(capsys.readouterr().out.split())
        if not looks:
            raise KeyboardInterrupt

    writer = row_writer(Display(Format.table), ("a",))
    with pytest.raises(KeyboardInterrupt):
        write_new_rows(lambda: looks.pop(0), [{"a": 0}], writer, wait)
    # The heading is repeated only where a number does not fit.
    assert seen == [["a", "─", "0"], ["1"], [], ["a", "─" * 8, "22222222", "3"]]


def test_ctrl_c_ends_a_follower_with_its_own_code(tmp_path: Path) -> None:
    root = store_of(tmp_path / "store", 20)
    command = [sys.executable, "-m", "rmqsource.cli", "messages", str(root), "--follow"]
    with subprocess.Popen(
        [*command, "--last", "3", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert [re.findall('"body_text": "([0-9]+)"', line) for line in lines] == [
        ["17"],
        ["18"],
        ["19"],
    ]
    assert (process.returncode, said.decode()) == (130, "rocketmq-store: interrupted\n")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--last", "3", "--id", "x"], "--last: cannot be given together with --id"),
        (["--follow", "--id", "x"], "--follow: cannot be given together with --id"),
        (["--last", "3", "--limit", "2"], "--last: cannot be given together with --limit"),
        (["--follow", "--limit", "2"], "--follow: cannot be given together with --limit"),
        (["--follow", "--option", "snapshot={}"], "together with --option snapshot"),
        (["--last", "0"], "--last"),
        (["--grep", ""], "--grep: is empty"),
        (["--grep", "a(b"], "--grep: 'a(b' is not a valid RE2 regular expression"),
        (["--where", "body = 1"], "--where: expected a column"),
        (["--where", ""], "--where: is empty"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, flags: list[str], reason: str) -> None:
    answer = run("messages", STORE.root, *flags)
    assert (answer.code, answer.out, reason in answer.err) == (2, "", True), answer.err


def test_damage_behind_the_newest_is_not_met(tmp_path: Path, run: Run) -> None:
    shutil.copytree(golden("classic-5x").root, tmp_path / "store")
    segment = min((tmp_path / "store" / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff\xff\xff")  # the magic code of the first record
    root = tmp_path / "store"
    options = options_for(str(root), golden("classic-5x").options)
    assert len(newest(options, 3, read, 2000)) == 3
    passed = run("messages", root, "--last", "10000", "--option", "mode=PERMISSIVE")
    assert (passed.code, "dropped 1 damaged places" in passed.err) == (1, True)


def test_grep_sees_bodies_and_properties(run: Run) -> None:
    every = run("messages", STORE.root, *SIZES, "--format", "json").rows
    assert len(every) == 707

    def found(pattern: str) -> set[str]:
        answer = run(
            "messages", STORE.root, *SIZES, "--format", "json", "--limit", "0", "--grep", pattern
        )
        return {row["message_id"] for row in answer.rows}

    for pattern in ("数量", "TAGS=Tag[AB]$", '^\\{"kind"', "(?i)GROUP=cg_", "no such text at all"):
        expected = {
            row["message_id"]
            for row in every
            if re.search(pattern, row["body_text"] or "")
            or any(re.search(pattern, f"{k}={v}") for k, v in row["properties"].items())
        }
        assert found(pattern) == expected, pattern
    assert found("TAGS=TagA")


def test_grep_on_parts_of_arrays() -> None:
    pa = pytest.importorskip("pyarrow")
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.array([[("a", "1")], [], None, [("b", "2"), ("c", "x")], [("x", "")]], kind)
    body = pa.array([b"", b"x", None, b"", b"\xff"], pa.binary())
    assert Grep("x").mask({"body": body, "properties": maps}).to_pylist() == [
        *(False, True, False, True, True),
    ]
    part = {"body": body.slice(2), "properties": maps.slice(2)}
    assert Grep("x").mask(part).to_pylist() == [False, True, True]
