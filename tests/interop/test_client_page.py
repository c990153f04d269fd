"""The examples of docs/client.md run on real clusters, as they stand there."""

from __future__ import annotations

import pytest

from tests.interop.live_cluster import LiveCluster
from tests.readme_tables import DOCS
from tests.test_readme import LIVE_ADDRESS, SHOWN, blocks

pytestmark = pytest.mark.interop


def test_examples(live_cluster: LiveCluster, capfd: pytest.CaptureFixture[str]) -> None:
    page = DOCS / "client.md"
    names: dict[str, object] = {}
    for block in blocks(page):
        assert block.language == "python"
        code = block.code.replace(LIVE_ADDRESS, live_cluster.namesrv_addr)
        exec(compile("\n" * (block.line - 1) + code, page.name, "exec"), names)
    shown = capfd.readouterr().out
    assert [text for text in SHOWN[page.name] if text not in shown] == [], shown
