"""The report in a real browser without a network: loads, shows its pictures, fits the screen."""

from __future__ import annotations

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
# Run in a page around the report: the report itself holds no script and allows none.
PROBE = """<!DOCTYPE html><html><body style="margin:0">
<iframe id="f" src="report.html" style="border:0;width:WIDTHpx;height:900px"></iframe>
<script>
const errors = [];
window.onload = () => {
  const frame = document.getElementById("f");
  const page = frame.contentDocument;
  const images = [...page.images];
  const text = page.querySelector("p");
  document.body.innerText = "FACTS" + JSON.stringify({
    title: page.title,
    images: images.map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width]),
    sections: page.querySelectorAll("section").length,
    pageWidth: page.documentElement.scrollWidth,
    viewWidth: frame.contentWindow.innerWidth,
    fontSize: parseFloat(frame.contentWindow.getComputedStyle(text).fontSize),
    cutHeadings: [...page.querySelectorAll("h1,h2,h3,p")].filter(
      e => e.getBoundingClientRect().right > frame.contentWindow.innerWidth + 1).length,
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map(r => r.name)
      .filter(n => !n.startsWith("data:")),
  }) + "END";
};
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


def facts_of(browser: str, report: Path, width: int, scratch: Path) -> dict[str, Any]:
    probe = report.parent / f"probe-{width}.html"
    probe.write_text(PROBE.replace("WIDTH", str(width)), "utf-8")
    command = [browser, *FLAGS, "--allow-file-access-from-files", f"--user-data-dir={scratch}"]
    command += [f"--window-size={max(width, 800)},900", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*command, probe.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    found = re.search(r"FACTS(\{.*?\})END", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    assert "Refused to" not in done.stderr, done.stderr[-2000:]
    facts: dict[str, Any] = json.loads(found.group(1))
    return facts


@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_read(browser: str, report: Path, width: int, tmp_path: Path) -> None:
    facts = facts_of(browser, report, width, tmp_path)
    assert facts["title"].startswith("RocketMQ store ")
    assert facts["sections"] == 7
    assert len(facts["images"]) == 9
    for is_complete, natural_width, shown_width in facts["images"]:
        assert is_complete
        assert natural_width > 500
        assert shown_width >= 600  # narrower, the labels inside could not be read
    assert facts["viewWidth"] == width
    assert facts["pageWidth"] <= width  # the page does not scroll sideways, pictures in it do
    assert facts["fontSize"] >= 16
    assert facts["cutHeadings"] == 0
    assert facts["loaded"] == []


def test_the_screen_is_not_empty(browser: str, report: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    command = [
        browser,
        *FLAGS,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1280,2000",
    ]
    done = subprocess.run(
        [*command, f"--screenshot={picture}", report.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert picture.exists(), done.stderr[-2000:]
    assert picture.stat().st_size > 50_000
