"""``--grep``: a regular expression over bodies and properties, on whole Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.cli.read import WrongUseError
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array, Columns

GREP_COLUMNS = ("body", "properties")
"""What has to be read."""


class Grep:
    """Keeps messages in whose body, or in one of whose ``NAME=VALUE``, an expression is found.

    Raises
    ------
    WrongUseError
        It is no expression of RE2's.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern:
            raise WrongUseError("--grep: is empty; give a value or leave it away")
        self._pattern = pattern
        try:
            self._found(pa.array([b""], pa.binary()))
            self._found(pa.array([""], pa.string()))
        except pa.ArrowInvalid as err:
            raise WrongUseError(
                f"--grep: {pattern!r} is no regular expression of RE2's: {err}"
            ) from err

    def mask(self, batch: Columns) -> Array:
        """Return for each row whether it is kept."""
        in_body = self._found(batch["body"]).fill_null(False)
        return pc.or_(in_body, pa.array(self._in_properties(batch["properties"])))

    def _found(self, texts: Array) -> Array:
        return pc.match_substring_regex(texts, self._pattern)

    def _in_properties(self, maps: Array) -> npt.NDArray[np.bool_]:
        """Return for each row whether one of its properties has the pattern."""
        starts = maps.offsets.to_numpy()
        first, last = int(starts[0]), int(starts[-1])
        names = maps.keys.slice(first, last - first)
        values = maps.items.slice(first, last - first)
        texts = pc.binary_join_element_wise(
            names.cast(pa.string()), values.cast(pa.string()), "=", null_handling="replace"
        )
        hits = self._found(texts).fill_null(False).to_numpy(zero_copy_only=False)
        before = np.concatenate([[0], np.cumsum(hits)])
        counts = before[starts[1:] - first] - before[starts[:-1] - first]
        has_hit: npt.NDArray[np.bool_] = counts > 0
        return has_hit
