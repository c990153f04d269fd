# SPDX-License-Identifier: Apache-2.0
"""The report: one page that needs no other file, whatever the store's content."""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rmqsource.options.source_options import options_for
from store_core.topics import topic_kind
from tests.golden_store import STORE_NAMES, GoldenStore, golden
from tests.store_factory import StoreFactory

pytest.importorskip("pandas")

from rmqsource import plots
from rmqsource.explore.log_survey import quantile
from rmqsource.plots.style import about_text, bytes_text, duration_text, plural
from rmqsource.report.page import SCRIPT, picture, report_page
from rmqsource.report.report_data import ReportData, collect
from rmqsource.report.tables import Cell, table_html


class Page(HTMLParser):
    VOID = frozenset({"meta", "img", "br", "source"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def findings_of(store: GoldenStore, **options: str) -> ReportData:
    return collect(options_for(str(store.root), {**store.options, **options}))


@pytest.fixture(scope="module")
def page() -> str:
    return report_page(findings_of(golden("cluster-5x")), 1_800_000_000_000)


def test_it_needs_nothing_from_elsewhere(page: str) -> None:
    parsed = Page(page)
    assert not {"link", "iframe", "object", "form"} & set(parsed.tags)
    for name, value in parsed.attributes:
        if name in {"src", "srcset", "href"}:
            assert (value or "").startswith(("data:image/svg+xml;base64,", "#"))
    assert "url(" not in page
    assert 'name="viewport"' in page
    assert "default-src 'none'" in page


def test_nothing_but_one_fixed_script_may_run(page: str) -> None:
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [SCRIPT]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert not any(name.startswith("on") for name, _ in Page(page).attributes)


HOSTILE = """</script><script>alert(1)</script><img src=x onerror="alert(1)">' & "\x1b[2J\u202e"""


def test_names_in_a_store_are_texts_everywhere(page: str) -> None:
    found = findings_of(golden("cluster-5x"))
    names = {"topic", "group", "key", "tags", "why", "state"}
    for name, frame in vars(found).items():
        if hasattr(frame, "columns"):
            hostile = dict.fromkeys(names & set(frame.columns), HOSTILE)
            setattr(found, name, frame.assign(**hostile))
    found.dead_letters["body"] = HOSTILE.encode()
    found.dead_letter_groups = {HOSTILE: 4}
    gap = {"file": HOSTILE, "position": 1, "bytes_lost": 2, "reason": HOSTILE}
    found.counts = replace(found.counts, gaps=1, damage=[gap], stores=(HOSTILE,))
    found.told, found.config = (HOSTILE,), HOSTILE
    found.standings = [
        replace(found.standings[0], store=HOSTILE, broker=HOSTILE, cluster=HOSTILE, problem=HOSTILE)
    ]
    text = report_page(found, 0)
    parsed = Page(text)
    assert set(parsed.tags) == set(Page(page).tags) | {"p"}
    assert parsed.tags.count("script") == 1
    assert not any(name.startswith("on") for name, _ in parsed.attributes)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.count("alert(1)") > 20
    for data in re.findall(r"base64,([A-Za-z0-9+/=]+)", text):
        svg_is_well_formed(data)


def test_pictures_are_well_formed_and_named(page: str) -> None:
    pictures = re.findall(
        r'srcset="[^"]*base64,([A-Za-z0-9+/=]+)"><img alt="([^"]+)"[^>]*base64,([A-Za-z0-9+/=]+)"',
        page,
    )
    assert len(pictures) == 5
    for phone, alt, desk in pictures:
        assert len(alt) > 10
        svg_is_well_formed(phone)
        svg_is_well_formed(desk)


def svg_is_well_formed(data: str) -> None:
    root = ElementTree.fromstring(base64.b64decode(data))
    assert root.tag.endswith("svg")
    links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
    assert all(link.startswith("#") for link in links)


def test_it_tells_what_is_in_the_store(page: str) -> None:
    words = " ".join(Page(page).words)
    for fact in (
        *("707", "416 kB", "cg_orders_lagging is 174 messages behind", "1.47 s", "check exceeded"),
        *("documents", "42.3 %", "retries of the group failed", "R0", "2027-01-15 08:00:00.000"),
        *("Broker broker-a of cluster DefaultCluster", "Verdict: 2 to act on, 2 to look at"),
        *("from 2026-11-21 12:26:29.413 to 2026-11-21 12:27:34.052 UTC", "All times are UTC"),
        "Intended waits",
    ):
        assert fact in words, fact


@pytest.mark.parametrize("name", ["cluster-5x", "cluster-4x", "classic-5x"])
def test_percentiles_are_those_of_the_messages_in_every_place(name: str) -> None:
    store = golden(name)
    waits: dict[tuple[str, bool], list[int]] = {}
    sizes: list[int] = []
    for m in store.dump("messages"):
        if "blank" not in m and m["sys_flag"] & 0xC not in {4, 12}:
            meant = "REAL_TOPIC" in m["properties"] or m["sys_flag"] & 0xC == 8
            is_direct = topic_kind(m["topic"]) == "normal" and not meant
            wait = m["store_timestamp"] - m["born_timestamp"]
            waits.setdefault((m["topic"], is_direct), []).append(wait)
            sizes.append(m["store_size"])
    found = findings_of(store)
    told = {(row["topic"], row["is_direct"]): row for row in found.to_dict()["latency_summary"]}
    words = Page(report_page(found, 0)).words
    assert set(told) == set(waits)
    for (topic, is_direct), values in waits.items():
        exact = [at(values, percent) for percent in (50, 95, 99, 100)]
        row = [told[topic, is_direct][name] for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")]
        assert row == pytest.approx(exact, rel=0.01)
        assert row == sorted(row)
        assert row[-1] == exact[-1]
        begin = words.index("longest")
        if is_direct and topic in words[begin:]:  # the page lists the first forty
            begin = words.index(topic, begin)
            cells = [word for word in words[begin : begin + 8] if word.strip()]
            assert cells[3:7] == [duration_text(wait) for wait in row]
    direct = [wait for (_, is_direct), part in waits.items() if is_direct for wait in part]
    titles = "".join(words)
    waiting = found.latency[found.latency["is_direct"]]
    for frame, values, form, of in (
        (waiting, direct, duration_text, "within {}, 99 % within {}"),
        (found.sizes, sizes, bytes_text, "up to {}, 99 % up to {}"),
    ):
        greatest, messages = frame["greatest"].to_numpy(), frame["messages"].to_numpy()
        numbers = [quantile(greatest, messages, percent) for percent in (50, 99)]
        assert numbers == pytest.approx([at(values, 50), at(values, 99)], rel=0.004)
        assert of.format(*(about_text(number, form) for number in numbers)) in titles


def at(values: list[int], percent: int) -> int:
    return sorted(values)[-(-percent * len(values) // 100) - 1]


@pytest.mark.parametrize("name", STORE_NAMES)
def test_other_stores_without_a_warning_of_a_library(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = report_page(findings_of(golden(name)), 0)
    words = " ".join(Page(text).words)
    assert "Verdict: " in words
    assert " 1 times" not in words
    assert " 1 messages" not in words


@pytest.mark.parametrize(
    ("messages", "topics", "step_ms"), [(0, 1, 1), (1, 1, 1), (2, 1, 0), (9, 3, 0), (9, 1, 5)]
)
def test_small_stores_without_a_warning_of_a_library(
    tmp_path: Path, messages: int, topics: int, step_ms: int
) -> None:
    store = StoreFactory(tmp_path / "store", step_ms=step_ms)
    for number in range(messages):
        store.add(f"Topic{number % topics}")
    options = options_for(str(store.write()), {"maxHashSlotNum": "8", "maxIndexNum": "64"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = collect(options)
        text = report_page(found, 0)
        found.to_dict()
    assert found.counts.messages == messages
    words = " ".join(Page(text).words)
    assert " 1 messages" not in words
    assert "a day)" not in words
    if step_ms == 0 or messages == 1:
        assert "All messages were stored within" in words
    if not messages:
        assert "There is no message in the log." in words


def test_a_picture_with_nothing_in_it_is_a_sentence() -> None:
    text = report_page(findings_of(golden("empty-5x")), 0)
    assert "<img" not in text
    assert '<p class="note">No consumer group is behind.</p>' in text


def test_pictures_have_colours_for_the_dark() -> None:
    svg = picture(lambda ax: plots.message_sizes(findings_of(golden("classic-5x")).sizes, ax))
    (desk,) = re.findall(r'<img[^>]*base64,([A-Za-z0-9+/=]+)"', svg)
    drawn = base64.b64decode(desk).decode()
    assert "prefers-color-scheme: dark" in drawn
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawn))
    assert used <= {"#ffffff"}, "colours that do not change with the scheme"


def test_damage_is_told() -> None:
    found = findings_of(golden("torn-5x"))
    assert found.counts.gaps > 0
    words = " ".join(Page(report_page(found, 0)).words)
    assert plural(found.counts.gaps, "damaged place") in words


def test_what_is_selected_is_counted() -> None:
    found = findings_of(golden("cluster-5x"), topic="orders")
    assert found.counts.messages == 236
    assert found.topics["topic"].tolist() == ["orders"]


def test_counts_agree_between_the_parts() -> None:
    found = findings_of(golden("cluster-5x"))
    assert found.topics["messages"].sum() == found.counts.messages
    assert found.topics["bytes"].sum() == found.counts.bytes
    assert found.delayed["messages"].sum() == 31
    assert found.transactions["messages"].sum() == 23
    assert found.dead_letter_count == len(found.dead_letters) == 4


def test_as_plain_values() -> None:
    told = findings_of(golden("cluster-5x")).to_dict()
    assert told["messages"] == 707
    assert {type(row["lag_ms"]) for row in told["lag"]} == {int}
    assert told["dead_letters"][0]["keys"] == ["R0"]
    growth = [row["growth"] for row in told["topics"]]
    assert None in growth


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell("<script>alert(1)</script>"), "&lt;script&gt;alert(1)&lt;/script&gt;"),
        (Cell('"&\x00\n'), "&quot;&amp;\\x00\\n"),
        (Cell(None), ""),
        (Cell(float("nan"), str), ""),
        (Cell(1234567), "1,234,567"),
    ],
)
def test_nothing_in_a_table_is_markup(cell: Any, text: str) -> None:
    assert f">{text}</td>" in table_html("table", ("head",), [[cell]])
