# SPDX-License-Identifier: Apache-2.0
"""README and docs: examples run, tables match the code, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import pytest
import typer.main

from rmqsource import __version__
from rmqsource.cli import main
from rmqsource.cli.app import app
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from store_core.layout import CQ_UNIT, HEADER_IPV4, INDEX_ENTRY, INDEX_HEADER
from tests.readme_tables import CONTRIBUTING, DOCS, PAGES, README, SECTIONS, with_tables
from tests.rmqsource.live.recorded_broker import RecordedCluster
from tests.rmqsource.live.sending_broker import SendingBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README_LINES = 150
LINE_CHARACTERS = 120
PNG_BYTES = 200_000
PICTURES = ("file-format.svg", "read-plan.svg", "report.png", "terminal.svg")
SHOWN = {
    "README.md": (
        "|2026-11-21 12:26:33.0",
        "42.3 %",
        "dead lettered after 27.8 s",
        "damaged: 1 findings of damage",
        "records                    706",
        "SEND_OK",
    ),
    "client.md": (
        "SEND_OK in queue ",
        "10 teas\n14 messages pulled\n",
        "kitchen: paid\nkitchen: brewed\nkitchen: served\nall served: True\n",
        "COMMIT_MESSAGE\n",
        "audit starts again in 4 queues\n",
    ),
    "command-line.md": (
        "found by offset message id",
        "dead lettered after 27.8 s",
        "orders",
        "SEND_OK",
    ),
    "damage-and-rescue.md": (
        "damaged: 1 findings of damage",
        "only in A",
        "706 messages of 707",
        '"bytes_lost": ',
    ),
    "file-format.md": ('99524 297 {"kind":"normal","n":155',),
    "filters.md": (
        "True\nNone ['amount', 'region']\n",
        "[ True False False False] [False False False  True]",
        "expected: a number or a property",
    ),
    "live.md": ("|paid|[K0]|", "3 paid\n3 from 20 to 40", "batch 0: 6 orders\nbatch 1: 2 orders"),
    "reading.md": (
        "|orders                           |4     |236     |",
        "|2026-11-21 12:26:33.0",
        "|       0|2026-11-21",
        "access path      index",
    ),
    "streaming.md": (
        "batch 0: 100 messages\nbatch 1: 30 messages\nbatch 2: 20 messages\n",
        "orders, batch 3: 25 messages, 2,600 bytes, 120,000 ms behind ",
        "orders, batch 4: 0 messages, 0 bytes, 0 ms behind ",
        "205 messages mirrored",
        "205 rows in the lake",
        "|2026-01-01 00:00:00|  100|\n|2026-01-01 00:01:00|   50|\n|2026-01-01 00:03:00|   50|\n",
        "batch 0: 205 messages",
    ),
    "serve.md": ("first of orders\n", "SEND_OK\n"),
    "store.md": (
        "GetMessageStatus.FOUND",
        "['K155']",
        "b'one coffee'",
        "True 0\nb'one tea'\n",
    ),
    "writing.md": ("|[o1]|", "3 messages from a stream"),
}
"""Page -> output of its examples, in part. Pages without an example are not listed."""


LIVE_ADDRESS = "localhost:9876"
"""The name server of the examples; the tests have one of their own."""
OF_CLUSTERS = {"README.md", "command-line.md", "live.md"}
OF_REAL_CLUSTERS = {"client.md"}
"""Their examples are run in tests/interop/test_client_core.py."""


@pytest.fixture
def cluster() -> Iterator[str]:
    """Return the address of a cluster with a topic ``orders``."""
    with RecordedCluster() as running:
        running.add_topic("orders", queues={"broker-a": 2})
        SendingBroker(running.broker("broker-a"))
        yield running.namesrv_addr


class Block(NamedTuple):
    """A fenced part of a page."""

    language: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in found]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in OF_REAL_CLUSTERS],
    ids=lambda page: page.name,
)
def test_examples_run_in_an_empty_folder(
    page: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if page.name == "streaming.md" and not STREAM_READER_GETS_LIMITS:
        pytest.skip("Spark before 4.2 knows no limits of streams")
    monkeypatch.chdir(tmp_path)
    for module in ("job", "commands.sink"):  # one session serves all tests
        monkeypatch.setattr(f"rmqsource.cli.{module}.spark_job", lambda *_: nullcontext(spark))
    names: dict[str, object] = {}
    cluster = request.getfixturevalue("cluster") if page.name in OF_CLUSTERS else LIVE_ADDRESS
    for block in blocks(page):
        if block.language == "python":
            code = block.code.replace(LIVE_ADDRESS, cluster)
            exec(compile("\n" * (block.line - 1) + code, page.name, "exec"), names)
            let_listeners_finish(spark)
        elif block.language == "sh":
            for line in block.code.splitlines():
                run_command(line.replace(LIVE_ADDRESS, cluster), tmp_path, monkeypatch)
    shown = "".join(capfd.readouterr())
    tables = [block.code for block in blocks(page) if block.code.startswith("+--")]
    assert [text for text in (*SHOWN.get(page.name, ()), *tables) if text not in shown] == []


def let_listeners_finish(spark: SparkSession) -> None:
    """Wait until Spark has notified all listeners."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def run_command(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of a shell; a comment at its end may name its exit code."""
    expected = re.search(r"# exit code (\d+)$", line)
    words = shlex.split(line, comments=True)
    if words[1] in {"copy", "export", "import"}:
        # The session of the tests was started in another folder, where its workers stay.
        words = [str(folder / word) if "/" in word else word for word in words]
    if words[:2] == ["python", "-c"]:
        exec(words[2], {})
        return
    assert words[0] == "rocketmq-store"
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code or 0) == (int(expected[1]) if expected else 0), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_or_is_only_shown(page: Path) -> None:
    languages = {block.language for block in blocks(page)}
    assert languages <= {"python", "sh", "text"}
    assert bool(languages & {"python", "sh"}) == (page.name in SHOWN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_code(page: Path) -> None:
    assert with_tables(page) == page.read_text("utf-8"), "run python -m tests.readme_tables"


def test_generated_tables_have_a_page() -> None:
    assert {page for page, _ in SECTIONS.values()} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text("utf-8"))
    assert links
    missing = []
    for link in links:
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in headings(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_by_name_have_an_address(page: Path) -> None:
    text = page.read_text("utf-8")
    addresses = re.findall(r"^\[([^\]]+)\]: https://\S+$", text, re.MULTILINE)
    assert sorted(addresses) == sorted(set(re.findall(r"\]\[([^\]]+)\]", text)))


def headings(page: Path) -> set[str]:
    """Return the names by which links refer to the headings of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


def test_every_page_is_linked_from_the_readme() -> None:
    """Or from CONTRIBUTING.md, to which the README links."""
    text = README.read_text("utf-8") + CONTRIBUTING.read_text("utf-8")
    places = {page.relative_to(README.parent).as_posix() for page in PAGES if page != README}
    assert {place for place in places if f"({place})" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    """Tables are exempt, and so are addresses of links, which cannot be broken."""
    lines = page.read_text("utf-8").splitlines()
    if page == README:
        assert len(lines) <= README_LINES
    lines = [line for line in lines if not re.match(r"\||\[\w+\]: https://", line)]
    assert [line for line in lines if len(line) > LINE_CHARACTERS] == []


def test_no_page_installs_from_an_index_that_has_it_not() -> None:
    notebooks = sorted((README.parent / "notebooks").glob("*.ipynb"))
    assert notebooks
    for page in (*PAGES, *notebooks):
        assert not re.search(r"pip install '?rmqsource", page.read_text("utf-8")), page.name


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_shown_and_well_formed(name: str) -> None:
    assert any(
        re.search(rf"!\[[^]]+\]\((docs/)?{name}\)", page.read_text("utf-8")) for page in PAGES
    )
    file = DOCS / name
    if file.suffix == ".png":
        assert file.read_bytes().startswith(b"\x89PNG")
        assert file.stat().st_size < PNG_BYTES
        return
    picture = ElementTree.parse(file).getroot()
    assert picture.tag.endswith("svg")
    ground = picture.find("{http://www.w3.org/2000/svg}rect")
    assert ground is not None  # on a dark page a picture needs a background of its own
    assert ground.get("fill", "").startswith("#")


@pytest.mark.parametrize(
    "layout", [HEADER_IPV4, CQ_UNIT, INDEX_HEADER, INDEX_ENTRY], ids=lambda x: x.name
)
def test_the_primer_names_the_fields_that_the_code_declares(layout: Any) -> None:
    tables = re.findall(
        r"\| position \| bytes \| field .*\n\|[-|]+\|\n((?:\|.*\n)+)",
        (DOCS / "file-format.md").read_text("utf-8"),
    )
    rows = [re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)`", table, re.MULTILINE) for table in tables]
    dtype = layout.dtype
    declared = [
        (str(dtype.fields[name][1]), str(dtype.fields[name][0].itemsize), name)
        for name in dtype.names
    ]
    assert declared in rows


def test_every_command_has_a_line() -> None:
    text = (DOCS / "command-line.md").read_text("utf-8")
    table = text.partition("## All commands")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| (`[a-z`, -]+`) \|", table, re.M)
    named = set(re.findall(r"`([a-z-]+)`", " ".join(lines)))
    assert named == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_the_wheel_that_the_readme_installs_is_the_one_that_is_built() -> None:
    names = set(re.findall(r"rmqsource-([\w.]+)-\*\.whl", README.read_text("utf-8")))
    assert names == {__version__}


def test_marked_place_for_measurements() -> None:
    assert "<!-- bench -->" in (DOCS / "performance.md").read_text("utf-8")
