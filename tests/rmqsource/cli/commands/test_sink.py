# SPDX-License-Identifier: Apache-2.0
"""The commands copy and clean-staging, up to the point where Spark starts."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.prepared_write import plan_write
from rmqsource.sink.task import stage_part
from tests.golden_store import golden
from tests.rmqsource.sink.support import batch_of

pytest.importorskip("typer")


@pytest.mark.parametrize("command", ["copy", "import", "clean-staging"])
def test_help_shows_examples(run, command):
    assert f"rocketmq-store {command} " in run(command, "--help").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--write-option", "queues"], "--write-option: expected KEY=VALUE"),
        (["--write-option", "queues=0"], "--write-option queues: "),
        (["--write-option", "kueues=1"], "did you mean 'queues'"),
        (["--since", "yesterday"], "--since: "),
    ],
)
def test_copy_checks_before_spark_starts(run, tmp_path, arguments, reason):
    code, _, said = run("copy", golden("classic-5x").root, tmp_path / "new", *arguments)
    assert code == 2
    assert reason in said
    assert not (tmp_path / "new").exists()


def test_copy_refuses_to_copy_a_store_to_itself(run):
    root = golden("classic-5x").root
    code, _, said = run("copy", root, f"{root}/../{root.name}")
    assert (code, "the same store" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "import {}/files: there is no file part-"),
        (["--format", "csv"], "no part-*.csv file"),
        (["--write-option", "queues=0"], "--write-option queues: "),
    ],
)
def test_import_checks_before_spark_starts(run, tmp_path, arguments, reason):
    (tmp_path / "files").mkdir()
    code, _, said = run("import", tmp_path / "files", tmp_path / "new", *arguments)
    assert code == 2
    assert reason.format(tmp_path) in said
    assert not (tmp_path / "new").exists()


def test_what_was_abandoned_is_deleted(run, tmp_path):
    options = parse_sink_options({"path": str(tmp_path), "topic": "A"})
    columns = resolve_sink_columns([("body", "binary")], default_topic="A")
    part = stage_part([batch_of(body=[b"1", b"2"])], plan_write(options, columns), 0)
    assert run("clean-staging", tmp_path) == (0, "", "nothing to delete\n")
    for path in (Path(part.directory), *Path(part.directory).iterdir()):
        os.utime(path, (1, 1))
    assert run("clean-staging", tmp_path / "new")[0] == 2
    years = ("--older-than", 100 * 366 * 24)
    assert run("clean-staging", tmp_path, *years) == (0, "", "nothing to delete\n")
    code, _, said = run("clean-staging", tmp_path)
    assert code == 0
    assert said.startswith(f"deleted {part.directory}: ")
    assert not Path(part.directory).exists()


def test_what_was_abandoned_as_json(run, tmp_path):
    leftover = tmp_path / "_staging" / ("0" * 32)
    leftover.mkdir(parents=True)
    part = leftover / f"part-000000-{'0' * 32}.rows"
    part.write_bytes(b"123")
    for path in (part, leftover):
        os.utime(path, (1, 1))
    for deleted in ([{"directory": str(leftover), "bytes": 3}], []):
        code, out, err = run("clean-staging", tmp_path, "--format", "json")
        assert (code, err) == (0, "")
        assert json.loads(out) == {"store": str(tmp_path), "deleted": deleted}
    assert run("clean-staging", tmp_path, "--format", "csv").out == "directory,bytes\n"


@pytest.mark.parametrize(
    ("topic", "code", "messages"), [("TopicTest", 0, True), ("topictest", 1, False)]
)
def test_copy_tells_programs_what_it_did(spark, monkeypatch, run, tmp_path, topic, code, messages):
    from rmqsource import register
    from rmqsource.cli.commands import sink as cli_sink

    register(spark)
    monkeypatch.setattr(cli_sink, "spark_job", lambda *_: nullcontext(spark))
    store, target = golden("classic-5x"), tmp_path / "new"
    given = ["--topic", topic, "--format", "json", "--config", store.config_file]
    sizes = ("mappedFileSizeCommitLog=1m", "maxHashSlotNum=1000", "maxIndexNum=4000")
    for option in ("compatibility=5", "flush=async", *sizes):
        given += ["--write-option", option]
    found, out, err = run("copy", store.root, target, *given)
    assert found == code, err
    row = json.loads(out)
    assert (row["store"], row["messages"] > 0, row["left_out"]) == (str(target), messages, 0)
    assert ("no topic 'topictest', did you mean 'TopicTest'?" in err) is not messages
