# SPDX-License-Identifier: Apache-2.0
"""The counts, on a tree that is small enough to count by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from store_core import native
from tests.house.__main__ import as_table
from tests.house.counts import (
    ROOT,
    circles,
    count_all,
    import_graph,
    read_modules,
    single_importers,
)
from tests.house.ways import ACTS, Tracer, files_entered, loaded_by_task

FILES = {
    "store_core/__init__.py": "",
    "store_core/room/__init__.py": "",
    "store_core/room/a.py": "# SPDX-License-Identifier: x\nfrom store_core.room import b\n",
    "store_core/room/b.py": "def f():\n    from store_core.room.c import x\n",
    "store_core/room/c.py": "if TYPE_CHECKING:\n    import store_core.room.a\n",
    "store_core/d.py": "from store_core.room.a import x\nfrom store_core.room import name\n",
    "pyspark_x.py": "from store_core.d import y\n",
}


@pytest.fixture
def modules(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_modules(tmp_path)


def test_late_and_type_only_imports_count(modules):
    assert import_graph(modules) == {
        "store_core": set(),
        "store_core.room": set(),
        "store_core.room.a": {"store_core.room.b"},
        "store_core.room.b": {"store_core.room.c"},
        "store_core.room.c": {"store_core.room.a"},
        "store_core.d": {"store_core.room.a", "store_core.room"},
        "pyspark_x": {"store_core.d"},
    }


def test_lines_of_licences_do_not_count(modules):
    assert {m.name: m.lines for m in modules}["store_core.room.a"] == 1


def test_circles(modules):
    circle = [f"store_core.room.{name}" for name in "abc"]
    assert circles(import_graph(modules)) == [circle]
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}, "e": {"e"}}) == [
        ["a", "b"],
        ["c", "d"],
    ]


def test_single_importers(modules):
    pairs = single_importers(import_graph(modules), modules)
    assert [(a.name, b.name) for a, b in pairs] == [
        ("store_core.d", "pyspark_x"),
        ("store_core.room", "store_core.d"),
        ("store_core.room.b", "store_core.room.a"),
        ("store_core.room.c", "store_core.room.b"),
    ]


def test_a_file_is_entered_when_a_function_in_it_is_called():
    from store_core.codec.java_string import string_hash

    tracer = Tracer()
    with tracer:
        string_hash("a")
    assert {Path(file).relative_to(ROOT).as_posix() for file in tracer.files} == {
        "store_core/codec/java_string.py"
    }


def test_the_table_has_a_row_for_what_is_gone():
    before, now = {"rooms": {"cli": 42, "live": 30.5}}, {"rooms": {"live": 1_200}}
    lines = list(as_table({"before": before, "now": now}))
    assert [line.split() for line in lines] == [
        ["before", "now"],
        ["rooms"],
        ["live", "30.5", "1,200"],
        ["cli", "42", "-"],
    ]


def test_the_tree_keeps_its_limits():
    modules = read_modules()
    counts = count_all(modules)
    assert counts.figures["rooms with more than 20 modules"] == {"rooms": 0}
    assert counts.lists["circles inside a room"] == []
    for what in ("class names", "aliases and constants", "functions"):
        assert counts.lists[f"public {what} with two meanings"] == []
    assert len(counts.lists["a store"]) <= 9
    assert len(counts.lists["a queue"]) <= 12


@pytest.mark.full
@pytest.mark.skipif(native.kernel is None, reason="the page counts with the kernel")
def test_the_ways_are_as_long_as_the_page_says():
    """The rows are the acts, in their order."""
    page = (ROOT / "docs/developers/house.md").read_text("utf-8")
    table = page.partition("| files entered, before | now |")[2].partition("\n\n")[0]
    told = [int(now) for now in re.findall(r"\| (\d+) \|$", table, re.MULTILINE)]
    assert told == [len(files_entered(name)) for name in ACTS]


def test_a_task_of_spark_loads_few_modules():
    """Spark starts a Python process for each task, unless it finds an idle one."""
    assert len(loaded_by_task()) <= 72
