# SPDX-License-Identifier: Apache-2.0
"""Docstrings, comments and pages keep to the word list of docs/developers/style.md."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = {
    r"\banew\b": "again, rebuild, recreate",
    r"\bonce more\b": "again",
    r"\bwhoever\b": "the caller, the writer, the reader",
    r"\bnobody\b": "no one, none",
    r"\bsomebody\b": "someone, another process",
    r"(?<![\w.])(?<!are )(?-i:None): ": '"x if None", "optional; default x"',
    r"\bis none that\b": "is not",
    r"\bof which (few|none|some)\b": "few of which",
}
"""Regular expression -> what to write instead."""
_ROOMS = {
    "store_core": (
        "", "codec", "config", "database", "files", "filter", "ha", "index", "log", "put",
        "queue", "read", "recovery", "schedule", "services", "snapshot", "staged_commit",
        "state", "timer",
        "tools/check", "tools/repair", "tools/salvage", "transaction",
    ),
    "rmqnet": (
        "", "namesrv", "remoting", "broker", "broker/access", "broker/clients", "broker/metrics",
        "broker/processor", "broker/roles", "broker/state", "client", "client/admin",
        "client/consumer", "client/producer",
    ),
    "rmqsource": (
        "", "cli", "cli/commands", "cli/rows", "demo", "explore", "live", "metadata", "options",
        "plots", "report", "scan", "sink", "spark", "stream", "transfer",
    ),
}  # fmt: skip
READ = [f"{package}/{room}".rstrip("/") for package, rooms in _ROOMS.items() for room in rooms]
"""Folders that have been read for these words."""


def prose_of(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) of each comment and docstring."""
    text = path.read_text()
    found = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                found += enumerate(str(inner.value.value).splitlines(), inner.lineno)
    return found


def avoided(text: str) -> list[str]:
    return [
        f"{match[0]!r}: {better}"
        for phrase, better in PHRASES.items()
        for match in re.finditer(phrase, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("folder", READ)
def test_prose_keeps_to_the_word_list(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in sorted((ROOT / folder).glob("*.py"))
        for line, text in prose_of(path)
        for problem in avoided(text)
    ]
    assert not wrong, "\n".join(wrong)


TREES = ("bench", "tests")
"""Folders all of whose Python files have been read, in folders below them too."""
PAGES = [
    *ROOT.glob("*.md"),
    *(page for top in ("docs", *TREES) for page in (ROOT / top).rglob("*.md")),
    *(ROOT / "notebooks").glob("*.ipynb"),
]


def texts_of_page(page: Path) -> list[str]:
    """Return the lines of a page, or of a notebook's text cells."""
    text = page.read_text("utf-8")
    if page.suffix == ".md":
        return text.splitlines()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return [line for cell in cells for line in "".join(cell["source"]).splitlines()]


def prose_of_page(page: Path) -> list[tuple[int, str]]:
    """Return (line, text) without code; the word table of style.md is not prose either."""
    prose, is_code, is_table = [], False, False
    for number, line in enumerate(texts_of_page(page), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        is_table = line.startswith("|") and (is_table or line == "| not | but |")
        if not (is_fence or is_code or is_table):
            prose.append((number, re.sub("`[^`]*`", "", line)))
    return prose


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_keep_to_the_word_list(page):
    assert not [(line, problem) for line, text in prose_of_page(page) for problem in avoided(text)]


@pytest.mark.parametrize("tree", TREES)
def test_whole_trees_keep_to_the_word_list(tree):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in sorted((ROOT / tree).rglob("*.py"))
        if avoided(path.read_text())  # parsing every file takes long
        for line, text in prose_of(path)
        for problem in avoided(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_code_and_the_word_table_are_no_prose(tmp_path):
    page = tmp_path / "page.md"
    table = "| not | but |\n|---|---|\n| anew | again |\n"
    page.write_text(f"anew\n```\nanew\n```\n{table}\n`anew` x\n")
    assert [text for _, text in prose_of_page(page) if text] == ["anew", " x"]
    assert len(PAGES) > 30


def test_the_list_is_seen():
    assert avoided("Made anew by whoever has it; None: by nobody.") != []
    assert len(avoided("Made anew by whoever has it; None: by nobody.")) == 4
    assert not avoided("Rebuilt by the caller; by no one if None.")
