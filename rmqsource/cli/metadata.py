# SPDX-License-Identifier: Apache-2.0
"""Tables of metadata on the command line: filtered and ordered as Arrow, shown as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqsource.cli.output import Form, row_writer
from rmqsource.cli.read import read_table, rows_of
from rmqsource.options.option_values import did_you_mean
from rmqsource.plots.style import bytes_text, duration_text
from rmqsource.tables import TABLES
from store_core.arrow import pa, pc
from store_core.files.store_directory import expand_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqsource.cli.output import Display, Shape
    from rmqsource.cli.report import Report
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import ChunkedArray, Table


def in_bytes(heading: str) -> Form:
    """Return the form for a number of bytes."""
    return Form(heading, bytes_text)


def in_time(heading: str) -> Form:
    """Return the form for a span of ms."""
    return Form(heading, duration_text)


def columns_of(table: str) -> tuple[str, ...]:
    """Return the columns of a table of the source."""
    return tuple(column.name for column in TABLES[table].columns)


def whole_table(name: str, options: SourceOptions) -> Table:
    """Return a metadata table of all stores as a ``pa.Table``."""
    parts = [pa.table(batch) for batch in read_table(name, options)]
    if parts:
        return pa.concat_tables(parts)
    return pa.table({column: pa.nulls(0) for column in columns_of(name)})


def only(table: Table, column: str, values: Sequence[str]) -> Table:
    """Return the rows that have one of the values; all rows if no values are given."""
    if not values or not table.num_rows:
        return table
    return table.filter(pc.is_in(table[column], pa.array(values, pa.string())))


def ordered(table: Table, *keys: tuple[str, str]) -> Table:
    """Return the rows by keys; nulls come last."""
    return table.sort_by(list(keys)) if table.num_rows else table


def for_stores(shape: Shape, options: SourceOptions) -> Shape:
    """Return a shape that also shows the store if there are several."""
    several = len(expand_paths(options.paths)) > 1
    return shape._replace(shown=(*shape.shown, "store")) if several else shape


def show_rows(table: Table, shape: Shape, display: Display, limit: int, report: Report) -> None:
    """Write the rows of a table, at most ``limit`` unless that is 0."""
    writer = row_writer(display, shape)
    chosen = table.slice(0, limit) if limit else table
    for batch in chosen.to_batches():
        columns = dict(zip(batch.schema.names, batch.columns))
        for row in rows_of(columns):
            writer.write(row)
    writer.close()
    report.rows = table.num_rows
    if limit and table.num_rows > limit:
        report.note(f"only the first {limit} rows are shown: --limit 0 shows all")


def tell_unknown(asked: Sequence[str], known: ChunkedArray, what: str, report: Report) -> None:
    """Report which of the requested names are not among a column's values."""
    names = {name for name in known.to_pylist() if name is not None}
    for name in asked:
        if name not in names:
            report.missing(f"there is no {what} {name!r}{did_you_mean(name, names)}")
