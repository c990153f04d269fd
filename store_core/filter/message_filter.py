"""What a pull asks of each message: first by the units of a queue, then by the record.

Source: RocketMQ ``MessageFilter``, ``ExpressionMessageFilter`` (release 5.3.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, Union

import numpy as np

from store_core.filter.sql_filter import SqlFilter
from store_core.filter.tag_filter import TagFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Callable

    import numpy.typing as npt

    from store_core.filter.consumer_filter_manager import RegisteredFilter

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

AnyFilter = Union[TagFilter, SqlFilter]
_BYTE_BITS = 8
_NOT_IN_EVERY_DIALECT = re.compile(r"CONTAINS|STARTSWITH|ENDSWITH", re.IGNORECASE)


class ExtColumns(Protocol):
    """What extension units say of messages, in columns (``ExtUnits``)."""

    @property
    def store_timestamp(self) -> Int64s:
        """Milliseconds; 0 where there is no unit."""

    @property
    def bitmaps(self) -> Sequence[bytes | None]:
        """Filter bitmaps; None where there is none."""


class MessageFilter(Protocol):
    """Which messages of a queue a pull returns."""

    @property
    def reads_bitmaps(self) -> bool:
        """Whether `matches_units` looks at extension units."""

    @property
    def reads_properties(self) -> bool:
        """Whether `matches_properties` must be asked; else all records pass it."""

    def matches_units(self, tags_codes: Int64s, ext: ExtColumns | None) -> Bools:
        """Return which messages may match, as far as their queue units tell."""

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a record with these properties matches."""


class TagMessageFilter:
    """Compares hashes of tags, as a broker does; the exact comparison is the consumer's."""

    reads_bitmaps = reads_properties = False

    def __init__(self, tag_filter: TagFilter) -> None:
        self._filter = tag_filter

    def matches_units(self, tags_codes: Int64s, ext: ExtColumns | None) -> Bools:
        """Compare tags codes; see `MessageFilter`."""
        del ext
        return self._filter.matches_codes(tags_codes)

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return True."""
        del properties
        return True


class SqlMessageFilter:
    """Evaluates an expression over the properties of records.

    Records whose bitmap proves that they do not match are not read.

    Parameters
    ----------
    sql_filter
        The expression.
    registered
        What is known of the group that asks; it counts where it has the same expression. None:
        the group has no filter.
    """

    reads_properties = True

    def __init__(self, sql_filter: SqlFilter, registered: RegisteredFilter | None = None) -> None:
        self._filter = sql_filter
        self._registered = registered if _speaks_of(registered, sql_filter) else None

    @property
    def reads_bitmaps(self) -> bool:
        """Whether bitmaps speak of this expression."""
        return self._registered is not None

    def matches_units(self, tags_codes: Int64s, ext: ExtColumns | None) -> Bools:
        """Return which messages do not lack the group's bits in a bitmap that is to be believed.

        It is not where the message is not younger than the registration, nor where it has another
        length than the group's filter.
        """
        may_match = np.ones(len(tags_codes), np.bool_)
        if self._registered is None or ext is None:
            return may_match
        data, size = self._registered.data, self._registered.data.bit_count // _BYTE_BITS
        # Bits 1 and 11 of two bytes: byte 0 is tested for 0x02, byte 1 for 0x08.
        fits = [bitmap is not None and len(bitmap) == size for bitmap in ext.bitmaps]
        rows = np.flatnonzero(fits & (ext.store_timestamp > self._registered.proven_from))
        joined = b"".join(ext.bitmaps[row] or b"" for row in rows.tolist())
        bitmaps = np.frombuffer(joined, np.uint8).reshape(len(rows), size)
        for position in data.bit_positions or ():
            byte, bit = divmod(position, _BYTE_BITS)
            may_match[rows] &= bitmaps[:, byte] >> bit & 1 != 0
        return may_match

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether the expression is true; see ``SqlFilter.matches``."""
        return self._filter.matches(properties)


def filter_of_pull(
    given: AnyFilter | MessageFilter | None, registered: Callable[[], RegisteredFilter | None]
) -> MessageFilter | None:
    """Return what a pull asks of messages, of a filter as users give it; None: nothing.

    Parameters
    ----------
    given
        An expression of tags, one of SQL92, or a filter of one's own.
    registered
        Returns the filter of the group that pulls; None: it has none.
    """
    if isinstance(given, TagFilter):
        return TagMessageFilter(given)
    if isinstance(given, SqlFilter):
        return SqlMessageFilter(given, registered())
    return given


def _speaks_of(registered: RegisteredFilter | None, sql_filter: SqlFilter) -> bool:
    """Return whether a group's bits say that this expression is not true.

    Which dialect the broker had that set them is not known, so words that not every release knows
    as operators leave it open.
    """
    return (
        registered is not None
        and registered.compiled == sql_filter
        and registered.data.bit_positions is not None
        and not _NOT_IN_EVERY_DIALECT.search(sql_filter.expression)
    )
