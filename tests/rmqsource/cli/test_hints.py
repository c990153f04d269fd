# SPDX-License-Identifier: Apache-2.0
"""Hints of the command line about unknown names in a store, and about itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

from rmqsource.cli.commands import explore as cli_explore
from rmqsource.cli.read import unknown_topics
from rmqsource.options.source_options import options_for
from store_core import __version__
from store_core.native import path_name

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file)
NEAR = " no topic 'Order', did you mean 'orders'?"
ID = "C000020253ED30946E0969AAA41D0FFF"


@pytest.mark.parametrize(
    "command",
    [
        ["messages", STORE.root, "--topic", "Order"],
        ["messages", STORE.root, "--topic", "Order", "--id", ID],
        ["topics", STORE.root, "--option", "topic=Order"],
        ["trace", STORE.root, "--topic", "Order", "--key", "R0"],
        ["diff", STORE.root, STORE.root, "--topic", "Order"],
    ],
)
def test_the_nearest_topic_is_named(run: Run, command: list[object]) -> None:
    answer = run(*command, *SIZES)
    assert (answer.code, NEAR in answer.out) == (1, False)
    assert any(line.endswith(NEAR) for line in answer.err.splitlines())


def test_files_of_no_message_say_why(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(cli_explore, "export_messages", lambda *_: None)
    for command in ("report", "export"):
        answer = run(command, STORE.root, "-o", tmp_path / command, "--topic", "Order", *SIZES)
        assert (answer.code, f"the store knows{NEAR}" in answer.err.splitlines()) == (1, True)


@pytest.mark.parametrize("command", ["messages", "trace"])
def test_ids_that_are_not_there(run: Run, command: str) -> None:
    for message_id, as_what in (
        (ID, "neither as offset message id nor as unique key"),
        ("4711", "as unique key"),
    ):
        answer = run(command, STORE.root, "--id", message_id, *SIZES)
        expected = ["no message matches", f"id {message_id!r} was not found, {as_what}"]
        assert (answer.code, answer.err.splitlines()) == (1, expected)


def test_nothing_is_said_of_a_topic_that_is_known(run: Run) -> None:
    none = run("messages", STORE.root, "--topic", "orders", "--key", "none", *SIZES)
    assert (none.code, none.err) == (1, "no message matches\n")
    assert "no topic" not in run("diff", STORE.root, STORE.root, "--topic", "orders", *SIZES).err


def test_several_stores_know_topics_together() -> None:
    roots = [str(golden(name).root) for name in ("cluster-5x", "classic-5x")]
    asked = options_for(roots, {"topic": "orders,TopicTest,nobody-at-all"})
    assert list(unknown_topics(asked)) == ["the stores know no topic 'nobody-at-all'"]


def test_topics_that_cannot_be_read_count_as_missing(tmp_path: Path) -> None:
    root = STORE.copy_to(tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{not json at all")
    told = list(unknown_topics(options_for(str(root), {"topic": "Order"})))
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).unlink()
    assert told == list(unknown_topics(options_for(str(root), {"topic": "Order"}))) != []
    for name in ("config", "consumequeue"):
        shutil.rmtree(root / name)
    assert list(unknown_topics(options_for(str(root), {"topic": "Order"}))) == []


def test_an_option_far_from_all_is_told_them(run: Run) -> None:
    near = run("messages", STORE.root, "--option", "topics=a")
    assert near.err == "rocketmq-store: --option topics: is unknown, did you mean 'topic'?\n"
    far = run("messages", STORE.root, "--option", "zzzzzz=a")
    assert (near.code, far.code) == (2, 2)
    assert "is unknown; options are path, paths, table, topic, " in far.err


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"rocketmq-store {__version__} ({path_name()})\n", "")
