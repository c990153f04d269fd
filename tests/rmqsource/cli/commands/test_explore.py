# SPDX-License-Identifier: Apache-2.0
"""The commands trace, report, export, diff and topics."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from tests.golden_store import GoldenStore, golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

from rmqsource.report import report_data
from rmqsource.report.report_data import collect


@pytest.fixture(scope="module")
def store() -> GoldenStore:
    return golden("cluster-5x")


@pytest.fixture
def where(store: GoldenStore) -> list[str]:
    return [str(store.root), "--config", str(store.config_file)]


@pytest.mark.parametrize("command", ["trace", "report", "export", "diff", "topics"])
def test_help_shows_examples(run: Run, command: str) -> None:
    answer = run(command, "--help")
    assert answer.code == 0
    assert f"rocketmq-store {command} " in answer.out


def test_trace_as_a_timeline(run: Run, where: list[str]) -> None:
    answer = run("trace", *where, "--key", "R0", "--topic", "jobs")
    assert answer.code == 0, answer.err
    heading, *lines = [line for line in answer.out.splitlines() if line.strip()]
    assert heading.startswith("C000020253ED30946E0969AAA41D005E, topic jobs, keys R0, tags dead")
    assert heading.endswith("dead lettered after 27.8 s")
    assert len(lines) == 2 + 7
    assert "due 2026-11-21 12:26:36.598" in answer.out
    assert "+17 s" in answer.out


def test_trace_for_programs(run: Run, where: list[str]) -> None:
    wanted = ("--id", "C000020253ED30946E0969AAA41D005E", "--format")
    rows = [json.loads(line) for line in run("trace", *where, *wanted, "json").out.splitlines()]
    assert [row["event"] for row in rows][-1] == "dead_lettered"
    assert sum(row["wait_ms"] or 0 for row in rows) == 27845
    table = list(csv.DictReader(io.StringIO(run("trace", *where, *wanted, "csv").out)))
    assert [row["event"] for row in table] == [row["event"] for row in rows]


def test_trace_finds_nothing_or_is_not_asked(run: Run, where: list[str]) -> None:
    assert run("trace", *where, "--key", "none").code == 1
    answer = run("trace", *where)
    assert (answer.code, answer.err) == (2, "rocketmq-store: trace: give --key or --id\n")


def test_topics_tell_who_fills_the_disk(run: Run, where: list[str]) -> None:
    people = run("topics", *where).out.splitlines()
    assert people[2].split()[:9] == [
        *("documents", "normal", "2", "19", "176", "kB", "42.3", "%", "0.294"),
    ]
    rows = [json.loads(row) for row in run("topics", *where, "--format", "json").out.splitlines()]
    assert rows[0]["bytes"] == 175760
    assert {"bytes_share", "bytes_per_day", "growth", "retention_seconds"} < set(rows[0])


def test_diff_says_by_its_code_whether_messages_differ(run: Run) -> None:
    whole, cut = golden("crashed-5x"), golden("torn-5x", recovered=True)
    same = run("diff", str(whole.root), str(whole.root))
    assert (same.code, same.out) == (0, "")
    assert "A has 900 messages, B 900; 900 are the same" in same.err
    other = run("diff", str(whole.root), str(cut.root), "--format", "json", "--by", "position")
    assert other.code == 1
    assert len(other.out.splitlines()) == 100
    assert "100 only in A" in other.err
    few = run("diff", str(whole.root), str(cut.root), "--format", "csv", "--limit", "3")
    assert len(few.out.splitlines()) == 1 + 3
    assert run("diff", str(whole.root), "/no/such/store").code == 2


def test_report(run: Run, where: list[str], tmp_path: Path) -> None:
    page, data = tmp_path / "r.html", tmp_path / "r.json"
    answer = run("report", *where, "-o", str(page))
    assert answer.code == 0, answer.err
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert run("report", *where, "-o", str(data), "--format", "json").code == 0
    told = json.loads(data.read_text("utf-8"))
    assert told["messages"] == 707
    states = {line["subject"]: line["state"] for line in told["verdict"]}
    assert states["State"] == states["Damage"] == "good"
    assert states["Transactions"] == "act"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json"]
    assert page.stat().st_mode & 0o044


def test_what_a_library_warns_of_is_not_for_the_terminal(
    run: Run, where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warns(*given: object) -> object:
        warnings.warn("old", FutureWarning, stacklevel=1)
        return collect(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(report_data, "collect", warns)
    answer = run("report", *where, "-o", str(tmp_path / "r.html"))
    assert answer.code == 0
    assert "Warning" not in answer.err


def test_report_of_a_damaged_store(run: Run, tmp_path: Path) -> None:
    torn = golden("torn-5x")
    page = tmp_path / "r.html"
    answer = run("report", str(torn.root), "--config", str(torn.config_file), "-o", str(page))
    assert answer.code == 1
    assert "damage:" in answer.err
    assert "damaged places" in page.read_text("utf-8")


def test_a_damaged_place_is_told_once(run: Run, tmp_path: Path, where: list[str]) -> None:
    store = tmp_path / "store"
    shutil.copytree(where[0], store)
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(100_000)
        file.write(b"\xee" * 400)
    page = tmp_path / "page.json"
    answer = run("report", store, *where[1:], "-o", page, "--format", "json")
    assert answer.code == 1
    assert answer.err.count("damage: ") == 1
    data = json.loads(page.read_text("utf-8"))
    assert (data["damaged_places"], data["other_damage"]) == (1, [])
    others = run("transactions", store, *where[1:], "--option", "mode=PERMISSIVE")
    assert "dropped 1 damaged places" in others.err


def test_report_that_cannot_be_written(run: Run, where: list[str], tmp_path: Path) -> None:
    answer = run("report", *where, "-o", str(tmp_path / "none" / "r.html"))
    assert answer.code == 2
    assert "No such file" in answer.err


def test_a_directory_that_cannot_be_looked_at(
    run: Run, where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> bool:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(Path, "is_dir", fails)
    answer = run("report", *where, "-o", str(tmp_path / "r.html"))
    assert answer.code == 2
    assert answer.err == f"rocketmq-store: {tmp_path}: Input/output error\n"


def test_report_without_the_extra(
    run: Run, where: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    answer = run("report", *where, "-o", str(tmp_path / "r.html"))
    assert answer.code == 2
    assert "pip install '.[notebook]' in a clone" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--partition-by", "topic,hour"], "'hour' is neither topic nor day"),
        (["--since", "yesterday"], "--since"),
        (["--option", "nonsense=1"], "nonsense"),
    ],
)
def test_export_checks_before_spark_starts(
    run: Run, where: list[str], tmp_path: Path, arguments: list[str], reason: str
) -> None:
    answer = run("export", *where, "-o", str(tmp_path / "out"), *arguments)
    assert answer.code == 2
    assert reason in answer.err
    assert list(tmp_path.iterdir()) == []


def test_export_keeps_what_is_there(run: Run, where: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    answer = run("export", *where, "-o", str(tmp_path))
    assert answer.code == 2
    assert "give a new directory" in answer.err
