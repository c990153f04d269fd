# SPDX-License-Identifier: Apache-2.0
"""`make test` touches every public promise: commands, their flags, Spark options, public names.

It compares words: those that the tests of that tier write, and those that can return a public type.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import typer

import rmqnet
import rmqsource
import store_core
from rmqsource.cli.app import app
from rmqsource.live.live_options import LIVE_OPTION_TABLE, LIVE_SINK_OPTION_TABLE
from rmqsource.options.source_options import OPTION_TABLE
from rmqsource.sink.options import SINK_OPTION_TABLE
from tests import tiers
from tests.conftest import SPARK_FIXTURES

TESTS = Path(__file__).parent
PRODUCT = TESTS.parent
OTHER_TIERS = ("tests/interop/", "tests/soak/")
WALKS = {walk.partition("[")[0] for walk in tiers.WALKS}


def fast_nodes(path: Path) -> Iterator[ast.AST]:
    """Yield the nodes of a test file, except tests that `make test` leaves out."""
    place = path.relative_to(PRODUCT).as_posix()
    if place.startswith(OTHER_TIERS) or path == Path(__file__):
        return
    is_left_out = place.startswith(tiers.FILES)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        name = getattr(node, "name", "")
        is_test = name.startswith(("test_", "Test"))
        is_kept = f"{place}::{name}" in tiers.KEPT
        is_spark = is_test and uses_spark(node) and f"{path.name}::{name}" not in WALKS
        if is_kept or not (is_left_out or is_spark):
            yield from ast.walk(node)


def uses_spark(node: ast.AST) -> bool:
    given = {each.arg for each in getattr(getattr(node, "args", None), "args", ())}
    marks = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
    return bool(given & SPARK_FIXTURES) or "pytest.mark.spark" in marks


@lru_cache(maxsize=1)
def touched() -> frozenset[str]:
    """Return the words, flags and names in the tests of the fast tier."""
    found: set[str] = set()
    for path in sorted(TESTS.rglob("*.py")):
        for node in fast_nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.findall(r"--[a-z][a-z-]*|-[a-z]\b|[\w%-]+", node.value))
            for field in ("id", "attr", "arg", "name"):
                found.add(str(getattr(node, field, "")))
    return frozenset(found)


@lru_cache(maxsize=1)
def product() -> tuple[str, ...]:
    packages = [PRODUCT / name for name in ("store_core", "rmqnet", "rmqsource")]
    return tuple(path.read_text("utf-8") for one in packages for path in one.rglob("*.py"))


def given_by(name: str) -> set[str]:
    """Return the functions, properties and fields of the product that return a type."""
    named = [ast.parse(text) for text in product() if name in text]
    return {
        giver
        for tree in named
        for node in ast.walk(tree)
        for giver, annotation in annotated(node)
        if name in re.findall(r"\w+", ast.unparse(annotation))
    }


def annotated(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        yield node.name, node.returns
    if isinstance(node, ast.AnnAssign):
        yield ast.unparse(node.target).rpartition(".")[2], node.annotation


def commands() -> dict[str, Any]:
    return typer.main.get_command(app).commands  # type: ignore[attr-defined, no-any-return]


def test_every_command() -> None:
    assert set(commands()) - touched() == set()


def test_every_flag() -> None:
    flags = {
        (*each.opts, *each.secondary_opts) for one in commands().values() for each in one.params
    }
    given = {names for names in flags if names[0].startswith("-")}
    assert [names for names in given if touched().isdisjoint(names)] == []


@pytest.mark.parametrize(
    "table",
    [OPTION_TABLE, SINK_OPTION_TABLE, LIVE_OPTION_TABLE, LIVE_SINK_OPTION_TABLE],
    ids=["source", "sink", "live source", "live sink"],
)
def test_every_option(table: Any) -> None:
    assert {info.name for info in table} - touched() == set()


@pytest.mark.parametrize("package", [store_core, rmqnet, rmqsource])
def test_every_public_name(package: Any) -> None:
    untouched = set(package.__all__) - touched()
    assert {name for name in untouched if touched().isdisjoint(given_by(name))} == set()
