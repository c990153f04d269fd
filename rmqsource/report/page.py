"""One page of HTML that needs nothing else: pictures inside it, tables, no scripts, no network."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

from rmqsource import plots
from rmqsource.explore.trace_events import moment
from rmqsource.plots.style import bytes_text, count_text, duration_text
from rmqsource.report.report_data import LISTED_DEAD_LETTERS
from rmqsource.report.style import STYLE
from rmqsource.report.tables import Cell, table_html
from rmqsource.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.report.report_data import ReportData

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LISTED = 40
_CHECKED = "Every body was checked against its CRC."
_NOT_CHECKED = "Bodies were not checked: damage inside of one is not seen here."


def report_page(findings: ReportData, made_at_ms: int) -> str:
    """Return the page.

    Parameters
    ----------
    findings
        What it tells.
    made_at_ms
        The time that it says it was made at.
    """
    body = "".join(
        (
            _head(findings, made_at_ms),
            *(
                f'<section id="{name}"><h2>{_text(title)}</h2>{"".join(parts)}</section>\n'
                for name, title, parts in _sections(findings)
            ),
        )
    )
    name = ", ".join(findings.counts.stores)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>RocketMQ store {_text(name)}</title>\n<style>{STYLE}</style></head>\n"
        f"<body>\n{body}</body></html>\n"
    )


def _head(findings: ReportData, made_at_ms: int) -> str:
    counts = findings.counts
    span = (counts.last_ms or 0) - (counts.first_ms or 0)
    lag = int(findings.lag["lag"].sum()) if len(findings.lag) else 0
    facts = [
        (count_text(counts.messages), "messages in the log"),
        (bytes_text(counts.bytes), "of records"),
        (duration_text(span), "from first to last"),
        (count_text(int((findings.topics["messages"] > 0).sum())), "topics with messages"),
        (count_text(lag), "messages not consumed, over all groups"),
        (count_text(findings.dead_letter_count), "dead letters"),
    ]
    tiles = "".join(f"<div><b>{_text(b)}</b>{_text(t)}</div>" for b, t in facts)
    times = ""
    if counts.first_ms is not None and counts.last_ms is not None:
        times = f", stored from {moment(counts.first_ms)} to {moment(counts.last_ms)} UTC"
    names = ", ".join(counts.stores)
    links = "".join(f'<a href="#{n}">{_text(t)}</a>' for n, t, _ in _SECTIONS)
    return (
        f"<h1>What is in the store</h1>\n<p>{_text(names)}{_text(times)}.</p>\n"
        f'<div class="facts">{tiles}</div>\n{_damage(findings)}'
        f"<nav>{links}</nav>\n"
        f'<p class="note">Made at {moment(made_at_ms)} UTC from the files of the store alone. '
        f"{_CHECKED if findings.bodies_checked else _NOT_CHECKED}</p>\n"
    )


def _damage(findings: ReportData) -> str:
    told = "".join(f'<div class="bad">{_text(text)}</div>\n' for text in findings.told)
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
    table = table_html(("file", "byte", "bytes lost", "what is there"), rows)
    return (
        f'<div class="bad"><b>{count_text(counts.gaps)} damaged places</b>, '
        f"{bytes_text(counts.gap_bytes)} that cannot be read. All figures are of what can.</div>"
        f"{table}"
    )


def _sections(findings: ReportData) -> Iterator[tuple[str, str, list[str]]]:
    for name, title, build in _SECTIONS:
        yield name, title, list(build(findings))


def _traffic(findings: ReportData) -> Iterator[str]:
    yield _picture(plots.traffic(findings.traffic))
    yield _picture(plots.traffic(findings.traffic, value="bytes"))


def _disk(findings: ReportData) -> Iterator[str]:
    yield _picture(plots.bytes_by_topic(findings.topics))
    held = findings.topics[findings.topics["messages"] > 0]
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
    yield table_html((*heads, "newer half", "oldest message"), rows)
    yield _more(len(held))
    yield _note(
        "Rates are over the time from the store's first to its last message. Newer half: bytes of "
        "the newer half of that time against the older half."
    )


def _messages(findings: ReportData) -> Iterator[str]:
    yield _picture(plots.message_sizes(findings.sizes))
    yield _picture(plots.latency(findings.latency))
    rows = [
        [
            Cell(row.topic),
            Cell(row.messages),
            Cell(row.p50_ms, duration_text),
            Cell(row.p95_ms, duration_text),
            Cell(row.p99_ms, duration_text),
            Cell(row.max_ms, duration_text),
            Cell(row.clock_ahead),
        ]
        for row in findings.latency_summary.head(_LISTED).itertuples()
    ]
    yield table_html(
        ("topic", "messages", "median", "95 %", "99 %", "longest", "clock ahead"), rows
    )
    yield _note(
        "From born (the producer's clock) to stored (the broker's). Messages that are stored "
        "again after a delay or a retry keep their born time. Clock ahead: born after stored. "
        "Median, 95 % and 99 %, of times as of sizes: so many messages take that or less. They are "
        "exact below 512 (ms or bytes), above at most 0.4 % too large, and shown with three digits."
    )


def _spread(findings: ReportData) -> Iterator[str]:
    yield _picture(plots.queue_skew(findings.queue_skew))
    yield _picture(plots.tags(findings.tags))
    yield _picture(plots.top_keys(findings.top_keys))


def _consumers(findings: ReportData) -> Iterator[str]:
    yield _picture(plots.consumer_lag(findings.lag))
    behind = findings.lag[findings.lag["lag"] > 0]
    rows = [
        [
            Cell(row.group),
            Cell(row.topic),
            Cell(row.queue_id),
            Cell(row.consumer_offset),
            Cell(row.broker_offset),
            Cell(row.lag),
            Cell(row.lag_ms, duration_text),
        ]
        for row in behind.head(_LISTED).itertuples()
    ]
    if rows:
        heads = ("group", "topic", "queue", "consumed to", "stored to", "behind", "by")
        yield table_html(heads, rows)
        yield _more(len(behind))


def _waiting(findings: ReportData) -> Iterator[str]:
    if len(findings.delayed) == 0 and len(findings.transactions) == 0:
        yield _note("No delayed message and no transaction.")
    if len(findings.delayed):
        rows = [
            [Cell(row.level), Cell(row.state), Cell(row.messages), Cell(row.first_due, _time)]
            for row in findings.delayed.itertuples()
        ]
        yield table_html(("delay level", "state", "messages", "first due (UTC)"), rows)
    if len(findings.transactions):
        rows = [
            [Cell(row.state), Cell(row.messages), Cell(row.oldest, _time)]
            for row in findings.transactions.itertuples()
        ]
        yield table_html(("transactions", "count", "oldest half message (UTC)"), rows)


def _dead(findings: ReportData) -> Iterator[str]:
    if not findings.dead_letter_count:
        yield _note("No message is in a dead-letter topic.")
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
    yield table_html(heads, rows)
    if findings.dead_letter_count > LISTED_DEAD_LETTERS:
        yield _note(f"The first {LISTED_DEAD_LETTERS} of {findings.dead_letter_count:,}.")


_SECTIONS: Sequence[tuple[str, str, Any]] = (
    ("traffic", "Traffic", _traffic),
    ("disk", "Who fills the disk", _disk),
    ("messages", "Sizes and latency", _messages),
    ("spread", "Queues, tags and keys", _spread),
    ("consumers", "Consumer lag", _consumers),
    ("waiting", "Delayed messages and transactions", _waiting),
    ("dead", "Dead letters", _dead),
)


def _picture(ax: Any) -> str:
    """Return a picture as an image of its own, so that no two share names inside."""
    figure = ax.figure
    title = figure.get_suptitle().replace("\n", " ")
    figure.suptitle("")  # it stands above the picture, where it can be broken on a narrow screen
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    data = base64.b64encode(out.getvalue().encode()).decode()
    width, height = (round(inches * 96) for inches in figure.get_size_inches())
    return (
        f'<h3>{_text(title)}</h3>\n<div class="wide"><img alt="{_text(title)}" width="{width}" '
        f'height="{height}" src="data:image/svg+xml;base64,{data}"></div>\n'
    )


def _more(rows: int) -> str:
    return _note(f"The first {_LISTED} of {rows:,}.") if rows > _LISTED else ""


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>\n'


def _text(text: str) -> str:
    return html.escape(printable(text), quote=True)


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
        text = body.decode()
    except UnicodeDecodeError:
        text = f"0x{body[:40].hex()}"
    return text[:120] + ("…" if len(text) > 120 else "")  # noqa: PLR2004 (characters shown)
