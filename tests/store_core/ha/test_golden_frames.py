# SPDX-License-Identifier: Apache-2.0
"""Our master sends the same as RocketMQ's, and accepts its slaves' reports (golden/replication)."""

from __future__ import annotations

import gzip
import hashlib
import json
import time

import pytest

from store_core import MessageStore, MessageStoreConfig
from store_core.ha.ha_service import HAService
from tests.golden_store import GOLDEN_DIR, unpack
from tests.store_core.ha.raw_slave import RawSlave, wait_until

RELEASES = ("5.3.3", "4.9.7")
_HEARTBEAT_MS = 120
# RocketMQ goes on if a slave reports an impossible offset; here that ends the connection, by name.
_REFUSED = ("beyond_the_end", "later_report_beyond_the_end")


def _directory(release):
    return GOLDEN_DIR / "replication" / release


def _scenarios():
    for release in RELEASES:
        recorded = json.loads((_directory(release) / "frames.json").read_text("utf-8"))
        for scenario in recorded["scenarios"]:
            yield pytest.param(
                release, recorded["settings"], scenario, id=f"{release}-{scenario['name']}"
            )


@pytest.fixture
def store_of(tmp_path):
    """Open a copy of a golden store; a slave's log takes more bytes unchanged."""
    stores = []

    def opened(release, settings, role="ASYNC_MASTER", first_segment=0):
        unpack(_directory(release) / "store.tar.gz", tmp_path)
        for path in (tmp_path / "store" / "commitlog").iterdir():
            if int(path.name) < first_segment:
                path.unlink()
        given = {
            **settings,
            "haSendHeartbeatInterval": _HEARTBEAT_MS,
            "brokerRole": role,
            "storePathRootDir": str(tmp_path / "store"),
        }
        config = MessageStoreConfig.from_properties({k: str(v) for k, v in given.items()})
        store = MessageStore(config)
        store.load()
        store.start()
        stores.append(store)
        return store

    yield opened
    for store in stores:
        store.shutdown()


def _received(slave, step):
    """Return the next frame in the form of the recordings."""
    while True:
        have = len(slave.body)
        offset, size = slave.frame()
        if size:
            return {"frame": [offset, size, hashlib.sha256(slave.body[have:]).hexdigest()]}
        # A machine that stalls makes a heartbeat due where none was recorded.
        if "heartbeat" in step or offset != step["frame"][0]:
            return {"heartbeat": offset}


def _play(service, store, slave, scenario, more):
    """Take the steps; return those in which something came, with the frames."""
    wanted, got = [], []
    for step in scenario["steps"]:
        if "report" in step:
            slave.report(*step["report"])
        elif "log_end" in step:
            for start, stop in _parts(store.max_phy_offset, step["log_end"], store):
                at = start - scenario["log_end"]
                store.append_to_commit_log(start, more[at : at + stop - start])
            service.wakeup()
        else:
            wanted.append({key: value for key, value in step.items() if key != "after_ms"})
            got.append(_received(slave, step))
    return wanted, got


def _parts(start, stop, store):
    """Split a range at segments."""
    size = store.config.mapped_file_size_commit_log
    while start < stop:
        end = min(stop, start - start % size + size)
        yield start, end
        start = end


@pytest.mark.parametrize(("release", "settings", "scenario"), list(_scenarios()))
def test_the_same_frames_and_heartbeats_come(store_of, release, settings, scenario):
    name = scenario["name"]
    more = gzip.decompress((_directory(release) / "more.bin.gz").read_bytes())
    store = store_of(
        release,
        {**settings, **scenario.get("settings", {})},
        "SLAVE" if name == "more_afterwards" else "ASYNC_MASTER",
        scenario.get("first_segment", 0),
    )
    assert store.max_phy_offset == scenario["log_end"]
    with HAService(store, port=0) as service, RawSlave(service.address) as slave:
        if name in _REFUSED:
            slave.report(*scenario["steps"][0]["report"])
            if name.startswith("later"):
                slave.frame()
                slave.report(scenario["log_end"] + 100)
            slave.wait_for_end()
            return
        if name == "late_first_report":
            due = time.monotonic() + 2 * _HEARTBEAT_MS / 1000
            wait_until(lambda: time.monotonic() >= due)
        wanted, got = _play(service, store, slave, scenario, more)
    assert got == wanted
    assert wanted


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["empty", "restarted"])
def test_reports_of_a_real_slave_are_understood(store_of, release, name):
    recorded = json.loads((_directory(release) / "reports.json").read_text("utf-8"))
    store = store_of(release, recorded["settings"])
    offsets = [step["report"] for step in recorded["steps"][name] if "report" in step]
    with HAService(store, port=0) as service, RawSlave(service.address) as slave:
        slave.report(offsets[0])
        wait_until(lambda: service.slaves() and service.slaves()[0].request_offset == offsets[0])
        slave.follow(store.max_phy_offset)
        for offset in offsets[1:]:
            slave.report(offset)
            wait_until(lambda offset=offset: service.slaves()[0].ack_offset == offset)
        assert service.push_to_slave_max_offset == max(offsets)
