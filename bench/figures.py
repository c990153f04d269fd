# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks: two sides measured in one run, and bounds of their ratio."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    ``ours`` and ``other`` are medians in ``unit``; ``must`` and ``aim`` bound the ratio
    ``ours / other``: from below if ``higher_is_better``, else from above.
    """

    scenario: str
    what: str
    against: str
    ours: float
    other: float
    unit: str
    higher_is_better: bool
    must: Optional[float] = None  # noqa: UP045 (evaluated by dataclass users on Python 3.9)
    aim: Optional[float] = None  # noqa: UP045
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Our value divided by that of the other side."""
        return self.ours / self.other if self.other else float("nan")

    def meets(self, bound: float | None) -> bool | None:
        """Return whether the ratio keeps a bound; None if there is no bound."""
        if bound is None:
            return None
        return self.ratio >= bound if self.higher_is_better else self.ratio <= bound

    def to_dict(self) -> dict[str, Any]:
        """Return the figure in the form of its JSON."""
        return {
            **asdict(self),
            "ratio": self.ratio,
            "meets_must": self.meets(self.must),
            "meets_aim": self.meets(self.aim),
        }


def rate_figure(
    scenario: str,
    what: str,
    against: str,
    *,
    rows: int,
    ours_seconds: Sequence[float],
    other_seconds: Sequence[float],
    must: float | None = None,
    aim: float | None = None,
) -> Figure:
    """Return the figure of two rates over the same number of rows."""
    return Figure(
        scenario=scenario,
        what=what,
        against=against,
        ours=rows / statistics.median(ours_seconds),
        other=rows / statistics.median(other_seconds),
        unit="rows/s",
        higher_is_better=True,
        must=must,
        aim=aim,
        samples={"ours_s": list(ours_seconds), "other_s": list(other_seconds)},
    )


def time_figure(
    scenario: str,
    what: str,
    against: str,
    *,
    ours_seconds: Sequence[float],
    other_seconds: Sequence[float],
    must: float | None = None,
    aim: float | None = None,
) -> Figure:
    """Return the figure of two durations."""
    return Figure(
        scenario=scenario,
        what=what,
        against=against,
        ours=statistics.median(ours_seconds) * 1000,
        other=statistics.median(other_seconds) * 1000,
        unit="ms",
        higher_is_better=False,
        must=must,
        aim=aim,
        samples={"ours_s": list(ours_seconds), "other_s": list(other_seconds)},
    )


_HEAD = ("what", "against", "ours", "other", "unit", "ratio", "must", "aim", "met")


def as_table(figures: Sequence[Figure]) -> str:
    """Return the figures as an aligned text table."""
    rows = [_HEAD, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = []
    for row in rows:
        texts = [text.ljust(width) for text, width in zip(row[:2], widths)]
        numbers = [text.rjust(width) for text, width in zip(row[2:], widths[2:])]
        lines.append("  ".join(texts + numbers).rstrip())
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    sign = ">=" if figure.higher_is_better else "<="
    met = {None: "", True: "aim", False: "must"}[figure.meets(figure.aim)]
    if figure.meets(figure.must) is False:
        met = "NO"
    return (
        f"{figure.scenario} {figure.what}",
        figure.against,
        _number(figure.ours),
        _number(figure.other),
        figure.unit,
        f"{figure.ratio:.2f}",
        "" if figure.must is None else f"{sign} {figure.must:g}",
        "" if figure.aim is None else f"{sign} {figure.aim:g}",
        met,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass
class Results:
    """Results that a run has so far.

    ``scenarios`` are the letters of the finished scenarios.
    """

    machine: dict[str, Any]
    quick: bool
    scenarios: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def add(self, scenario: str, figures: Sequence[Figure]) -> None:
        """Add the figures of a finished scenario."""
        self.scenarios.append(scenario)
        self.figures += figures


def write_json(path: Path, results: Results) -> None:
    """Write the figures, all samples and the facts of the machine; never leave a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**vars(results), "figures": [figure.to_dict() for figure in results.figures]}
    whole = path.with_name(f"{path.name}.tmp")
    whole.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    whole.replace(path)


def read_results(path: Path) -> Results:
    """Return what `write_json` wrote."""
    document = json.loads(path.read_text("utf-8"))
    names = {each.name for each in fields(Figure)}
    figures = [
        Figure(**{name: value for name, value in figure.items() if name in names})
        for figure in document.pop("figures")
    ]
    return Results(**document, figures=figures)
