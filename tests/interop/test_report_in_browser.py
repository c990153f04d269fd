# SPDX-License-Identifier: Apache-2.0
"""The report in a real browser without a network: it loads, shows its pictures, fits the screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmqsource.options.source_options import options_for
from tests.golden_store import golden

pytestmark = pytest.mark.interop

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000"),
)
LIGHT, DARK = (f"--blink-settings=preferredColorScheme={number}" for number in (1, 0))
# Runs in a page around the report, whose policy allows only its own scripts.
PROBE = """<!DOCTYPE html><html><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<script>
window.onload = async () => {
  const frame = document.getElementById("f");
  const view = frame.contentWindow, page = frame.contentDocument;
  const images = [...page.images];
  await Promise.all(images.map(i => i.decode()));
  const shown = e => e.getClientRects().length > 0;
  const edge = e => e.getBoundingClientRect().right;
  const ends = [...page.querySelectorAll("h1,h2,h3,p,td,.value,.label,code,button,input")];
  const texts = [...page.querySelectorAll("p,h1,td,.value,.verdict b,code")].filter(shown);
  const facts = {
    title: page.title,
    images: images.map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width]),
    sections: page.querySelectorAll("section").length,
    pageWidth: page.documentElement.scrollWidth,
    viewWidth: view.innerWidth,
    fontSize: parseFloat(view.getComputedStyle(page.querySelector("p")).fontSize),
    beyondTheEdge: ends.filter(e => shown(e) && edge(e) > view.innerWidth + 1).length,
    scrolling: [...page.querySelectorAll(".wide, code, .bars li")].filter(
      e => e.scrollWidth > e.clientWidth + 1).length,
    scales: [...page.querySelectorAll(".bars")].map(
      list => new Set([...list.querySelectorAll(".bar")].map(b => b.clientWidth)).size),
    used: Math.max(...[...page.querySelectorAll(".facts, .verdict, .bars")].map(edge)),
    contrasts: texts.map(e => contrast(view, e)),
    loaded: view.performance.getEntriesByType("resource").map(r => r.name)
      .filter(n => !n.startsWith("data:")),
    ...tableFacts(page, view),
  };
  document.body.innerText = "FACTS" + JSON.stringify(facts) + "END";
};

function tableFacts(page, view) {
  const table = page.querySelector("table[aria-label=topics]");
  const tools = table.previousElementSibling;
  const column = name => [...table.tHead.rows[0].cells].findIndex(c => c.textContent === name);
  const sorted = name => {
    const head = table.tHead.rows[0].cells[column(name)];
    const button = head.querySelector("button");
    button.focus();
    const isFocused = page.activeElement === button;
    button.click();
    const values = [...table.tBodies[0].rows].map(r => r.cells[column(name)].textContent);
    return {order: head.getAttribute("aria-sort"), values, isFocused};
  };
  const seen = () => [...table.tBodies[0].rows].filter(r => r.getClientRects().length).map(
    r => r.cells[0].textContent);
  const facts = {first: seen().length};
  facts.messages = [sorted("messages"), sorted("messages")];
  facts.topic = [sorted("topic"), sorted("topic")];
  facts.others = [...table.tHead.rows[0].cells].filter(
    c => c.getAttribute("aria-sort") !== "none").length;
  const input = tools.querySelector("input");
  input.value = "LEDGER";
  input.dispatchEvent(new view.Event("input"));
  facts.found = seen();
  facts.said = tools.querySelector("[role=status]").textContent;
  input.value = "";
  input.dispatchEvent(new view.Event("input"));
  table.parentNode.lastElementChild.click();
  facts.all = seen().length;
  return facts;
}

function contrast(view, element) {
  const lightness = colour => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(n => n / 255).map(
      n => n <= .04045 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4);
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
  };
  let below = element;
  while (below && view.getComputedStyle(below).backgroundColor === "rgba(0, 0, 0, 0)") {
    below = below.parentElement;
  }
  const style = e => view.getComputedStyle(e);
  const pair = [lightness(style(element).color), lightness(style(below).backgroundColor)];
  pair.sort((a, b) => a - b);
  return (pair[1] + .05) / (pair[0] + .05);
}
</script></body></html>"""


@pytest.fixture(scope="module")
def browser() -> str:
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    pytest.fail(
        "no browser: this test needs one of "
        f"{', '.join(BROWSERS)} (Debian, Ubuntu: apt-get install chromium)"
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rmqsource.report.page import report_page
    from rmqsource.report.report_data import collect

    store = golden("cluster-5x")
    path = tmp_path_factory.mktemp("report") / "report.html"
    found = collect(options_for(str(store.root), store.options))
    path.write_text(report_page(found, 1_800_000_000_000), "utf-8")
    return path


def facts_of(
    browser: str, report: Path, width: int, scratch: Path, scheme: str = LIGHT
) -> dict[str, Any]:
    probe = report.parent / f"probe-{width}.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)), "utf-8")
    command = [browser, *FLAGS, scheme, "--allow-file-access-from-files"]
    command += [f"--user-data-dir={scratch}", f"--window-size={max(width, 800)},900"]
    done = subprocess.run(
        [*command, "--enable-logging=stderr", "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"FACTS(\{.*?\})END", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    facts: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return facts


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_it_can_be_read(
    browser: str, report: Path, width: int, scheme: str, tmp_path: Path
) -> None:
    facts = facts_of(browser, report, width, tmp_path, scheme)
    assert facts["title"] == "RocketMQ store broker-a"
    assert facts["sections"] == 8
    assert len(facts["images"]) == 5
    for is_complete, natural_width, shown_width in facts["images"]:
        assert is_complete
        # About as large as it was drawn: if smaller, its labels could not be read.
        assert shown_width >= 0.9 * natural_width
    assert facts["viewWidth"] == width
    assert facts["pageWidth"] <= width
    assert facts["beyondTheEdge"] == 0
    assert facts["scrolling"] == 0
    assert facts["used"] > width - 50
    assert set(facts["scales"]) == {1}  # bars of one ranking can be compared
    assert facts["fontSize"] >= 16
    assert min(facts["contrasts"]) >= 4.5
    assert facts["loaded"] == []


@pytest.mark.parametrize("width", [400, 1400])
def test_tables_can_be_sorted_and_searched(
    browser: str, report: Path, width: int, tmp_path: Path
) -> None:
    facts = facts_of(browser, report, width, tmp_path)
    assert (facts["first"], facts["all"]) == (15, 20)
    down, up = facts["messages"]
    numbers = [int(text.replace(",", "")) for text in down["values"]]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] == 236
    assert sorted(numbers) == [int(text.replace(",", "")) for text in up["values"]]
    assert (down["order"], up["order"]) == ("descending", "ascending")
    assert down["isFocused"]
    first, second = facts["topic"]
    assert (first["order"], second["order"]) == ("ascending", "descending")
    assert first["values"] == second["values"][::-1]
    assert facts["others"] == 1
    assert facts["found"] == ["ledger"]
    assert facts["said"] == "1 of 20"


def test_without_scripts_all_rows_are_there(browser: str, report: Path, tmp_path: Path) -> None:
    plain = report.parent / "plain.html"
    text = re.sub(r"<script>.*?</script>", "", report.read_text("utf-8"), flags=re.DOTALL)
    plain.write_text(text, "utf-8")
    command = [browser, *FLAGS, f"--user-data-dir={tmp_path}", "--dump-dom", plain.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "<button" not in done.stdout
    assert "<input" not in done.stdout
    assert done.stdout.count("<tr") == text.count("<tr")


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_screen_is_not_empty(browser: str, report: Path, scheme: str, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [browser, *FLAGS, scheme, profile, "--window-size=1280,2000"]
    done = subprocess.run(
        [*command, f"--screenshot={picture}", report.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert picture.exists(), done.stderr[-2000:]
    assert picture.stat().st_size > 50_000
