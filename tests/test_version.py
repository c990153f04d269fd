# SPDX-License-Identifier: Apache-2.0
"""One version: the packages, the distribution, the wheel that the pages name, the changelog."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib import metadata

import pytest

import rmqnet
import rmqsource
import store_core
from tests.conftest import ROOT
from tests.readme_tables import PAGES

VERSION = store_core.__version__
LOADED = "import sys, {0}; {0}.__version__; print(*sys.modules)"


@pytest.mark.parametrize("package", [rmqnet, rmqsource])
def test_the_packages_have_one_version(package) -> None:
    assert package.__version__ == VERSION


def test_the_distribution_takes_it_from_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == "attr: store_core.__version__"
    assert metadata.version("rmqsource") == VERSION


@pytest.mark.parametrize("package", ["store_core", "rmqnet", "rmqsource"])
def test_asking_for_it_loads_no_module_of_a_room(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(package)],
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    ours = {name for name in done.stdout.split() if name.startswith(("store_core", "rmq"))}
    assert ours <= {package, "store_core", "store_core.exports"}
    assert "numpy" not in done.stdout.split()


def test_the_pages_name_the_wheel_of_this_version() -> None:
    places = [*PAGES, *sorted((ROOT / "notebooks").glob("*.ipynb"))]
    texts = {place.name: place.read_text("utf-8") for place in places}
    wheels = {name: re.findall(r"rmqsource-([\w.]+)-", texts[name]) for name in texts}
    assert [name for name, found in wheels.items() if set(found) - {VERSION}] == []
    assert wheels["README.md"]


def test_the_changelog_starts_with_what_is_not_released() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert [t for t in titles[1:] if not re.fullmatch(r"[0-9.]+ - \d{4}-\d\d-\d\d", t)] == []
