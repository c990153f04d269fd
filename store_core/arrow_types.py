"""Arrow's types by name, for signatures: import them under ``TYPE_CHECKING`` only.

pyarrow ships no types of its own, so to a checker they are ``Any``, on every release alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch, Scalar

    __all__ = ["Array", "RecordBatch", "Scalar"]
