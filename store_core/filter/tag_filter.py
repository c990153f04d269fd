# SPDX-License-Identifier: Apache-2.0
"""Tag expressions.

Source: RocketMQ ``FilterAPI.buildSubscriptionData``, ``DefaultMessageFilter`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.java_string import string_hash
from store_core.errors import StoreConfigError
from store_core.layout import MAX_EXT_ADDRESS

if TYPE_CHECKING:
    import numpy.typing as npt

SUBSCRIBE_ALL = "*"
_JAVA_TRIM = "".join(map(chr, range(0x21)))


class TagFilter:
    """Selects messages that have one of the named tags.

    Parameters
    ----------
    expression
        Tags separated by ``||``; ``*``, empty and None let everything pass.

    Raises
    ------
    StoreConfigError
        The expression has only separators and blanks.

    Attributes
    ----------
    expression : str
        As given; ``*`` if everything passes.
    tags : frozenset of str or None
        The tags; None if everything passes.
    codes : frozenset of int
        The tags' hashes, signed, 32 bits; empty if everything passes.
    """

    def __init__(self, expression: str | None) -> None:
        self.expression = expression or SUBSCRIBE_ALL
        self.tags: frozenset[str] | None = None
        self.codes: frozenset[int] = frozenset()
        if self.expression == SUBSCRIBE_ALL:
            return
        parts = (part.strip(_JAVA_TRIM) for part in self.expression.split("||"))
        self.tags = frozenset(part for part in parts if part)
        if not self.tags:
            raise StoreConfigError(f"no tag in the tag expression {expression!r}; all tags are '*'")
        self.codes = frozenset(string_hash(tag) for tag in self.tags)

    def matches_code(self, tags_code: int | None) -> bool:
        """Compare the low 32 bits of a queue unit's tags code, as the broker does.

        Different tags may share a hash. None and addresses of extension units (whose code is
        unknown) pass.
        """
        if self.tags is None or tags_code is None or tags_code <= MAX_EXT_ADDRESS:
            return True
        return (tags_code + 0x80000000) % 0x100000000 - 0x80000000 in self.codes

    def matches_codes(self, tags_codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Apply `matches_code` to a whole column."""
        if self.tags is None:
            return np.ones(len(tags_codes), np.bool_)
        codes = np.array(sorted(self.codes), np.int32)
        known = np.isin(tags_codes.astype(np.int32), codes)
        return known | (tags_codes <= MAX_EXT_ADDRESS)

    def matches_tag(self, tag: str | None) -> bool:
        """Compare a message's tag exactly, as a consumer does; None matches only ``*``."""
        return self.tags is None or tag in self.tags

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"
