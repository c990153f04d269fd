# SPDX-License-Identifier: Apache-2.0
"""Tables at any terminal width: numbers whole, texts cut first, then columns left out."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from termios import TIOCSWINSZ

import pytest
from rich.cells import cell_len

from rmqsource.cli.output import GAP, TableColumn, fit_table, folded, table_rows
from tests.conftest import ROOT
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

STORE = golden("cluster-5x")
OTHER = golden("cluster-4x")
SIZES = ("--config", STORE.config_file)
WIDTHS = (*range(60, 140, 3), 160, 200)
COMMANDS = {
    "topics": ("topics", STORE.root),
    "messages": ("messages", STORE.root),
    "newest": ("messages", STORE.root, "--last", "30"),
    "lag": ("lag", STORE.root),
    "groups": ("groups", STORE.root),
    "dlq": ("dlq", STORE.root),
    "delayed": ("delayed", STORE.root, "--all"),
    "transactions": ("transactions", STORE.root, "--all"),
    "queues": ("queues", STORE.root),
    "segments": ("segments", STORE.root),
    "trace": ("trace", STORE.root, "--key", "R0"),
    "diff": ("diff", STORE.root, OTHER.root),
    "two stores": ("topics", STORE.root, OTHER.root),
}
IDS = {"message_id", "unique_key", "transaction_id", "other_message_id"}
MAY_BE_CUT = {
    *("body", "detail", "why", "keys", "passed_by", "tags", "path", "store", "place"),
    *("topic", "real_topic", "group", "producer_group", "in_store", "other_store"),
}


def table_of(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of the only table in an output, by the line below its heading."""
    lines = _below_a_heading(lines)
    at = next(i for i, line in enumerate(lines) if line and not line.strip("─ "))
    spans = [found.span() for found in re.finditer("─+", lines[at])]
    begin = at
    while begin and lines[begin - 1].strip():
        begin -= 1
    heads = [[_cut(line, span) for line in lines[begin:at]] for span in spans]
    rows = [[_cut(line, span) for span in spans] for line in lines[at + 1 :] if line]
    return ["".join(parts) for parts in heads], rows


def _below_a_heading(lines: list[str]) -> list[str]:
    """Return the lines without the heading of a message's trace, however it is folded."""
    for end in range(1, len(lines) if lines[0].startswith("C0000") else 0):
        if re.search("after[0-9.]+s$", "".join(lines[:end]).replace(" ", "")):
            return lines[end:]
    return lines


def _cut(line: str, span: tuple[int, int]) -> str:
    """Return the part of a line between two cells of a terminal."""
    column, part = 0, ""
    for character in line:
        if span[0] <= column < span[1]:
            part += character
        column += cell_len(character)
    return part.strip()


@pytest.fixture
def at_width(run: Run, monkeypatch: pytest.MonkeyPatch):
    def call(width: int, *arguments: object):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        with monkeypatch.context() as patched:
            patched.setattr(type(sys.stdout), "isatty", lambda _: True)
            return run(*arguments, *SIZES)

    return call


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_are_whole_at_any_width(run: Run, at_width, name: str) -> None:
    whole = run(*COMMANDS[name], *SIZES)
    headings, rows = table_of(whole.out.splitlines())
    columns = {head: [row[i] for row in rows] for i, head in enumerate(headings)}
    shown_before = 0
    for width in WIDTHS:
        answer = at_width(width, *COMMANDS[name])
        assert answer.code == whole.code
        lines = answer.out.splitlines()
        assert max(map(cell_len, lines)) <= width, (width, lines)
        heads, cells = table_of(lines)
        for i, head in enumerate(heads):
            found = [row[i] for row in cells]
            if head in MAY_BE_CUT:
                assert all(
                    a == b or a.endswith("…") or a.startswith("…")
                    for a, b in zip(found, columns[head])
                )
            else:
                assert found == columns[head], (width, head)
        left_out = [head for head in headings if head not in heads]
        note = f"hidden to fit the terminal: {', '.join(left_out)}"
        told = re.search(
            "hidden to fit the terminal: (.*) \\(choose with --columns NAMES", answer.err
        )
        assert (set(told[1].split(", ")) if told else set()) == names_of(left_out, name), note
        assert len(heads) >= shown_before  # a wider terminal never shows fewer columns
        shown_before = len(heads)


def names_of(headings: list[str], name: str) -> set[str]:
    """Return the names of columns by their headings in the table."""
    named = {
        **{"share": "bytes_share", "per_second": "messages_per_second", "per_day": "bytes_per_day"},
        **{"retention": "retention_seconds", "lag_time": "lag_ms", "overdue": "overdue_ms"},
        **{"file": "file_size", "used": "used_bytes"},
    }
    return {named.get(heading, heading) for heading in headings}


def test_eighty_columns_show_what_matters(at_width) -> None:
    for command, wanted in {
        "topics": {"topic", "messages", "bytes", "share"},
        "messages": {"store_timestamp", "topic", "message_id", "body"},
        "trace": {"at", "wait", "event", "place"},
        "lag": {"group", "topic", "queue_id", "lag", "lag_time"},
        "dlq": {"group", "message_id", "store_timestamp"},
    }.items():
        heads, _ = table_of(at_width(80, *COMMANDS[command]).out.splitlines())
        assert wanted <= set(heads), command


def test_a_message_of_the_list_is_found_by_its_id(run: Run, at_width) -> None:
    for width in (60, 80, 120):
        heads, rows = table_of(at_width(width, *COMMANDS["messages"]).out.splitlines())
        message_id = rows[4][heads.index("message_id")]
        assert "body" in run("messages", STORE.root, "--id", message_id, *SIZES).out


def test_columns_are_chosen(run: Run, at_width) -> None:
    chosen = ("--columns", "queue_id,topic", "--columns", "body")
    heads, _ = table_of(at_width(60, *COMMANDS["messages"], *chosen).out.splitlines())
    assert heads == ["queue_id", "topic", "body"]
    row = run("messages", STORE.root, *SIZES, *chosen, "--format", "json").rows[0]
    assert list(row) == ["queue_id", "topic", "body", "body_text"]
    csv = run("topics", STORE.root, *SIZES, "--columns", "topic,share", "--format", "csv").out
    assert csv.splitlines()[0] == "topic,bytes_share"
    wrong = run("topics", STORE.root, *SIZES, "--columns", "topics")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no column 'topics', did you mean 'topic'?" in wrong.err
    facts = run("info", STORE.root, *SIZES, "--columns", "broker,messages").out.split()
    assert facts == ["broker", "broker-a", "messages", "707"]


def test_wide_is_what_a_pipe_gets(run: Run, at_width) -> None:
    assert at_width(60, *COMMANDS["messages"], "--wide").out == run(*COMMANDS["messages"]).out


def test_records_fold_between_words(at_width) -> None:
    for width in (60, 100):
        lines = at_width(width, "messages", STORE.root, "--key", "R0", "--id", _some_id()).out
        assert max(map(len, lines.splitlines())) <= width
        assert _some_id() in lines


def test_lines_of_a_folded_text_begin_with_a_word() -> None:
    text = "messages are lost; a recovery by RocketMQ that comes here cuts off all after it"
    for room in range(12, 60):
        lines = folded(text, room)
        assert max(map(len, lines)) <= room
        assert not any(line.startswith(" ") for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_heading_of_a_life_is_folded(at_width, width: int) -> None:
    lines = at_width(width, "trace", STORE.root, "--key", "R0").out.splitlines()
    assert max(map(len, lines)) <= width
    heading = " ".join(lines[: next(i for i, line in enumerate(lines) if line.startswith("─"))])
    assert _some_id() in heading
    assert "dead lettered after 27.8 s" in " ".join(heading.split())


def _some_id() -> str:
    return "C000020253ED30946E0969AAA41D005E"


def test_one_column_stays_however_narrow() -> None:
    columns = [TableColumn("message_id", "message_id", ("A" * 32,), False)]
    layout = fit_table(columns, 20)
    assert (layout.names, layout.widths) == (("message_id",), (20,))
    assert table_rows(columns, layout) == ["A" * 19 + "…"]


def test_wide_characters_and_ends_of_paths() -> None:
    columns = [
        TableColumn("body", "body", ("数量数量数量数量", "ab"), False),
        TableColumn("path", "path", ("/data/store/commitlog/00000000000000131072",), False),
    ]
    layout = fit_table(columns, 36)
    assert sum(layout.widths) + GAP <= 36
    for line in table_rows(columns, layout):
        assert cell_len(line) <= 36
        assert line.endswith("0131072")


@pytest.mark.parametrize("width", [60, 97])
def test_a_real_terminal(width: int) -> None:
    inside, outside = pty.openpty()
    ioctl(outside, TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    command = [sys.executable, "-m", "rmqsource.cli", "lag", str(STORE.root), "--limit", "3"]
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "NO_COLOR"}}
    environment.update(PYTHONPATH=str(ROOT), TERM="xterm")
    with subprocess.Popen(
        command, stdout=outside, stderr=subprocess.PIPE, stdin=outside, env=environment
    ) as process:
        os.close(outside)
        text = b""
        while True:
            try:
                part = os.read(inside, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
        assert process.wait() == 0
    os.close(inside)
    lines = text.decode().replace("\r\n", "\n").splitlines()
    assert lines[0].startswith("\x1b[1m")
    plain = [re.sub("\x1b\\[[0-9]*m", "", line) for line in lines]
    assert max(map(cell_len, plain)) <= width
    heads, rows = table_of(plain)
    assert [row[heads.index("lag")] for row in rows] == ["54", "47", "40"]
