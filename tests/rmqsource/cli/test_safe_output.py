# SPDX-License-Identifier: Apache-2.0
"""No text in a store, and no path, can control a terminal or a spreadsheet."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import random
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.safe_text import json_text, printable, spreadsheet_text
from tests.rmqsource.cli.command_line import Run
from tests.store_factory import StoreFactory

pytest.importorskip("typer")

HOSTILE = (
    "\x1b]0;title\x07",  # ESC and BEL: sets the title of a terminal
    "\x9b31m",  # CSI of C1
    "\u202edetrevni\u2066",  # change the direction of writing
    "=cmd|' /C calc'!A1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\uff1d1+1",
    "a;=1+1",
    "\r\n=2",
    "\u2028line",
    "<script>alert(1)</script>",
    "\U000e0041tag",
    "\x7f",
)
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


@given(st.text() | st.sampled_from(HOSTILE))
def test_texts_are_printable_and_json_says_the_same(text: str) -> None:
    assert printable(text).isprintable()
    value = {"a": [text, 1, None], text: text}
    assert json_text(value).isprintable()
    assert json.loads(json_text(value)) == value
    cell = spreadsheet_text(text)
    assert cell.isprintable()
    assert not FORMULA.match(cell)


@pytest.mark.parametrize("text", ["a\udc80b", "\ud800", "plain", "größe 1"])
def test_bytes_of_a_name_that_are_no_utf_8(text: str) -> None:
    assert printable(text).encode()
    assert json.loads(json_text([text])) == [text]
    assert (printable(text) == text) is text.isprintable()


def hostile_store(place: Path, rng: random.Random) -> Path:
    """Return a store in which every name and text is hostile."""

    def text() -> str:
        return rng.choice(HOSTILE) + rng.choice(HOSTILE)

    # File systems accept all characters except NUL and the slash.
    root = place / text().replace("/", "")
    store = StoreFactory(root)
    for _ in range(12):
        properties = {
            **{"KEYS": text(), "TAGS": text(), "UNIQ_KEY": text()},
            **{"RETRY_TOPIC": text(), text(): text()},
        }
        topic = text().replace("/", "")
        store.add(rng.choice([topic, f"%DLQ%{topic}"]), text().encode(), properties=properties)
    store.write()
    groups = {f"{topic}@{text()}": {"0": 0} for topic, _ in store.queues}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": groups}))
    queue = next((root / "consumequeue").iterdir()) / "7"
    queue.mkdir()
    (queue / text().replace("/", "")).write_text("no queue")
    return root


COMMANDS = (
    ["info", "{}"],
    ["topics", "{}"],
    ["messages", "{}"],
    ["messages", "{}", "--id", HOSTILE[0]],
    ["messages", "{}", "--topic", HOSTILE[2]],
    ["messages", "{}", "--option", f"{HOSTILE[0]}=1"],
    ["messages", "{}/none"],
    ["check", "{}"],
    ["trace", "{}", "--key", "title"],
    ["trace", "{}", "--id", HOSTILE[1]],
    ["diff", "{}", "{}"],
    ["recover", "{}", "--dry-run"],
    *([name, "{}"] for name in ("lag", "groups", "dlq", "queues", "segments", "plan")),
    *([name, "{}", "--all"] for name in ("delayed", "transactions")),
    ["lag", "{}", "--group", HOSTILE[0], "--fail-above", "0"],
    ["lag", "{}", "--tz", HOSTILE[1]],
    ["messages", "{}", "--last", "5", "--grep", "."],
    ["messages", "{}", "--columns", HOSTILE[2]],
    ["messages", "{}", "--where", HOSTILE[3]],
    ["clean-staging", "{}"],
    ["info", "{}", f"--{HOSTILE[0]}"],
    ["copy", "{}", "{}", "{}"],
    [HOSTILE[0]],
)


@pytest.mark.parametrize("seed", range(3))
def test_no_command_lets_anything_through(run: Run, tmp_path: Path, seed: int) -> None:
    root = os.fspath(hostile_store(tmp_path, random.Random(seed)))
    if seed == 2:  # a byte that is not UTF-8, which is refused
        root = os.fspath(Path(root).rename(f"{root}\udcff"))
    for command in COMMANDS:
        words = [word.replace("{}", root) for word in command]
        has_format = words[0] not in {"copy", HOSTILE[0]}
        for output in ("table", "json", "spreadsheet"):
            answer = run(*words, *(["--format", output] if has_format else []))
            for line in f"{answer.out}\n{answer.err}".split("\n"):
                assert line.isprintable(), (command, output, line)
            assert "Traceback" not in answer.err
            if not has_format:
                continue  # the output is for people; click 8.1 shows its help
            if output == "json":
                assert all(answer.rows) or not answer.rows
            if output == "spreadsheet" and answer.code in {0, 1}:
                for row in csv.reader(io.StringIO(answer.out)):
                    assert not any(FORMULA.match(c) and not is_number(c) for c in row), (
                        command,
                        row,
                    )


def is_number(cell: str) -> bool:
    return re.fullmatch(r"-?[0-9.e+-]+", cell) is not None


def test_csv_is_exact_in_a_pipe_and_printable_on_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StoreFactory(tmp_path / "store")
    for text in HOSTILE:
        store.add(body=text.encode(), properties={"TAGS": text})
    root = store.write()
    exact = run("messages", root, "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(exact, newline="")))
    assert [row["tags"] for row in rows] == list(HOSTILE)
    assert [base64.b64decode(row["body"]).decode() for row in rows] == list(HOSTILE)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    shown = run("messages", root, "--format", "csv").out
    assert all(line.isprintable() for line in shown.split("\n"))


@pytest.mark.parametrize("output", ["html", "json"])
def test_a_report_shows_them_as_text(run: Run, tmp_path: Path, output: str) -> None:
    pytest.importorskip("matplotlib")
    root = hostile_store(tmp_path, random.Random(5))
    page = tmp_path / "page"
    answer = run("report", root, "-o", page, "--format", output)
    assert answer.code in {0, 1}, answer.err
    text = page.read_text("utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    if output == "html":
        assert text.count("<script") == 1  # its own
        assert text.count("&lt;script&gt;alert(1)") > 0
    else:
        assert json.loads(text)["stores"] == [os.fspath(root)]
