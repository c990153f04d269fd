# SPDX-License-Identifier: Apache-2.0
"""The command line: output for people and for programs, exit codes."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqsource import cli
from rmqsource.cli.info import FACTS
from rmqsource.cli.output import printable, shown
from tests.conftest import ROOT
from tests.golden_store import GoldenStore, golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")


@pytest.fixture(scope="module")
def store() -> GoldenStore:
    return golden("cluster-5x")


@pytest.fixture
def sizes(store: GoldenStore) -> list[str]:
    return ["--config", str(store.config_file)]


@pytest.mark.parametrize("command", ["info", "topics", "messages"])
def test_help_shows_examples_and_exit_codes(run: Run, command: str) -> None:
    answer = run(command, "--help")
    assert answer.code == 0
    assert f"rocketmq-store {command} /data/store" in answer.out
    assert "2 wrong usage" in " ".join(answer.out.split())


def test_info_as_json_names_every_fact(run: Run, store: GoldenStore, sizes: list[str]) -> None:
    answer = run("info", str(store.root), "--format", "json", *sizes)
    assert answer.code == 0, answer.err
    (facts,) = answer.rows
    assert tuple(facts) == FACTS
    assert facts["state"] == "stopped cleanly"
    assert facts["log_end"] == facts["log_bytes"] == 460585
    assert facts["segments"] == 4
    assert facts["log_ends_because"] == "only zeros follow"
    assert facts["index_files"] == 3
    assert facts["first_store_timestamp"] == "2026-11-21T12:26:29.413Z"


def test_info_for_people_and_as_csv(run: Run, store: GoldenStore, sizes: list[str]) -> None:
    people = run("info", str(store.root), *sizes)
    assert people.code == 0
    assert "stopped cleanly" in people.out
    table = run("info", str(store.root), "--format", "csv", *sizes)
    (row,) = csv.DictReader(io.StringIO(table.out))
    assert row["log_end"] == "460585"


@pytest.mark.parametrize("name", ["crashed-5x", "empty-5x", "onefile-5x", "batch-5x"])
def test_info_of_stores_in_other_states(run: Run, name: str) -> None:
    other = golden(name)
    answer = run("info", str(other.root), "--format", "json", "--config", str(other.config_file))
    assert answer.code == 0, answer.err
    expected = "not stopped cleanly" if name == "crashed-5x" else "stopped cleanly"
    assert answer.rows[0]["state"] == expected


def test_info_goes_on_without_topics_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("cluster-5x").root, root, ignore=shutil.ignore_patterns("timer*"))
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{not json at all")
    answer = run("info", str(root), "--format", "json")
    assert answer.code == 0
    assert "topics.json: not what a broker writes: " in answer.err
    assert "; it is treated as missing here" in answer.err
    assert answer.rows[0]["topics"] > 0  # those that have queues
    assert answer.rows[0]["log_end"] is not None


def test_topics(run: Run, store: GoldenStore) -> None:
    rows = run("topics", str(store.root), "--format", "json").rows
    orders = next(row for row in rows if row["topic"] == "orders")
    assert (orders["queues"], orders["messages"], orders["kind"]) == (4, 236, "normal")
    assert orders["store"] == str(store.root)
    table = run("topics", str(store.root), "--option", "topic=orders")
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()[2:] if line] == ["orders"]
    assert str(store.root) not in table.out


def test_topics_without_any_is_one(run: Run, store: GoldenStore) -> None:
    answer = run("topics", str(store.root), "--option", "topic=nobody", "--format", "csv")
    assert answer.code == 1
    assert answer.out.startswith("topic,queues,messages,bytes,")
    assert answer.err == "no topic\nthe store knows no topic 'nobody'\n"


def test_messages_as_json_are_exact(run: Run, store: GoldenStore) -> None:
    answer = run("messages", str(store.root), "--format", "json", "--limit", "0")
    assert answer.code == 0, answer.err
    rows = answer.rows
    assert len(rows) == 707
    first = rows[0]
    assert first["store_timestamp"] == "2026-11-21T12:26:29.413Z"
    assert first["keys"] == ["F0"]
    properties = first["properties"]
    assert isinstance(properties, dict)
    assert properties["TAGS"] == "TagA"
    assert isinstance(first["body"], str)
    assert base64.b64decode(first["body"]).decode() == first["body_text"]


def test_messages_as_csv(run: Run, store: GoldenStore) -> None:
    answer = run("messages", str(store.root), "--topic", "orders", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert len(rows) == 236
    assert {row["topic"] for row in rows} == {"orders"}
    assert json.loads(rows[0]["properties"])["UNIQ_KEY"] == rows[0]["unique_key"]


def test_table_shows_twenty_and_says_so(run: Run, store: GoldenStore) -> None:
    answer = run("messages", str(store.root))
    assert answer.code == 0
    assert len([line for line in answer.out.splitlines() if line.startswith("2026-")]) == 20
    assert answer.err == "only the first 20 rows are shown: --limit 0 shows all\n"
    exact = run("messages", str(store.root), "--topic", "jobs", "--limit", "16")
    assert exact.err == ""


def test_key_tag_and_time(run: Run, store: GoldenStore, sizes: list[str]) -> None:
    root = str(store.root)
    by_key = run("messages", root, "--topic", "orders", "--key", "shared-key", "--format", "json")
    assert len(by_key.rows) == 30
    two = ["--key", "shared-key", "--key", "F0"]
    assert len(run("messages", root, *two, "--format", "json", *sizes).rows) == 31
    by_tag = run("messages", root, "--topic", "orders", "--tag", "TagA", "--format", "json").rows
    assert {row["tags"] for row in by_tag} == {"TagA"}
    window = ["--since", "2026-11-21T12:26:33Z", "--until", "2026-11-21T13:26:34+01:00"]
    times = [
        str(row["store_timestamp"])
        for row in run("messages", root, *window, "--format", "json").rows
    ]
    assert times
    assert all("2026-11-21T12:26:33.000Z" <= t < "2026-11-21T12:26:34.000Z" for t in times)


def test_id_says_which_id_it_was(run: Run, store: GoldenStore) -> None:
    root = str(store.root)
    first = run("messages", root, "--limit", "1", "--format", "json").rows[0]
    by_id = run("messages", root, "--id", str(first["message_id"]).lower(), "--format", "json")
    assert (by_id.err, by_id.rows) == ("found by offset message id\n", [first])
    by_key = run("messages", root, "--id", str(first["unique_key"]), "--format", "json")
    assert (by_key.err, by_key.rows) == ("found by unique key\n", [first])
    shown_whole = run("messages", root, "--id", str(first["message_id"]))
    assert "unique_key" in shown_whole.out
    assert str(first["body_text"]) in shown_whole.out


def test_nothing_found_is_one(run: Run, store: GoldenStore) -> None:
    answer = run("messages", str(store.root), "--id", "F" * 32)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines() == [
        "no message matches",
        f"id '{'F' * 32}' was not found, neither as offset message id nor as unique key",
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--since", "2026-11-21T12:00:00"], "--since: '2026-11-21T12:00:00' has no offset"),
        (["--option", "topics=a"], "did you mean 'topic'?"),
        (["--option", "topic"], "--option: expected KEY=VALUE; found 'topic'"),
        (["--topic", "a", "--option", "TOPIC=b"], "--option TOPIC: is given twice"),
        (["--option", "table=keys"], "--option table: is set by the command"),
        (["--topic", "a", "--option", "topicPattern=b"], "--topic: cannot be given together"),
        (["--option", "maxIndexNum=-1"], "--option maxIndexNum: expected an integer"),
        (["--config", "/nowhere/broker.conf"], "/nowhere/broker.conf"),
        (["--format", "xml"], "xml"),
        (["--limit", "many"], "--limit"),
    ],
)
def test_wrong_use_is_two(run: Run, store: GoldenStore, arguments: list[str], reason: str) -> None:
    answer = run("messages", str(store.root), *arguments)
    assert answer.code == 2
    assert reason in answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("command", ["info", "topics", "messages"])
def test_no_store_is_two(run: Run, tmp_path: Path, command: str) -> None:
    answer = run(command, str(tmp_path / "missing"))
    assert answer.code == 2
    assert "does not exist" in answer.err
    assert answer.err.count("\n") == 1


def test_damage_is_one_and_says_how_to_read_on(run: Run, tmp_path: Path) -> None:
    shutil.copytree(golden("classic-5x").root, tmp_path / "store")
    segment = min((tmp_path / "store" / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff\xff\xff")  # the magic code of the first record
    root = str(tmp_path / "store")
    failed = run("messages", root, "--format", "json")
    assert failed.code == 1
    assert failed.out == ""
    assert "--option mode=PERMISSIVE" in failed.err
    rest = run("messages", root, "--format", "json", "--option", "mode=PERMISSIVE")
    assert rest.code == 1
    assert rest.err.startswith('damage: {"reason"')
    dropped = run("messages", root, "--format", "json", "--option", "mode=DROPMALFORMED")
    assert dropped.code == 1
    assert dropped.rows == rest.rows
    assert len(rest.rows) > 100
    assert "dropped 1 damaged places" in dropped.err


def test_several_stores(run: Run) -> None:
    roots = [str(golden(name).root) for name in ("cluster-5x", "cluster-4x")]
    rows = run("topics", *roots, "--format", "json").rows
    assert {row["store"] for row in rows} == set(roots)
    assert all(root in run("topics", *roots).out for root in roots)


@pytest.mark.parametrize("command", ["info", "topics"])
def test_selections_of_messages_are_refused(run: Run, store: GoldenStore, command: str) -> None:
    answer = run(command, str(store.root), "--option", "keys=K1")
    assert answer.code == 2
    assert "--option keys: does not apply to table" in answer.err


def test_nothing_in_a_body_steers_the_terminal() -> None:
    assert printable("a\x1b[31m\r\n\u202e") == "a\\x1b[31m\\r\\n\\u202e"
    assert shown("größe\u0007".encode()) == "größe\\x07"
    assert shown(b"\xff\x00") == "0xff00"
    assert shown(b"\xff" * 100) == "0x" + "ff" * 40 + "…"
    assert shown("é" * 121) == "é" * 121
    assert shown(("é" * 121).encode()) == "é" * 120 + "…"


def test_missing_extra_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "rmqsource.cli.app", raising=False)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "pip install '.[cli]' in a clone" in capsys.readouterr().err


def test_closed_pipe_is_quiet_and_spark_is_not_loaded(store: GoldenStore) -> None:
    code = (
        "import sys; from rmqsource.cli import main\n"
        "try: main()\n"
        "finally: print('pyspark' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "messages", str(store.root), "--format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert (process.wait(), errors) == (0, "False\n")


def test_help_knows_what_options_without_a_default_take(run: Run) -> None:
    """Also before Python 3.11, which adds a wrapper to their annotations."""
    shown = run("messages", "--help").out
    assert "--grep REGEX" in shown
    assert "--last N" in shown
