"""The README: its examples run, its tables are those of the code, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from rmqsource.demo_data import unpack_store
from tests.readme_tables import README, columns_section, options_section, with_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = README.read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_python_examples_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    monkeypatch.chdir(tmp_path)
    examples = blocks("python")
    assert len(examples) >= 5
    names: dict[str, object] = {}
    for number, example in enumerate(examples):
        exec(compile(example, f"README example {number + 1}", "exec"), names)
    shown = capfd.readouterr().out
    assert "|orders                           |4     |236     |" in shown  # example 1
    assert "|2026-11-21 12:26:33.0" in shown  # 2
    assert "|   orders|       0|" in shown  # 3
    assert "access path      index" in shown  # 4
    assert " messages of 707" in shown  # 5
    assert '"bytes_lost": ' in shown
    assert "GetMessageStatus.FOUND" in shown  # without Spark
    assert "['K155']" in shown


def test_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    from rmqsource.cli import main

    unpack_store(str(tmp_path / "demo"))
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert (left.value.code or 0) == 0, (line, said.err)
        assert said.out


def test_tables_are_those_of_the_code() -> None:
    assert with_tables(TEXT) == TEXT, "run python -m tests.readme_tables"
    assert columns_section() in TEXT
    assert options_section() in TEXT


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", TEXT)
    assert "docs/read-plan.svg" in links
    missing = [link for link in links if not (README.parent / link).exists()]
    assert missing == []


def test_picture_is_well_formed() -> None:
    picture = ElementTree.parse(README.parent / "docs" / "read-plan.svg").getroot()
    assert picture.tag.endswith("svg")
    background = picture.find("{http://www.w3.org/2000/svg}rect")
    assert background is not None  # text is dark: on a dark page it needs its own ground
    assert background.get("fill") == "#ffffff"


def test_marked_place_for_measurements() -> None:
    assert "<!-- bench -->" in TEXT
