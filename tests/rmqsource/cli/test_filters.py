# SPDX-License-Identifier: Apache-2.0
"""Options that select messages, combined: different options narrow, values of one option add."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from store_core import SqlFilter
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Answer, Run

pytest.importorskip("typer")

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file, "--format", "json")
UNKNOWN_ID = "C000020253ED30946E0969AAA41D0FFF"


@pytest.fixture
def all_rows(run: Run) -> list[dict[str, Any]]:
    return run("messages", STORE.root, *SIZES).rows


def given(flag: str, values: list[str], rng: random.Random) -> list[str]:
    """Return a flag with values: repeated, in one text, or as JSON."""
    if not values:
        return []
    kind = rng.choice(["repeated", "commas", "json"])
    texts = {"repeated": values, "commas": [" , ".join(values)], "json": [json.dumps(values)]}
    return [word for text in texts[kind] for word in (flag, text)]


def some(values: list[str], rng: random.Random) -> list[str]:
    return rng.sample(sorted(set(values)), rng.choice([0, 0, 1, 2]))


def test_any_mixture_selects_what_all_of_its_options_select(
    run: Run, all_rows: list[dict[str, Any]]
) -> None:
    rng = random.Random(12)
    found = 0
    for _ in range(40):
        near = rng.sample(all_rows, 3)  # so that some conjunctions are not empty
        topics = some([row["topic"] for row in near], rng)
        keys = some([key for row in near for key in row["keys"] or ()], rng)
        ids = some([row[name] for row in near for name in ("message_id", "unique_key")], rng)
        tags = some([row["tags"] for row in near if row["tags"]], rng)
        flags = [
            *given("--topic", topics, rng),
            *given("--key", keys, rng),
            *given("--id", ids, rng),
            *(word for tag in tags for word in ("--tag", tag)),
        ]
        answer = run("messages", STORE.root, *flags, *SIZES)
        expected = [
            row
            for row in all_rows
            if (not topics or row["topic"] in topics)
            and (not keys or set(keys) & set(row["keys"] or ()))
            and (not ids or {row["message_id"], row["unique_key"]} & set(ids))
            and (not tags or row["tags"] in tags)
        ]
        places = {row["commit_log_offset"] for row in expected}
        assert {row["commit_log_offset"] for row in answer.rows} == places, flags
        assert len(answer.rows) == len(places), flags
        missing = [
            i for i in ids if not any(i in {r["message_id"], r["unique_key"]} for r in expected)
        ]
        assert answer.code == int(not places or bool(missing)), flags
        for text in missing:
            assert f"id {text!r} was found, but " in answer.err, flags
        found += bool(places) and len(places) < len(all_rows)
    assert found > 10


def test_a_trace_is_narrowed_too(run: Run, all_rows: list[dict[str, Any]]) -> None:
    row = next(r for r in all_rows if r["topic"] == "orders" and r["keys"])
    key, unique_key = row["keys"][0], row["unique_key"]
    both = run("trace", STORE.root, "--key", f"R0,{key}", "--id", unique_key, *SIZES)
    assert both.code == 0
    assert {r["unique_key"] for r in both.rows} == {unique_key}
    either = run("trace", STORE.root, "--key", "R0", "--key", key, *SIZES)
    assert {r["unique_key"] for r in both.rows} < {r["unique_key"] for r in either.rows}
    none = run("trace", STORE.root, "--key", "R0", "--id", unique_key, *SIZES)
    assert (none.code, none.out) == (1, "")
    assert f"id {unique_key!r} was found, but with keys '{key}'" in none.err
    one = run("trace", STORE.root, "--id", unique_key, "--id", UNKNOWN_ID, *SIZES)
    assert {r["unique_key"] for r in one.rows} == {unique_key}
    assert (one.code, f"id {UNKNOWN_ID!r} was not found" in one.err) == (1, True)


def test_what_leaves_an_id_out_is_told(run: Run, all_rows: list[dict[str, Any]]) -> None:
    row = next(r for r in all_rows if r["topic"] == "orders" and r["keys"] and r["tags"])
    none = json.dumps({"orders": {str(queue): 0 for queue in range(4)}})
    for flags, reason in (
        (["--topic", "jobs"], "in topic 'orders'"),
        (["--option", "topicPattern=j.*"], "in topic 'orders'"),
        (["--option", "queueId=9"], f"in queue {row['queue_id']}"),
        (["--key", "nobodys"], f"with keys '{row['keys'][0]}'"),
        (["--tag", "nobodys"], f"with tag {row['tags']!r}"),
        (["--sql", "TAGS = 'none'"], "with properties that --sql does not match"),
        (["--until", "2001-01-01T00:00:00Z"], "stored at 2026-11-21 12:26:3"),
        (["--option", f"endingOffsets={none}"], "another option excludes it"),
    ):
        for text in (row["message_id"], row["unique_key"]):
            answer = run("messages", STORE.root, "--id", text, *flags, *SIZES)
            lines = answer.err.splitlines()
            assert (answer.code, lines[0]) == (1, "no message matches")
            assert lines[1].startswith(f"id {text!r} was found, but {reason}"), flags


def test_one_topic_of_two_is_unknown(run: Run) -> None:
    for command in (["messages"], ["trace", "--key", "R0"]):
        answer = run(*command, STORE.root, "--topic", "jobs,Order", *SIZES)
        assert (answer.code, len(answer.rows) > 0) == (1, True)
        assert answer.err.endswith("no topic 'Order', did you mean 'orders'?\n")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--id", ""], "--id: expected names"),
        (["--id", "a,,b"], "--id: expected names"),
        (["--key", ""], "--key: expected names"),
        (["--topic", " "], "--topic: expected names"),
        (["--tag", ""], "--tag: is empty"),
        (["--since", ""], "--since: is empty"),
        (["--config", ""], "--config: is empty"),
        (["--since", "1", "--since", "2"], "--since is given twice"),
        (["--id", "a", "--option", "uniqueKeys=b"], "--id: is also given by --option"),
        (["--since", "1795263993"], "--since: 1795263993 looks like seconds"),
        (["--until", "1795263993"], "write 1795263993000; if you meant milliseconds"),
    ],
)
def test_what_says_nothing_is_refused(run: Run, flags: list[str], reason: str) -> None:
    answer = run("messages", STORE.root, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err


def test_keys_with_commas(run: Run) -> None:
    answer: Answer = run("messages", STORE.root, "--key", '["R0,R1"]', *SIZES)
    assert (answer.code, answer.rows) == (1, [])
    assert len(run("messages", STORE.root, "--key", "R0,R1", *SIZES).rows) > 1


def test_a_consumers_sql_filter(run: Run, all_rows: list[dict[str, Any]]) -> None:
    expression = "n < 100 AND region IN ('north', 'east') OR TAGS = 'TagD'"
    wanted = SqlFilter(expression)
    expected = [row for row in all_rows if wanted.matches(row["properties"])]
    assert 0 < len(expected) < len(all_rows)
    answer = run("messages", STORE.root, "--sql", expression, *SIZES)
    assert (answer.code, answer.rows) == (0, expected)
    assert "messages for which the SQL filter has no result are skipped, first at offset" in (
        run("messages", STORE.root, "--sql", "amount > 5", *SIZES).err
    )


def test_what_rocketmq_ignores_of_a_filter_is_told(run: Run) -> None:
    answer = run("messages", STORE.root, "--sql", "TAGS LIKE 'T%'", *SIZES)
    assert (answer.code, answer.out) == (1, "")
    assert "--sql: RocketMQ ignores \"LIKE 'T%'\"" in answer.err
    older = run("messages", STORE.root, "--sql", "TAGS CONTAINS 'T'", "--sql-dialect", "4", *SIZES)
    assert "RocketMQ ignores" in older.err
    newer = run("messages", STORE.root, "--sql", "TAGS CONTAINS 'T'", *SIZES)
    assert (newer.code, "ignores" in newer.err) == (0, False)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--sql", "a >"], "--sql: SQL filter, column 4"),
        (["--sql", ""], "--sql: is empty"),
        (["--sql", "a > 1", "--sql-dialect", "6"], "--sql-dialect: "),
        (["--sql-dialect", "4"], "--sql-dialect: applies only to option 'sqlFilter'"),
        (["--sql", "a > 1", "--option", "sqlFilter=b > 1"], "sqlFilter"),
    ],
)
@pytest.mark.parametrize("command", ["messages", "plan"])
def test_a_filter_that_cannot_be(run: Run, command: str, flags: list[str], reason: str) -> None:
    answer = run(command, STORE.root, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err
