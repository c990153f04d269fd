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
    from collections.abc import Iterable, Mapping
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
    def bitmap_size(self) -> Int64s:
        """Bytes of filter bitmaps; 0 where there is none."""

    @property
    def bitmaps(self) -> npt.NDArray[np.uint8]:
        """The bitmaps of the size that was asked for, one a row; other rows say nothing."""


class MessageFilter(Protocol):
    """Which messages of a queue a pull returns."""

    @property
    def bitmap_bytes(self) -> int:
        """Size of the bitmaps that `matches_units` looks at; 0: it needs no extension units."""

    @property
    def reads_properties(self) -> bool:
        """Whether `matches_properties` must be asked; else all records pass it."""

    def matches_units(self, tags_codes: Int64s, ext: ExtColumns | None) -> Bools:
        """Return which messages may match, as far as their queue units tell."""

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether a record with these properties matches."""


class TagMessageFilter:
    """Compares hashes of tags, as a broker does; the exact comparison is the consumer's."""

    bitmap_bytes = 0
    reads_properties = False

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
    def bitmap_bytes(self) -> int:
        """Size of the bitmaps that speak of this expression; 0: none does."""
        return 0 if self._registered is None else self._registered.data.bit_count // _BYTE_BITS

    def matches_units(self, tags_codes: Int64s, ext: ExtColumns | None) -> Bools:
        """Return which messages do not lack the group's bits in a bitmap that is to be believed.

        It is not where the message is not younger than the registration, nor where it has another
        length than the group's filter.
        """
        may_match = np.ones(len(tags_codes), np.bool_)
        if self._registered is None or ext is None:
            return may_match
        # Bits 1 and 11 of two bytes: byte 0 is tested for 0x02, byte 1 for 0x08.
        believed = ext.bitmap_size == self.bitmap_bytes
        believed &= ext.store_timestamp > self._registered.proven_from
        for position in self._registered.data.bit_positions or ():
            byte, bit = divmod(position, _BYTE_BITS)
            may_match &= ~believed | (ext.bitmaps[:, byte] >> bit & 1 != 0)
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


def proving_filters(
    sql_filter: SqlFilter, registered: Iterable[RegisteredFilter]
) -> tuple[SqlMessageFilter, ...]:
    """Return the filter once for each group whose bits speak of it: any of them may say no."""
    filters = (SqlMessageFilter(sql_filter, entry) for entry in registered)
    return tuple(each for each in filters if each.bitmap_bytes)


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
