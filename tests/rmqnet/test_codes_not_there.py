"""The page that describes ``serve`` names each request code that nobody answers."""

from __future__ import annotations

import re
from pathlib import Path

from rmqnet import serve
from rmqnet.remoting.codes import RequestCode

DOCS = Path(__file__).parents[2] / "docs" / "serve.md"


def _codes(text):
    for first, last in re.findall(r"(?<![\d.])(\d{2,6})(?: to (\d{2,6}))?(?![\d.])", text):
        yield from range(int(first), int(last or first) + 1)


def test_each_code_that_is_not_there_is_named(tmp_path):
    with serve(tmp_path / "store") as cluster:
        answered = {
            *cluster.controller._server._routes,
            *cluster.name_server._server._routes,
        }
    section = DOCS.read_text(encoding="utf-8").split("## What is not there")[1]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]
    said = {code for row in rows for code in _codes(row)}
    to_clients = set(_codes(section.split("are what brokers ask clients")[0].splitlines()[-1]))
    missing = {int(code) for code in RequestCode} - answered
    assert (said | to_clients) & {int(code) for code in RequestCode} == missing
