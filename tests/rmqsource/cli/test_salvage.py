# SPDX-License-Identifier: Apache-2.0
"""``rocketmq-store salvage``: its output and its exit codes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rmqsource.cli.app import app
from tests.store_factory import small_store

RUNNER = CliRunner()


@pytest.fixture
def damaged_store(tmp_path):
    factory = small_store(tmp_path / "old", 40)
    root, lost = factory.write(), factory.records[20]
    factory.erase(lost)
    return root


def run(*arguments):
    sizes = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    return RUNNER.invoke(app, ["salvage", *map(str, arguments), *sizes])


def test_it_tells_what_is_lost(damaged_store, tmp_path):
    result = run(damaged_store, tmp_path / "new")
    assert result.exit_code == 1
    assert "hold no record" in result.output
    assert "damaged_parts" in result.output
    assert (tmp_path / "new.salvage.json").is_file()
    assert run(damaged_store, tmp_path / "new").exit_code == 2


def test_json_is_the_whole_report(damaged_store, tmp_path):
    result = run(damaged_store, tmp_path / "new", "--format", "json")
    line = next(line for line in result.output.splitlines() if line.startswith("{"))
    assert json.loads(line) == json.loads((tmp_path / "new.salvage.json").read_text("utf-8"))


def test_the_target_comes_before_warnings(damaged_store, tmp_path):
    (damaged_store / "consumequeue" / "SCHEDULE_TOPIC_XXXX").mkdir(parents=True)
    assert "messageDelayLevel" in run(damaged_store, tmp_path / "new").output
    refused = run(damaged_store, tmp_path / "new")
    assert refused.output.endswith("already exists; give a new directory\n")
    assert refused.output.count("\n") == 1


def test_a_good_store_loses_nothing(tmp_path):
    root = small_store(tmp_path / "old", 10).write()
    result = run(root, tmp_path / "new", "--format", "csv")
    assert result.exit_code == 0, result.output
    assert run(root, root / "inside").exit_code == 2
