# SPDX-License-Identifier: Apache-2.0
"""The page about the architecture: its picture is that of the contracts, its names lead to code."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rmqsource.sink.committing import _TURN_FILE
from store_core.layout import CONFIG_DIR
from store_core.recovery.recovery import CUT_DIRECTORY
from store_core.staged_commit.job import LEDGER_FILE
from store_core.staged_commit.staging import INTENT_FILE, STAGING_DIRECTORY
from store_core.tools.repair.rebuild_in_place import WORK_DIRECTORY
from store_core.tools.salvage.salvage import _REPORT_SUFFIX, _UNFINISHED_SUFFIX
from tests.room_picture import PICTURE, ROOT, SETUP, Contracts, room_picture

PAGE = ROOT / "docs" / "developers" / "architecture.md"
FLOWS, FLOW_LINES = 10, 10
OF_SPARK = frozenset({"spark.read", "df.write"})
FILES = re.compile(r".*\.(json|lock|md|cfg|tmp|bak)|TARGET\..*")
DOTTED = re.compile(r"\w+(\.\w+)+")
CLASS = re.compile(r"[A-Z]+[a-z]\w*")
PACKAGES = ("store_core", "rmqnet", "rmqsource")


@cache
def modules() -> tuple[str, ...]:
    """Return the dotted names of all modules and packages of this project."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    files += ROOT.glob("pyspark_*.py")
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return tuple(sorted(name.removesuffix(".__init__") for name in names))


@cache
def classes() -> dict[str, list[str]]:
    """Return the modules that define each class."""
    found: dict[str, list[str]] = {}
    for module in modules():
        path = ROOT.joinpath(*module.split("."))
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for name in re.findall(r"^\s*class (\w+)", source.read_text("utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(module)
    return found


def spans(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def fault_of(span: str) -> str | None:
    """Return why a text in backticks resolves to nothing; None if it does, or is not a name."""
    if "/" in span:
        is_ours = (ROOT / span.partition("/")[0]).is_dir()
        return f"no such path: {span}" if is_ours and not (ROOT / span).exists() else None
    if span in OF_SPARK or FILES.fullmatch(span):
        return None
    if DOTTED.fullmatch(span):
        return fault_of_name(span)
    if CLASS.fullmatch(span) and len(classes().get(span, [])) != 1:
        return f"not the name of one class: {span}"
    return None


def fault_of_name(dotted: str) -> str | None:
    parts = dotted.split(".")
    if CLASS.fullmatch(parts[0]):
        homes, rest = classes().get(parts[0], []), parts
    else:
        homes, rest = [], []
        for count in range(len(parts), 0, -1):
            ending = ".".join(parts[:count])
            homes = [name for name in modules() if f".{name}".endswith(f".{ending}")]
            if homes:
                rest = parts[count:]
                break
    if len(homes) != 1:
        return f"{dotted}: names no module, or several: {homes}"
    found: Any = import_module(homes[0])
    for name in rest:
        if not hasattr(found, name) and name not in getattr(found, "__annotations__", {}):
            return f"{dotted}: {found!r} has no {name}"
        found = getattr(found, name, None)
    return None


def test_every_name_and_path_leads_to_code():
    names = spans(PAGE.read_text("utf-8"))
    assert len([name for name in names if DOTTED.fullmatch(name)]) > 100
    assert sorted(filter(None, map(fault_of, names))) == []


@pytest.mark.parametrize(
    ("span", "is_there"),
    [
        ("store_core/log/end_rules.py", True),
        ("store_core/log/end_rule.py", False),
        ("config/sinkCommits.json", True),  # in a store
        ("store_files.open_store_files", True),
        ("store_files.open_files", False),
        ("job.patched_runs", False),  # there are two modules of this name
        ("staged_commit.job.patched_runs", True),
        ("nowhere.patched_runs", False),
        ("MessageStore.load", True),
        ("MessageStore.get_offset_in_queue_by_time", True),  # inherited
        ("StoreFiles.recovery", True),  # a field
        ("MessageStore.lode", False),
        ("DefaultMessageStore", False),
        ("namesrvAddr", True),
    ],
)
def test_what_is_no_name_of_the_code_is_found(span, is_there):
    assert (fault_of(span) is None) == is_there


def test_each_flow_is_short():
    text = PAGE.read_text("utf-8").partition("## Ten flows")[2].partition("\n## ")[0]
    flows = re.findall(r"^### (\d+)\. .*\n\n((?:.+\n)+)", text, re.MULTILINE)
    assert [int(number) for number, _ in flows] == list(range(1, FLOWS + 1))
    assert [number for number, lines in flows if lines.count("\n") > FLOW_LINES] == []


def test_names_of_our_own_files_are_those_of_the_code():
    table = PAGE.read_text("utf-8").partition("These names are ours alone.")[2]
    ours = spans(table)
    directories = {f"{name}/" for name in (STAGING_DIRECTORY, CUT_DIRECTORY, WORK_DIRECTORY)}
    files = {INTENT_FILE, _TURN_FILE, f"{CONFIG_DIR}/{LEDGER_FILE}"}
    salvage = {f"TARGET{suffix}" for suffix in (_REPORT_SUFFIX, _UNFINISHED_SUFFIX)}
    assert directories | files | salvage <= ours


def test_the_picture_is_that_of_the_contracts():
    assert room_picture() == PICTURE.read_text("utf-8"), "run python -m tests.readme_tables"
    assert re.search(rf"!\[[^]]+\]\({PICTURE.name}\)", PAGE.read_text("utf-8"))
    picture = ElementTree.parse(PICTURE).getroot()
    ground = picture.find("{http://www.w3.org/2000/svg}rect")
    assert ground is not None  # on a dark page a picture needs a background of its own
    assert ground.get("width") == picture.get("width")


def test_the_picture_names_every_room_once():
    texts = [element.text for element in ElementTree.parse(PICTURE).getroot().iter()]
    for container, layers in Contracts(SETUP.read_text("utf-8")).layers().items():
        folder = ROOT.joinpath(*container.split("."))
        prefix = "" if folder.parent == ROOT else f"{folder.name}/"
        there = {f"{prefix}{name}" for name in rooms_in(folder)}
        assert sorted(f"{prefix}{room}" for layer in layers for room in layer) == sorted(
            name.removesuffix("/").removesuffix(".py") for name in there
        )
        assert {name for name in there if name not in texts} == set()


def rooms_in(folder: Path) -> list[str]:
    packages = [f"{init.parent.name}/" for init in folder.glob("*/__init__.py")]
    return packages + [file.name for file in folder.glob("*.py") if not file.name.startswith("__")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    snapshot\n    read\n", "    read\n    snapshot\n"),
        ("    services : tools\n", "    services\n    tools\n"),
        ("    check : repair : salvage\n", "    check\n    repair : salvage\n"),
        ("source_modules = rmqnet\nforbidden_modules =\n    pyspark\n    rmqsource\n",
         "source_modules = rmqnet\nforbidden_modules =\n    pyspark\n"),
    ],
)  # fmt: skip
def test_other_contracts_give_another_picture(old, new):
    setup = SETUP.read_text("utf-8")
    assert setup.count(old) == 1
    assert room_picture(setup.replace(old, new)) != room_picture(setup)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("services : tools", "services | tools", r"services \| tools"),
        ("containers = rmqnet\n", "containers = rmqnet\nignore_imports = x -> y\n", "exceptions"),
        ("type = acyclic_siblings\n", "type = independence\n", "circles"),
    ],
)
def test_a_contract_that_the_picture_cannot_show_is_an_error(old, new, words):
    setup = SETUP.read_text("utf-8")
    assert setup.count(old) == 1
    with pytest.raises(ValueError, match=words):
        room_picture(setup.replace(old, new))
