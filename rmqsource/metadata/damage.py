# SPDX-License-Identifier: Apache-2.0
"""Decide from ``mode`` what happens if a part of the store cannot be used."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from store_core.errors import (
    CorruptRecordError,
    FileVanishedError,
    StoreFormatError,
    StoreKindError,
    StoreReadError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions

_FAILFAST = "FAILFAST"
_T = TypeVar("_T")


@contextmanager
def skip_damaged(what: str, options: SourceOptions) -> Iterator[None]:
    """End the block at damage and report it; in mode ``FAILFAST`` raise the error."""
    try:
        yield
    except FileVanishedError:  # not damage: the reader of the table reopens the store
        raise
    except (CorruptRecordError, StoreFormatError, StoreKindError, StoreReadError) as err:
        if options.mode == _FAILFAST:
            raise
        options.on_damage(f"{what} is skipped: {err}")


def until_damage(parts: Iterator[_T], what: str, options: SourceOptions) -> Iterator[_T]:
    """Yield the parts up to the first damage (see `skip_damaged`)."""
    while True:
        found: list[_T] = []
        with skip_damaged(what, options):
            found.extend(islice(parts, 1))
        if not found:
            return
        yield found[0]
