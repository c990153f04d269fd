from __future__ import annotations

import pytest

from bench.java_side import JavaSide, JavaSideError, last_round
from bench.side_process import parse_figures

OUTPUT = """2026-01-01 INFO store loaded
{"figure":"scan_decode","count":5,"seconds":2.0,"round":0}
{"other":1}
{"figure":"scan_decode","count":5,"seconds":1.0,"round":1}
{"figure":"else","count":7,"seconds":1.0}
"""


def test_figures_are_found_among_log_lines():
    figures = parse_figures(OUTPUT)
    assert [figure["figure"] for figure in figures] == ["scan_decode", "scan_decode", "else"]
    assert last_round(figures, "scan_decode")["seconds"] == 1.0


def test_missing_maven_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaSideError, match="JDK and Maven"):
        JavaSide(tmp_path).build()
