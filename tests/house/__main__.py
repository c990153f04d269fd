# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.house``: count, and print one table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.counts import Counts, Rows, count_all, read_modules
from tests.house.ways import measure_all

_SHOWN = (
    "circles inside a room",
    "a store",
    "a queue",
    "public class names with two meanings",
)
_SINGLES = "modules with one importer"
_BEFORE = Path(__file__).with_name("before.json")
"""Figures of the tree before its modules were merged (27 November 2026)."""


def main() -> None:
    """Print the table, and the names that make up its figures."""
    options = _parser().parse_args()
    source, running = count_all(read_modules()), measure_all()
    counts = Counts(source.figures | running.figures, source.lists | running.lists)
    before = json.loads(options.against.read_text("utf-8"))["figures"]
    print("\n".join(as_table({"before": before, "now": counts.figures})))
    for name in (*_SHOWN, *([_SINGLES] if options.singles else [])):
        print(f"\n{name}:", *counts.lists[name], sep="\n  ")
    if options.json:
        options.json.write_text(json.dumps(counts._asdict(), indent=1) + "\n", "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--against", type=Path, default=_BEFORE, metavar="FILE", help="compare with those of FILE"
    )
    parser.add_argument("--singles", action="store_true", help="list modules with one importer")
    return parser


def as_table(columns: Mapping[str, Mapping[str, Rows]]) -> Iterator[str]:
    """Yield the lines of a table: a column for each set of figures, and a row for each figure."""
    newest_first = [*columns.values()][::-1]
    names = {
        section: dict.fromkeys(row for c in newest_first for row in c.get(section, ()))
        for section in newest_first[0]
    }
    width = max(len(row) for rows in names.values() for row in rows) + 2
    yield " " * width + "".join(f"{title:>12}" for title in columns)
    for section, rows in names.items():
        yield f"\n{section}"
        for row in rows:
            values = (figures.get(section, {}).get(row) for figures in columns.values())
            yield f"  {row:<{width - 2}}" + "".join(f"{_shown(value):>12}" for value in values)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


if __name__ == "__main__":
    main()
