# SPDX-License-Identifier: Apache-2.0
"""Each source file names its licence, so that a copy of it alone does, too."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT

_FOLDERS = ("bench", "rmqnet", "rmqsource", "store_core", "tests")
_SUFFIXES = {".py", ".java", ".sh", ".js", ".css"}
_BUILT = {"target", "build"}
_HEADER = re.compile(r"(#!.*\n)?(# |// |/\* )SPDX-License-Identifier: Apache-2\.0( \*/)?\n")


def sources() -> list[Path]:
    found = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.*")]
    kept = [path for path in found if path.suffix in _SUFFIXES and path.stat().st_size]
    kept = [path for path in kept if not _BUILT.intersection(path.relative_to(ROOT).parts)]
    return [*kept, *ROOT.glob("pyspark_*.py"), ROOT / ".ci/run"]


def test_source_files_begin_with_their_licence() -> None:
    assert len(sources()) > 1000
    assert not [path for path in sources() if not _HEADER.match(path.read_text("utf-8"))]
