# SPDX-License-Identifier: Apache-2.0
"""First questions of an incident: lag, groups, dead letters, delays, transactions, files, plans."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqsource.cli.job import tasks_of
from rmqsource.cli.read import WrongUseError
from rmqsource.cli.report import Report
from rmqsource.cli.times import Threshold, count, count_or_span, size
from tests.conftest import ROOT
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file)
JSON = (*SIZES, "--format", "json")
COMMANDS = (
    "lag",
    "groups",
    "dlq",
    "delayed",
    "timers",
    "transactions",
    "queues",
    "segments",
    "plan",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples(run: Run, command: str) -> None:
    assert f"rocketmq-store {command} /data/store" in run(command, "--help").out


def test_lag_is_what_the_broker_said(run: Run) -> None:
    rows = run("lag", STORE.root, *JSON).rows
    lags = [row["lag"] for row in rows]
    assert lags == sorted(lags, reverse=True)
    worst = run("lag", STORE.root, *JSON, "--group", "cg_orders_lagging").rows
    assert [(row["topic"], row["queue_id"], row["lag"]) for row in worst] == [
        *(("orders", 0, 54), ("orders", 1, 47), ("orders", 2, 40), ("orders", 3, 33)),
    ]
    assert {row["topic"] for row in run("lag", STORE.root, *JSON, "--topic", "jobs").rows} == {
        "jobs"
    }
    unknown = run("lag", STORE.root, *JSON, "--group", "cg_orders_lagging,cg_order_lagging")
    assert (unknown.code, len(unknown.rows)) == (1, 4)
    assert "'cg_order_lagging', did you mean 'cg_orders_lagging'?" in unknown.err


def test_lag_alerts_by_messages_and_by_time(run: Run) -> None:
    for limit, code in (("173", 1), ("174", 0), ("1s", 1), ("1500ms", 0), ("5m", 0)):
        answer = run("lag", STORE.root, *SIZES, "--fail-above", limit)
        assert (answer.code, "alert: group 'cg_orders_lagging' is behind" in answer.err) == (
            code,
            bool(code),
        ), limit


def test_offsets_outside_of_their_queues_are_called_out(run: Run, tmp_path: Path) -> None:
    root = STORE.copy_to(tmp_path)
    path = root / "config" / "consumerOffset.json"
    text = path.read_text("utf-8")  # fastjson: keys that are numbers have no quotes
    first = text.index('"', text.index('"offsetTable"') + len('"offsetTable"'))
    path.write_text(f'{text[:first]}"orders@far":{{0:999999}},{text[first:]}', "utf-8")
    answer = run("lag", root, *JSON, "--group", "far")
    (row,) = answer.rows
    assert row["lag"] == row["broker_offset"] - 999_999 < 0
    assert answer.code == 0
    said = f"group 'far' is {-row['lag']:,} messages past the end of queue 0 of topic 'orders'"
    assert said in answer.err
    alert = run("lag", root, *SIZES, "--group", "far", "--fail-above", "1000000000")
    assert (alert.code, f"alert: {said}" in alert.err) == (1, True)
    groups = run("groups", root, *JSON, "--group", "far")
    assert (groups.rows[0]["lag"], groups.rows[0]["beyond_end"]) == (0, -row["lag"])
    assert said in groups.err
    check = run("check", root, *JSON)
    assert "far in orders/0" in check.out
    assert json.loads(check.out)["verdict"] == "needs repair: 1 findings"
    lagging = run("lag", root, *SIZES, "--group", "far,cg_orders_lagging", "--fail-above", "173")
    assert "'cg_orders_lagging' is behind in topic 'orders' by 174 messages" in lagging.err


def test_messages_that_expired_before_they_were_consumed_are_called_out(
    run: Run, tmp_path: Path
) -> None:
    store = golden("expired-5x")
    root = store.copy_to(tmp_path)
    sizes = ("--config", store.config_file)
    queues = run("queues", root, *sizes, "--format", "json").rows
    queue = next(row for row in queues if row["min_offset"] and row["messages"])
    table = {"offsetTable": {f"{queue['topic']}@late": {queue["queue_id"]: 0}}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table), "utf-8")
    answer = run("lag", root, *sizes, "--fail-above", "1000000000")
    said = f"alert: group 'late' has not consumed {queue['min_offset']:,} messages of queue "
    assert (answer.code, said in answer.err) == (1, True)
    assert run("groups", root, *sizes, "--format", "json").rows[0]["expired"] == queue["min_offset"]
    assert run("check", root, *sizes).code == 0


def test_groups(run: Run) -> None:
    rows = {row["group"]: row for row in run("groups", STORE.root, *JSON).rows}
    retry = rows["cg_orders_retry"]
    assert (retry["retry_messages"], retry["dead_letters"], retry["retry_max_times"]) == (12, 4, 2)
    lagging = rows["cg_orders_lagging"]
    assert (lagging["topics"], lagging["queues"], lagging["lag"]) == (1, 4, 174)
    assert rows["CID_ONS-HTTP-PROXY"]["queues"] == 0  # settings only
    one = run("groups", STORE.root, *JSON, "--group", "cg_orders_retry")
    assert one.rows == [retry]
    assert run("groups", STORE.root, "--group", "none").code == 1


def test_dead_letters_newest_first(run: Run) -> None:
    rows = run("dlq", STORE.root, *JSON).rows
    assert [row["keys"] for row in rows] == [["R12"], ["R8"], ["R4"], ["R0"]]
    assert {row["why"] for row in rows} == {"all 2 retries of the group failed"}
    few = run("dlq", STORE.root, *JSON, "--limit", "2", "--fail-above", "3")
    assert (few.rows, few.code) == (rows[:2], 1)
    assert few.err.splitlines() == [
        "only the first 2 rows are shown: --limit 0 shows all",
        "4 dead letters",
        "alert: 4 dead letters, above 3",
    ]
    none = run("dlq", STORE.root, *JSON, "--group", "cg_orders_all", "--fail-above", "0")
    assert (none.code, none.out, none.err) == (0, "", "no dead letters\n")
    assert run("dlq", STORE.root, *JSON, "--since", "2026-11-21T12:30:00Z").rows == []


def test_delayed_and_overdue(run: Run) -> None:
    at = ("--at", "2026-11-21T12:27:40Z")
    waiting = run("delayed", STORE.root, *JSON, *at)
    due = [row["deliver_timestamp"] for row in waiting.rows]
    assert due == sorted(due)
    assert {row["state"] for row in waiting.rows} == {"pending"}
    late = [row for row in waiting.rows if row["overdue_ms"] is not None]
    assert all(row["deliver_timestamp"] < "2026-11-21T12:27:40" for row in late)
    assert len(run("delayed", STORE.root, *JSON, "--all").rows) == 31
    later = ("--at", "2027-01-01T00:00:00Z")
    assert run("delayed", STORE.root, *SIZES, *later, "--fail-above", "5").code == 1
    assert run("delayed", STORE.root, *SIZES, *later, "--fail-above", "6").code == 0
    assert run("delayed", STORE.root, *SIZES, *later, "--fail-above", "2d").code == 1
    early = ("--at", "2026-11-21T12:26:00Z")
    assert run("delayed", STORE.root, *SIZES, *early, "--fail-above", "0").code == 0


def test_timers_and_overdue(run: Run) -> None:
    at = ("--at", "2026-11-21T12:27:47.500Z")
    waiting = run("timers", STORE.root, *JSON, *at)
    assert len(waiting.rows) == 5
    assert {row["state"] for row in waiting.rows} == {"pending"}
    assert [row["overdue_ms"] for row in waiting.rows] == [500, None, None, None, None]
    everything = run("timers", STORE.root, *JSON, "--all")
    assert len(everything.rows) == 24
    assert {row["state"] for row in everything.rows} == {"pending", "delivered"}
    assert run("timers", STORE.root, *SIZES, *at, "--fail-above", "0").code == 1
    assert run("timers", STORE.root, *SIZES, *at, "--fail-above", "1").code == 0


def test_transactions(run: Run) -> None:
    rows = run("transactions", STORE.root, *JSON).rows
    states = [row["state"] for row in rows]
    assert (states.count("pending"), states.count("check_exceeded"), len(states)) == (5, 3, 8)
    everything = run("transactions", STORE.root, *JSON, "--all")
    assert len(everything.rows) == 23
    assert everything.err == "3 check_exceeded, 10 committed, 5 pending, 5 rolled_back\n"
    assert run("transactions", STORE.root, *SIZES, "--fail-above", "7").code == 1
    assert run("transactions", STORE.root, *SIZES, "--fail-above", "8").code == 0


def test_segments(run: Run) -> None:
    rows = run("segments", STORE.root, *JSON, "--kind", "commitlog,index").rows
    assert {row["kind"] for row in rows} == {"commitlog", "index"}
    held = sum(int(str(row["file_size"])) for row in rows if row["kind"] == "commitlog")
    for limit, code in ((str(held - 1), 1), (str(held), 0), ("100k", 1), ("1g", 0)):
        answer = run("segments", STORE.root, *SIZES, "--kind", "commitlog", "--fail-above", limit)
        assert answer.code == code, limit
    assert run("segments", STORE.root, *SIZES, "--kind", "comitlog").code == 1


def test_queues(run: Run) -> None:
    rows = run("queues", STORE.root, *JSON, "--topic", "orders").rows
    assert [(row["queue_id"], row["messages"]) for row in rows] == [(n, 59) for n in range(4)]


def test_plan_says_what_messages_reads(run: Run) -> None:
    (row,) = run("plan", STORE.root, *JSON, "--topic", "orders", "--key", "K1").rows
    assert row["access_path"] == "index"
    people = run("plan", STORE.root, *SIZES, "--until", "2001-01-01T00:00:00Z").out
    assert "nothing in the log can match" in people
    assert "bytes_to_read" in people


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c not in {"queues", "plan", "segments"}]
)
def test_stores_with_nothing_of_it_are_good(run: Run, command: str) -> None:
    empty = golden("empty-5x")
    answer = run(command, empty.root, "--config", empty.config_file, "--format", "json")
    assert (answer.code, answer.out) == (0, "")


def test_thresholds() -> None:
    assert count(None) is None
    assert count("10") == Threshold("10", "count", 10)
    assert count_or_span("10") == Threshold("10", "count", 10)
    assert count_or_span("1.5h") == Threshold("1.5h", "ms", 5_400_000)
    assert size("64k") == Threshold("64k", "bytes", 65536)
    for parse, text in ((count, "5m"), (count, ""), (count_or_span, "5 apples"), (size, "5m5")):
        with pytest.raises(WrongUseError, match="--fail-above: expected"):
            parse(text)


def test_an_alert_is_above_and_not_at_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    said = Report()
    Threshold("5", "count", 5).judge(5, "5 things", said)
    assert said.exit_code == 0
    Threshold("5", "count", 5).judge(6, "6 things", said)
    assert said.exit_code == 1
    assert capsys.readouterr().err == "alert: 6 things, above 5\n"


def test_one_meaning_of_lists(run: Run) -> None:
    def ids(*flags: str) -> list[object]:
        return [row["message_id"] for row in run("messages", STORE.root, *JSON, *flags).rows]

    for flag, one, other in (
        ("--topic", "orders", "jobs"),
        ("--tag", "TagA", "TagB"),
        ("--key", "R0", "F0"),
    ):
        expected = ids(flag, one, flag, other)
        assert len(expected) > len(ids(flag, one)) > 0
        assert ids(flag, f"{one},{other}") == expected
        assert ids(flag, json.dumps([one, other])) == expected
    assert ids("--tag", "TagA || TagB") == ids("--tag", "TagA,TagB")
    both = run("messages", STORE.root, "--tag", "TagA && TagB")
    assert (both.code, "&& never matches" in both.err) == (2, True)


def test_every_unknown_topic_of_a_list_is_told(run: Run) -> None:
    for command in ("messages", "topics", "lag", "queues", "plan"):
        answer = run(command, STORE.root, *JSON, "--topic", "orders,Order,nobody-at-all")
        assert answer.code == 1
        said = [line for line in answer.err.splitlines() if "knows no topic" in line]
        assert len(said) == 2, (command, answer.err)


def test_a_configuration_of_something_else_is_refused(run: Run, tmp_path: Path) -> None:
    for text in ("hi", "", "a=1\nb=2\n"):
        (tmp_path / "file").write_text(text)
        answer = run("info", STORE.root, "--config", tmp_path / "file")
        assert (answer.code, answer.out) == (2, "")
        assert "has none of the keys of a broker's configuration" in answer.err
    (tmp_path / "file").write_text("brokerNam=a\n")
    assert (
        "did you mean 'brokerName'?" in run("info", STORE.root, "--config", tmp_path / "file").err
    )
    (tmp_path / "file").write_text("brokerName=other\n")
    facts = run("info", STORE.root, "--config", tmp_path / "file", "--format", "json").rows[0]
    assert facts["broker"] == "other"


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-4x"])
def test_info_names_the_broker_and_what_fills_the_disk(run: Run, name: str) -> None:
    store = golden(name)
    facts = run("info", store.root, "--format", "json").rows[0]
    assert (facts["broker"], facts["cluster"]) == ("broker-a", "DefaultCluster")
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert sum(int(str(facts[f"disk_{kind}"])) for kind in ("log", "queues", "index", "other")) == (
        sum(path.stat().st_size for path in files)
    )
    rows = run("messages", store.root, *("--config", store.config_file), "--format", "json").rows
    assert facts["messages"] == len(rows)


def test_a_page_is_not_begun_where_none_can_be_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqsource.cli.page._content", lambda *_: pytest.fail("it was read"))
    answer = run("report", STORE.root, *SIZES, "-o", tmp_path)
    assert (answer.code, "is a directory; give the name of a file" in answer.err) == (2, True)
    monkeypatch.setattr(os, "access", lambda *_: False)
    answer = run("report", STORE.root, *SIZES, "-o", tmp_path / "r.html")
    assert (answer.code, "is not writable" in answer.err) == (2, True)


def test_nothing_starts_spark_in_vain(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("job", "commands.sink"):
        monkeypatch.setattr(
            f"rmqsource.cli.{module}.spark_job", lambda *_: pytest.fail("Spark was started")
        )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    for command, reason in (
        (("copy", tmp_path / "nosuch", tmp_path / "new"), "does not exist"),
        (("export", tmp_path / "nosuch", "-o", tmp_path / "new"), "does not exist"),
        (("export", STORE.root, *SIZES, "-o", tmp_path / "full"), "exists already"),
        (("export", STORE.root, *SIZES, "-o", tmp_path / "full" / "file" / "a"), "no directory"),
        (("import", tmp_path / "nosuch", tmp_path / "new"), "nosuch"),
    ):
        answer = run(*command)
        assert (answer.code, reason in answer.err) == (2, True), answer.err
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "full"]


def test_a_bar_of_tasks_never_goes_back() -> None:
    assert tasks_of({}, set()) == (0, 0)
    assert tasks_of({1: (3, 10)}, {1}) == (3, 10)
    assert tasks_of({1: (9, 10), 2: (0, 5)}, {2}) == (10, 15)


def test_the_list_of_commands_is_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in run("--help").out.replace("[ARGS]...", "")


def test_shells_can_complete(tmp_path: Path) -> None:
    environment = {
        **{**os.environ, "PYTHONPATH": str(ROOT)},
        **{"_ROCKETMQ_STORE_COMPLETE": "complete_bash", "COMP_WORDS": "rocketmq-store del"},
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['rocketmq-store']; from rmqsource.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False, text=True
    )
    assert done.stdout.split() == ["delayed"], done.stderr


def test_pipes_are_utf_8_whatever_the_language(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        **{"PYTHONPATH": str(ROOT), "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
    }
    command = [sys.executable, "-m", "rmqsource.cli", "messages", str(STORE.root)]
    done = subprocess.run(
        [*command, "--format", "csv", "--grep", "数量", "--limit", "1"],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert "数量" in done.stdout.decode("utf-8")


def test_damage_says_what_to_do(run: Run, tmp_path: Path) -> None:
    shutil.copytree(golden("classic-5x").root, tmp_path / "store")
    segment = min((tmp_path / "store" / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff\xff\xff\xff")
    answer = run("check", tmp_path / "store")
    assert answer.code == 1
    assert f"rocketmq-store salvage {tmp_path / 'store'} NEW" in answer.err


def test_a_sound_store_needs_no_recovery(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    root = STORE.copy_to(tmp_path)
    row = run("recover", root, *JSON).rows[0]
    assert row["done"] == "nothing needed repair"


def test_errors_of_libraries_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Report().error(OSError("no library " * 2000 + "found"))
    said = capsys.readouterr().err
    assert len(said) < 2000
    assert said.startswith("rocketmq-store: no library")
    assert said.endswith("found\n")


def test_rates_of_days_are_not_told_of_minutes(run: Run) -> None:
    short = run("topics", STORE.root, *SIZES)
    assert "per_day" not in short.out
    assert "these messages cover only 1.08 min: rates per day" in short.err
    asked = run("topics", STORE.root, *SIZES, "--columns", "topic,per_day,growth")
    assert "235 MB" in asked.out
    assert asked.err == ""
    assert "only 1.08 min" in run("topics", STORE.root, *SIZES, "--limit", "1").err
    few = run("topics", STORE.root, *JSON, "--limit", "3").rows
    assert [row["topic"] for row in few] == ["documents", "orders", "readings"]
    assert {"bytes_per_day", "growth"} < set(few[0])


def test_other_tables_have_commands(run: Run) -> None:
    answer = run("messages", STORE.root, "--option", "table=consumer_offsets")
    assert (answer.code, "other tables have commands of their own: lag" in answer.err) == (2, True)


def test_export_needs_no_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "without" / "pandas").mkdir(parents=True)
    (tmp_path / "without" / "pandas" / "__init__.py").write_text("raise ImportError('none here')")
    path = os.pathsep.join([str(tmp_path / "without"), str(ROOT)])
    command = [sys.executable, "-m", "rmqsource.cli", "export", str(STORE.root), *map(str, SIZES)]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "out"), "--topic", "orders"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "236 messages in" in done.stderr
    assert list((tmp_path / "out").glob("part-*.parquet"))


def test_an_empty_log_is_no_store_that_was_stopped_cleanly(run: Run, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    answer = run("info", tmp_path, "--format", "json")
    assert (answer.code, answer.rows[0]["state"]) == (1, "unknown")
    assert "is its disk mounted" in answer.err
    empty = golden("empty-5x")
    made = run("info", empty.root, "--format", "json")
    assert (made.code, made.rows[0]["state"]) == (0, "stopped cleanly")
