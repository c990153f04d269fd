"""SIGKILL of our broker: what it acknowledged is there, and its clients go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.broker_kills import kill_broker_often

pytestmark = pytest.mark.interop


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kills = 3
    counts = kill_broker_often(tmp_path, "5.3.3", 1, kills)
    assert counts["outages"] == kills
    assert min(counts[name] for name in ("Delays", "Transactions", "NewTopics")) > kills
    assert counts["acknowledged"] >= 50 * kills
    assert counts["JavaClients"] > kills
