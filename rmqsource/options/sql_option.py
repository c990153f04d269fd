"""The options ``sqlFilter`` and ``sqlDialect`` as a filter, and what RocketMQ ignores of it."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.errors import SourceOptionError
from store_core.errors import FilterSyntaxError, IgnoredInputWarning

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.filter.sql_filter import SqlFilter

OPTION = "sqlFilter"


class SqlOption(NamedTuple):
    """A filter, and a warning to the person who wrote it.

    Attributes
    ----------
    ignored
        What RocketMQ does not read of the text, in words; empty: it reads all.
    """

    sql_filter: SqlFilter
    ignored: str


def sql_option(options: SourceOptions) -> SqlOption | None:
    """Return the filter of a read; None when there is none.

    Raises
    ------
    SourceOptionError
        The text does not parse; the error names the place.
    """
    if options.sql_filter is None:
        return None
    return _parsed(options.sql_filter, options.sql_dialect)


def warn_of_ignored_input(options: SourceOptions) -> None:
    """Warn where RocketMQ takes the beginning of a filter for the whole."""
    found = sql_option(options)
    if found is not None and found.ignored:
        warnings.warn(f"option {OPTION}: {found.ignored}", IgnoredInputWarning, stacklevel=2)


@lru_cache(maxsize=16)
def _parsed(text: str, dialect: int) -> SqlOption:
    from store_core.filter.sql_filter import SqlFilter  # noqa: PLC0415 (most reads have no filter)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IgnoredInputWarning)
        try:
            sql_filter = SqlFilter(text, dialect)
        except FilterSyntaxError as err:
            raise SourceOptionError(OPTION, str(err)) from err
    return SqlOption(sql_filter, "; ".join(str(warning.message) for warning in caught))
