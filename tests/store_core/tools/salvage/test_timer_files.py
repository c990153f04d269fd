"""Timer messages of a salvaged store: a broker enqueues them anew, or none would be delivered."""

from __future__ import annotations

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_store import golden, tree_state
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    bodies,
    put_timed,
    run,
    timed_config,
    timed_store,
)


@pytest.fixture
def clock():
    return Clock(START_MS)


def test_waiting_timer_messages_are_delivered_after_salvage(tmp_path, clock):
    old, new = tmp_path / "old", tmp_path / "new"
    with timed_store(old, clock) as (store, service):
        put_timed(store, b"waits", TIMER_DELIVER_MS=str(START_MS + 60_000))
        run(store, service)  # enqueued: the checkpoint is behind it
    assert (old / "config" / "timercheck").exists()
    salvage_store(str(old), str(new), timed_config(old), SalvageOptions(clock))
    with timed_store(new, clock) as (store, service):
        run(store, service)
        assert bodies(store) == []
        run(store, service, START_MS + 120_000)
        assert bodies(store) == [b"waits"]


@pytest.mark.parametrize("name", ["timerwheel", "timerwheel.5200"])
def test_the_report_says_what_becomes_of_timer_messages(tmp_path, name):
    """Also of a broker that keeps snapshots of its wheel."""
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path / "old")
    (root / "timerwheel").rename(root / name)
    before = tree_state(root)
    config = MessageStoreConfig.from_properties(store.config_properties)
    options = SalvageOptions(Clock(START_MS))
    report = salvage_store(str(root), str(tmp_path / "new"), config, options)
    assert not list((tmp_path / "new" / "config").glob("timer*"))
    assert any("also those that were delivered or cancelled" in note for note in report.notes)
    assert tree_state(root) == before
