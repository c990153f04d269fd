# SPDX-License-Identifier: Apache-2.0
"""How a pull filters messages: first by the units of a queue, then by the record.

Source: RocketMQ ``MessageFilter``, ``ExpressionMessageFilter`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Union

import numpy as np

from store_core.filter.sql_filter import SqlFilter
from store_core.filter.tag_filter import TagFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

AnyFilter = Union[TagFilter, SqlFilter]


class MessageFilter(Protocol):
    """Selects the messages of a queue that a pull returns."""

    @property
    def reads_properties(self) -> bool:
        """Whether `matches_properties` has to be called; otherwise all records pass."""

    def matches_units(self, tags_codes: Int64s) -> Bools:
        """Return which messages may match, judged by their tags codes."""

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a record with these properties matches."""


class TagMessageFilter:
    """Compares hashes of tags, as a broker does; the exact comparison is the consumer's."""

    reads_properties = False

    def __init__(self, tag_filter: TagFilter) -> None:
        self._filter = tag_filter

    def matches_units(self, tags_codes: Int64s) -> Bools:
        """Compare tags codes; see `MessageFilter`."""
        return self._filter.matches_codes(tags_codes)

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return True."""
        del properties
        return True


class SqlMessageFilter:
    """Evaluates an expression over the properties of each record.

    Filter bitmaps of extension units are not used: the file that lists the expressions they were
    made with may be older than they are.
    """

    reads_properties = True

    def __init__(self, sql_filter: SqlFilter) -> None:
        self._filter = sql_filter

    def matches_units(self, tags_codes: Int64s) -> Bools:
        """Return True for all: units do not show the properties."""
        return np.ones(len(tags_codes), np.bool_)

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether the expression is true; see ``SqlFilter.matches``."""
        return self._filter.matches(properties)


def filter_of_pull(given: AnyFilter | MessageFilter | None) -> MessageFilter | None:
    """Return the pull's filter for a filter as users give it; None if all messages match."""
    if isinstance(given, TagFilter):
        return TagMessageFilter(given)
    if isinstance(given, SqlFilter):
        return SqlMessageFilter(given)
    return given
