# SPDX-License-Identifier: Apache-2.0
"""The notebooks: their cells run, and print the outputs stored in them."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.leftovers import stop_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
# They start RocketMQ.
WITH_JAVA = ("live",)
# Their streams read so many messages at a time.
WITH_LIMITS = ("follow", "live")


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_is_one() -> None:
    assert NOTEBOOKS


def marked(notebook: Path) -> Any:
    marks = [pytest.mark.interop] if notebook.stem in WITH_JAVA else []
    return pytest.param(notebook, marks=marks, id=notebook.stem)


@pytest.mark.parametrize("notebook", [marked(path) for path in NOTEBOOKS])
def test_cells_print_what_the_notebook_shows(spark: SparkSession, notebook: Path) -> None:
    assert spark is not None
    if notebook.stem in WITH_LIMITS and not STREAM_READER_GETS_LIMITS:
        pytest.skip("Spark before 4.2 knows no limits of streams")
    names: dict[str, object] = {}
    try:
        run_cells(notebook, names)
    except BaseException:
        stop_named(names, ("rmqnet", "store_core", "tests", "tempfile"))
        raise


def run_cells(notebook: Path, names: dict[str, object]) -> None:
    for number, cell in enumerate(code_cells(notebook)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            last = run_cell("".join(cell["source"]), f"cell {number + 1}", names)
        kept = "".join(text for output in cell["outputs"] for text in output.get("text", ()))
        assert printed.getvalue() == kept, f"cell {number + 1}"
        for output in cell["outputs"]:
            if is_picture(output):
                assert last._repr_png_().startswith(b"\x89PNG"), f"cell {number + 1}"


def is_picture(output: dict[str, Any]) -> bool:
    return "image/png" in output.get("data", {})


def run_cell(source: str, name: str, names: dict[str, object]) -> Any:
    """Run a cell and return the value of its last line if that is an expression."""
    body = ast.parse(source).body
    last = body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(source, name, "exec"), names)
        return None
    exec(compile(ast.Module(body[:-1], []), name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_small(notebook: Path) -> None:
    cells = code_cells(notebook)
    assert any(cell["outputs"] for cell in cells)
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
    assert notebook.stat().st_size < 600_000
