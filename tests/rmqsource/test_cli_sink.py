"""The commands copy and clean-staging, up to where Spark starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rmqsource import cli
from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.planning import plan_write
from rmqsource.sink.task import stage_part
from tests.golden_store import golden
from tests.rmqsource.sink.support import batch_of

pytest.importorskip("typer")


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rocketmq-store", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        code = left.value.code
        return code if isinstance(code, int) else 0, capsys.readouterr().err

    return call


@pytest.mark.parametrize("command", ["copy", "import", "clean-staging"])
def test_help_shows_examples(monkeypatch, capsys, command):
    monkeypatch.setattr(sys, "argv", ["rocketmq-store", command, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert f"rocketmq-store {command} " in capsys.readouterr().out


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
    code, said = run("copy", golden("classic-5x").root, tmp_path / "new", *arguments)
    assert code == 2
    assert reason in said
    assert not (tmp_path / "new").exists()


def test_copy_refuses_to_copy_a_store_to_itself(run):
    root = golden("classic-5x").root
    code, said = run("copy", root, f"{root}/../{root.name}")
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
    code, said = run("import", tmp_path / "files", tmp_path / "new", *arguments)
    assert code == 2
    assert reason.format(tmp_path) in said
    assert not (tmp_path / "new").exists()


def test_what_was_abandoned_is_deleted(run, tmp_path):
    options = parse_sink_options({"path": str(tmp_path), "topic": "A"})
    columns = resolve_sink_columns([("body", "binary")], default_topic="A")
    part = stage_part([batch_of(body=[b"1", b"2"])], plan_write(options, columns), 0)
    assert run("clean-staging", tmp_path) == (0, "nothing to delete\n")
    for path in (Path(part.directory), *Path(part.directory).iterdir()):
        os.utime(path, (1, 1))
    code, said = run("clean-staging", tmp_path)
    assert code == 0
    assert said.startswith(f"deleted {part.directory}: ")
    assert not Path(part.directory).exists()
    assert run("clean-staging", tmp_path / "new")[0] == 2
