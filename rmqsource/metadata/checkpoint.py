# SPDX-License-Identifier: Apache-2.0
"""Table ``checkpoint``: one row."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rmqsource.metadata.columns import table_part
from store_core.state.checkpoint import StoreCheckpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.snapshot.store_snapshot import StoreSnapshot


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the numbers of the file unchanged; null if the file, or its end, is missing.

    A time of 0 (1970) means that nothing was flushed yet.
    """
    values = asdict(snapshot.checkpoint or StoreCheckpoint())
    columns = {name: [value] for name, value in values.items()}
    yield table_part("checkpoint", snapshot.directory.uri, 1, **columns)
