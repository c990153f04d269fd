# SPDX-License-Identifier: Apache-2.0
"""Arrow's types by name, for signatures: import them under ``TYPE_CHECKING`` only.

pyarrow ships no type hints, so to a checker they are ``Any``, with every release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, DataType, RecordBatch, Scalar, Schema, Table

    Columns = dict[str, Array]
    """Columns by name, all of one length."""

    __all__ = [
        "Array",
        "ChunkedArray",
        "Columns",
        "DataType",
        "RecordBatch",
        "Scalar",
        "Schema",
        "Table",
    ]
