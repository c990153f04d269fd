# SPDX-License-Identifier: Apache-2.0
"""A self-contained HTML page that needs no network: a verdict, pictures and tables."""

from __future__ import annotations

import base64
import hashlib
import io
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from rmqsource import plots
from rmqsource.explore.trace_events import moment
from rmqsource.plots import style
from rmqsource.plots.flow import bars_of_lag
from rmqsource.plots.ranking import bars_of_keys, bars_of_tags, bars_of_topics
from rmqsource.plots.style import bytes_text, count_text, duration_text, plural, rows_height
from rmqsource.report.report_data import LISTED_DEAD_LETTERS
from rmqsource.report.tables import Cell, note, table_html, text
from rmqsource.report.verdict import ACT, GOOD, LOOK, Judgement, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqsource.plots.bars import Bar, Bars
    from rmqsource.report.report_data import ReportData

_FILES = resources.files("rmqsource.report")  # may be in a zip (--py-files)
_STYLE = "\n" + _FILES.joinpath("report.css").read_text("utf-8")
SCRIPT = "\n" + _FILES.joinpath("report.js").read_text("utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_POLICY = (  # no other script may run
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    f"style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'"
)
_LISTED = 200
_SHOWN_BODY = 120
_HOUR_MS = 3_600_000
_ORDER = (ACT, LOOK, GOOD)
_SAID = {ACT: "to act on", LOOK: "to look at", GOOD: "good"}
_DARK = {
    style.INK: "#e6e6e6",
    style.FAINT: "#4a5056",
    style.GRID: "#343a40",
    style.REST: "#8b9197",
    "#0072B2": "#3d9be0",
    "#D55E00": "#ff8440",
    "#332288": "#9485f0",
    "#882255": "#d0669c",
    "#117733": "#4dbd6c",
}
"""Colours that are hard to see on a dark page -> their replacements there."""
_WIDE, _NARROW = 7.2, 3.9
_PHONE = "(max-width: 44rem)"


def report_page(findings: ReportData, made_at_ms: int) -> str:
    """Return the page as HTML."""
    body = "".join(
        (
            _head(findings, made_at_ms),
            _verdict(verdict(findings, made_at_ms)),
            _damage(findings),
            _facts(findings),
            *(
                f'<section id="{name}"><h2>{text(title)}</h2>{"".join(build(findings))}</section>\n'
                for name, title, build in _SECTIONS
            ),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>RocketMQ store {text(_names(findings))}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{body}<script>{SCRIPT}</script></body></html>\n"
    )


def _names(findings: ReportData) -> str:
    """Return the stores' brokers, or the paths of stores whose broker is unknown."""
    return ", ".join(one.broker or one.store for one in findings.standings)


def _heading(findings: ReportData) -> str:
    brokers = [one.broker for one in findings.standings if one.broker]
    if not brokers or len(brokers) < len(findings.standings):
        return f"Store {_names(findings)}"
    clusters = list(dict.fromkeys(one.cluster for one in findings.standings if one.cluster))
    of = f" of cluster {', '.join(clusters)}" if clusters else ""
    return f"{'Broker' if len(brokers) == 1 else 'Brokers'} {', '.join(brokers)}{of}"


def _head(findings: ReportData, made_at_ms: int) -> str:
    counts = findings.counts
    span = "There is no message in the log."
    if counts.first_ms is not None and counts.last_ms is not None:
        took = duration_text(counts.last_ms - counts.first_ms)
        span = f"Messages stored from {moment(counts.first_ms)} to {moment(counts.last_ms)} UTC"
        span += f" ({took})."
    return (
        f"<h1>{text(_heading(findings))}</h1>\n<p>{text(span)}</p>\n"
        f'<p class="note">Made only from the files in {text(", ".join(counts.stores))}, at '
        f"{moment(made_at_ms)} UTC. All times are UTC.</p>\n"
    )


def _verdict(found: Sequence[Judgement]) -> str:
    numbers = [(state, sum(one.state == state for one in found)) for state in _ORDER]
    said = ", ".join(f"{number} {_SAID[state]}" for state, number in numbers if number)
    ordered = sorted(found, key=lambda one: _ORDER.index(one.state))
    lines = "".join(map(_judgement, ordered))
    return (
        f'<section id="verdict"><h2>Verdict: {said}</h2>\n<ul class="verdict">{lines}</ul>'
        "</section>\n"
    )


def _judgement(one: Judgement) -> str:
    todo = f"<p>{text(one.todo)}</p>" if one.todo else ""
    commands = "".join(f"<code>{text(line)}</code>" for line in one.commands)
    return (
        f'<li class="{one.state}"><h3><b>{one.state}</b>{text(one.subject)}</h3>'
        f"<p>{text(one.text)}</p>{todo}{commands}</li>\n"
    )


def _facts(findings: ReportData) -> str:
    counts = findings.counts
    topics, groups = int((findings.topics["messages"] > 0).sum()), len(set(findings.lag["group"]))
    facts = [
        (count_text(counts.messages), f"{_noun(counts.messages, 'message')} in the log"),
        (bytes_text(counts.bytes), "of records"),
        (count_text(topics), f"{_noun(topics, 'topic')} with messages"),
    ]
    if findings.lag_is_known:
        facts.append((count_text(groups), f"{_noun(groups, 'group')} with an offset"))
    tiles = "".join(f"<div><b>{text(b)}</b>{text(t)}</div>" for b, t in facts)
    links = "".join(f'<a href="#{n}">{text(t)}</a>' for n, t, _ in _SECTIONS)
    return f'<div class="facts">{tiles}</div>\n<nav>{links}</nav>\n'


def _noun(count: int, noun: str) -> str:
    return plural(count, noun).partition(" ")[2]


def _damage(findings: ReportData) -> str:
    told = "".join(f'<div class="bad">{text(one)}</div>\n' for one in findings.told)
    return told + (_gaps(findings) if findings.counts.gaps else "")


def _gaps(findings: ReportData) -> str:
    counts = findings.counts
    rows = [
        [
            Cell(gap["file"], is_long=True),
            Cell(gap["position"]),
            Cell(gap["bytes_lost"]),
            Cell(gap["reason"], is_long=True),
        ]
        for gap in counts.damage[:_LISTED]
    ]
    title = f"{plural(counts.gaps, 'damaged place')}, {bytes_text(counts.gap_bytes)}"
    table = table_html("damaged places", ("file", "byte", "bytes lost", "what is there"), rows)
    listed = f"The first {len(rows):,} of {counts.gaps:,}."
    return f"<h3>{text(title)}</h3>{table}{note(listed) if counts.gaps > len(rows) else ''}"


def _traffic(findings: ReportData) -> Iterator[str]:
    steps = findings.traffic["time"].nunique()
    if steps == 1:
        step = duration_text(findings.traffic.attrs["step_ms"])
        yield note(f"All messages were stored within {step}, so there is no course to draw.")
        return
    yield '<div class="charts">'
    for value in ("messages", "bytes") if steps else ("messages",):
        yield picture(partial(plots.traffic, findings.traffic, value=value), narrow_height=4.0)
    yield "</div>"


def _disk(findings: ReportData) -> Iterator[str]:
    span = (findings.counts.last_ms or 0) - (findings.counts.first_ms or 0)
    topics = findings.topics
    if span < _HOUR_MS:  # too short for rates per day
        topics = topics.assign(bytes_per_day=float("nan"), growth=float("nan"))
    held = topics[topics["messages"] > 0]
    yield bar_chart(bars_of_topics(topics))
    if not len(held):
        return
    rows = [
        [
            Cell(row.topic),
            Cell(row.kind),
            Cell(row.queues),
            Cell(row.messages),
            Cell(row.bytes, bytes_text),
            Cell(row.bytes_share, _share),
            Cell(row.messages_per_second, _rate),
            Cell(row.bytes_per_day, bytes_text),
            Cell(row.growth, _growth),
            Cell(row.retention_seconds, lambda seconds: duration_text(seconds * 1000)),
        ]
        for row in held.head(_LISTED).itertuples()
    ]
    heads = ("topic", "kind", "queues", "messages", "bytes", "share", "per second", "bytes a day")
    yield table_html("topics", (*heads, "newer half", "kept for"), rows)
    yield _more(len(held))
    yield note(
        "Rates are averages from the store's first message to its last; the rate per day is "
        "left out if that time is less than an hour. Newer half: bytes in the newer half of "
        "that time compared with the older half. Kept for: from the oldest message to the "
        "store's newest."
    )


def _messages(findings: ReportData) -> Iterator[str]:
    yield '<div class="charts">'
    yield picture(partial(plots.message_sizes, findings.sizes))
    yield picture(partial(plots.latency, findings.latency))
    yield "</div>"
    summary = findings.latency_summary
    direct, later = summary[summary["is_direct"]], summary[~summary["is_direct"]]
    if len(direct):
        yield "<h3>From born to stored</h3>"
        yield table_html("latency", _WAITS, [_waits(row) for row in _first(direct)])
        yield _more(len(direct))
        yield note(
            "Times are by the clocks of producer and broker. Clock ahead: messages born "
            "after they were stored. Median, 95 % and 99 %: half, 95 % and 99 % of the "
            "messages take this time or size, or less. Below 512 (ms or bytes) these values "
            "are exact, above that at most 0.4 % too large; they are shown with three digits."
        )
    if len(later):
        yield "<h3>Intended waits</h3>"
        yield table_html("waits", _WAITS, [_waits(row) for row in _first(later)])
        yield _more(len(later))
        yield note(
            "These are messages that the broker stored again after a delay, a retry or a "
            "commit, and those in its own topics. They keep the time at which they were "
            "born, so their time to the store is not latency and is not included above."
        )


_WAITS = ("topic", "kind", "messages", "median", "95 %", "99 %", "longest", "clock ahead")


def _waits(row: Any) -> list[Cell]:
    times = (row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms)
    return [
        Cell(row.topic),
        Cell(row.kind),
        Cell(row.messages),
        *(Cell(wait, duration_text) for wait in times),
        Cell(row.clock_ahead),
    ]


def _spread(findings: ReportData) -> Iterator[str]:
    topics = findings.queue_skew["topic"].nunique()
    height = rows_height(min(topics, 12)) + 0.5
    yield '<div class="charts">'
    yield picture(partial(plots.queue_skew, findings.queue_skew), height, height)
    yield bar_chart(bars_of_tags(findings.tags))
    yield bar_chart(bars_of_keys(findings.top_keys))
    yield "</div>"
    yield note("Only topics that applications send to; the broker's own topics have copies.")


def _consumers(findings: ReportData) -> Iterator[str]:
    if not findings.lag_is_known:
        yield note("Not known: queues or consumer offsets are in a database, which is not read.")
        return
    yield bar_chart(bars_of_lag(findings.lag))
    behind = findings.lag[findings.lag["lag"] > 0]
    if not len(behind):
        return
    rows = [
        [
            Cell(row.group),
            Cell(row.topic),
            Cell(row.queue_id),
            Cell(row.lag),
            Cell(row.lag_ms, duration_text),
            Cell(row.consumer_offset),
            Cell(row.broker_offset),
        ]
        for row in _first(behind)
    ]
    heads = ("group", "topic", "queue", "messages behind", "time behind", "consumed to")
    yield table_html("consumer lag", (*heads, "stored to"), rows)
    yield _more(len(behind))
    yield note(
        "Time behind: the store time of the queue's newest message minus that of the first "
        "message not consumed."
    )


def _waiting(findings: ReportData) -> Iterator[str]:
    if len(findings.delayed):
        rows = [
            [Cell(row.level), Cell(row.state), Cell(row.messages), Cell(row.first_due, _time)]
            for row in findings.delayed.itertuples()
        ]
        heads = ("delay level", "state", "messages", "first due (UTC)")
        yield table_html("delayed messages", heads, rows)
    else:
        yield note("No message is in a delay level.")
    if len(findings.transactions):
        rows = [
            [Cell(row.state.replace("_", " ")), Cell(row.messages), Cell(row.oldest, _time)]
            for row in findings.transactions.itertuples()
        ]
        names = ("transactions", "count", "oldest half message (UTC)")
        yield table_html("transactions", names, rows)
    elif findings.transactions_are_known:
        yield note("No transaction.")
    else:
        yield note("Transactions are not known: consumer offsets are in a database.")


def _dead(findings: ReportData) -> Iterator[str]:
    if not findings.dead_letter_count:
        yield note("No message is in a dead-letter topic.")
        return
    rows = [
        [
            Cell(row.group),
            Cell(row.topic),
            Cell(row.tries),
            Cell(row.why, is_long=True),
            Cell(" ".join(row.keys) if row.keys is not None else None),
            Cell(row.tags),
            Cell(row.store_timestamp, _time),
            Cell(_body(row.body), is_long=True),
        ]
        for row in findings.dead_letters.itertuples()
    ]
    heads = ("group", "first topic", "tries", "why", "keys", "tags", "dead since (UTC)", "body")
    yield table_html("dead letters", heads, rows)
    if findings.dead_letter_count > LISTED_DEAD_LETTERS:
        yield note(f"The first {LISTED_DEAD_LETTERS} of {findings.dead_letter_count:,}.")


_SECTIONS: Sequence[tuple[str, str, Any]] = (
    ("traffic", "Traffic", _traffic),
    ("disk", "Who fills the disk", _disk),
    ("messages", "Sizes and latency", _messages),
    ("spread", "Queues, tags and keys", _spread),
    ("consumers", "Consumer lag", _consumers),
    ("waiting", "Delayed messages and transactions", _waiting),
    ("dead", "Dead letters", _dead),
)


def _first(frame: Any) -> Iterator[Any]:
    yield from frame.head(_LISTED).itertuples()


def _more(rows: int) -> str:
    return note(f"The first {_LISTED} of {rows:,}.") if rows > _LISTED else ""


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _growth(growth: float) -> str:
    return f"{100 * growth:+.0f} %"


def _rate(rate: float) -> str:
    return f"{rate:,.3g}"


def _time(at: Any) -> str:
    return str(at.strftime("%Y-%m-%d %H:%M:%S"))


def _body(body: bytes) -> str:
    try:
        shown = body.decode()
    except UnicodeDecodeError:
        shown = f"0x{body[:40].hex()}"
    return shown[:_SHOWN_BODY] + ("…" if len(shown) > _SHOWN_BODY else "")


def picture(draw: Callable[[Any], Any], height: float = 3.2, narrow_height: float = 3.0) -> str:
    """Return a plot below its title, in two sizes (desktop, phone); a sentence if it is empty."""
    with style.styled():
        ax = draw(style.new_axes(_WIDE, height))
        title = ax.figure.get_suptitle().replace("\n", " ")
        if not ax.has_data():
            return note(f"{title}.")
        narrow = draw(style.new_axes(_NARROW, narrow_height))
        wide, small = _svg(ax.figure), _svg(narrow.figure)
    size, small_size = _size(ax.figure), _size(narrow.figure)
    return (
        f"<figure><h3>{text(title)}</h3>\n<picture>"
        f'<source media="{_PHONE}" {small_size} srcset="{small}">'
        f'<img alt="{text(title)}" {size} src="{wide}"></picture></figure>\n'
    )


def _size(figure: Any) -> str:
    width, height = (round(inches * 96) for inches in figure.get_size_inches())
    return f'width="{width}" height="{height}"'


def _svg(figure: Any) -> str:
    """Return a figure as a separate image, so that ids inside it do not clash with others."""
    figure.suptitle("")  # it is above the picture, where a narrow screen can wrap it
    out = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    figure.savefig(out, format="svg", metadata=metadata, transparent=True)
    data = base64.b64encode(_with_dark_colours(out.getvalue()).encode()).decode()
    return f"data:image/svg+xml;base64,{data}"


def _with_dark_colours(svg: str) -> str:
    names = []
    for number, (light, dark) in enumerate(_DARK.items()):
        svg = svg.replace(light.lower(), f"var(--c{number}, {light.lower()})")
        names.append(f"--c{number}: {dark};")
    rule = f"@media (prefers-color-scheme: dark) {{ :root {{ {' '.join(names)} }} }}"
    return svg.replace("<defs>", f"<defs><style>{rule}</style></defs><defs>", 1)


def bar_chart(found: Bars) -> str:
    """Return a ranking as lines of HTML, which fit any width; a sentence if it is empty."""
    if not found.rows:
        return note(f"{found.title}.")
    most = max(bar.value for bar in found.rows) or 1
    kind = "warning" if found.is_warning else "most"
    lines = "".join(_bar(bar, 100 * bar.value / most, kind) for bar in found.rows)
    # All values are as wide as the longest one, so that all bars have the same scale.
    width = max(len(bar.text) for bar in found.rows)
    return (
        f'<figure><h3>{text(found.title)}</h3>\n<ul class="bars" style="--value:{width}ch">'
        f"{lines}</ul></figure>\n"
    )


def _bar(bar: Bar, percent: float, kind: str) -> str:
    label = " · ".join(text(part) for part in bar.label)
    marked = f' class="{kind}"' if bar.is_marked else ""
    return (
        f'<li><span class="label">{label}</span>'
        f'<span class="bar"><i{marked} style="width:{percent:.2f}%"></i></span>'
        f'<span class="value">{text(bar.text)}</span></li>\n'
    )
