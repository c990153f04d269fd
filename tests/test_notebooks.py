"""The notebooks: their cells run, and the outputs that they keep are what the cells print."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_print_what_the_notebook_shows(spark: SparkSession, notebook: Path) -> None:
    assert spark is not None
    names: dict[str, object] = {}
    for number, cell in enumerate(code_cells(notebook)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"cell {number + 1}", "exec"), names)
        kept = "".join(text for output in cell["outputs"] for text in output["text"])
        assert printed.getvalue() == kept, f"cell {number + 1}"
