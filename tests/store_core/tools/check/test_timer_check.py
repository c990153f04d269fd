# SPDX-License-Identifier: Apache-2.0
"""The check of timers: real brokers' stores are good, and damage is named."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from store_core.layout import TIMER_CHECKPOINT, TIMER_LOG_UNIT, TIMER_SLOT
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.golden_store import GOLDEN_DIR, tree_state, unpack
from tests.store_core.tools.check.support import all_kinds, checked

STORES = ["stopped-5x", "killed-5x"]
_PER_FILE = 20


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    unpack(GOLDEN_DIR / "timers" / request.param / "store.tar.gz", tmp_path)
    return tmp_path / "store"


def progress(root):
    return TIMER_CHECKPOINT.unpack((root / "config" / "timercheck").read_bytes())


def unit_files(root):
    return sorted((root / "timerlog").iterdir())


def units_of(path):
    table = np.frombuffer(path.read_bytes(), TIMER_LOG_UNIT.dtype, _PER_FILE).copy()
    return table[table["size"] == TIMER_LOG_UNIT.size]


def waiting(root):
    """Return (file, row) of the units that wait."""
    read_ms = progress(root).last_read_time_ms
    return [
        (path, row)
        for path in unit_files(root)
        for row, unit in enumerate(units_of(path))
        if int(unit["write_time"]) + int(unit["delay"]) >= read_ms
    ]


def change_unit(root, place, **values):
    path, row = place
    units = units_of(path)
    for name, value in values.items():
        units[name][row] = value
    with path.open("r+b") as file:
        file.write(units.tobytes())


def slots_of(root):
    return np.fromfile(root / "timerwheel", TIMER_SLOT.dtype)


def timer_findings(root):
    report = checked(root)
    return {f.kind.name: f for f in report.findings if f.kind.name.startswith("TIMER")}


def test_stores_of_brokers_are_good(store):
    before = tree_state(store)
    report = checked(store)
    assert report.is_good, report.findings
    assert not [kind for kind in all_kinds(report) if kind.startswith("TIMER")]
    assert report.counts.timer_units == sum(len(units_of(path)) for path in unit_files(store))
    assert report.counts.timer_slots == np.count_nonzero(slots_of(store)["time"])
    assert tree_state(store) == before


@pytest.mark.parametrize("field", ["commit_log_offset", "message_size"])
def test_a_unit_that_waits_and_names_no_record(store, field):
    place = waiting(store)[-1]
    value = int(units_of(place[0])[field][place[1]])
    change_unit(store, place, **{field: value + 1})
    finding = timer_findings(store)["TIMER_UNIT"]
    assert finding.count == 1


def test_a_unit_of_a_record_of_another_topic(store):
    place = waiting(store)[-1]
    with StoreSnapshot(store) as snapshot:
        queue = snapshot.consume_queue("alarms", 0)
        offset, size = queue.place_of(0)
    change_unit(store, place, commit_log_offset=offset, message_size=size)
    assert timer_findings(store)["TIMER_UNIT"].count == 1


def test_what_is_delivered_is_not_looked_at(store):
    first = (unit_files(store)[0], 0)
    assert first not in waiting(store)
    change_unit(store, first, commit_log_offset=1)
    assert set(timer_findings(store)) <= {"TIMER_LOST"}


def test_a_slot_that_points_at_a_unit_of_another_time(store):
    slots = slots_of(store)
    read_ms = progress(store).last_read_time_ms
    row = int(np.flatnonzero(slots["time"].astype(np.int64) * 1000 >= read_ms)[0])
    slots["last_pos"][row] = 0
    slots.tofile(store / "timerwheel")
    finding = timer_findings(store)["TIMER_SLOT"]
    assert finding.place == "timerwheel"


def test_a_chain_that_leads_astray(store):
    places = waiting(store)
    change_unit(store, places[-1], prev_pos=0)
    assert timer_findings(store)["TIMER_SLOT"].place == "timerlog"


def test_messages_that_wait_and_are_not_in_the_timer_log(store):
    count = len(waiting(store))
    for path in unit_files(store):
        path.unlink()
    assert timer_findings(store)["TIMER_LOST"].count >= count  # and earlier rounds of some
    assert not checked(store).is_good


@pytest.mark.parametrize("name", ["timerwheel", "timerlog"])
def test_a_file_that_cannot_be_one(store, name):
    if name == "timerwheel":
        (store / name).write_bytes(bytes(1000))
    else:
        unit_files(store)[0].rename(store / name / f"{7:020d}")
    assert set(timer_findings(store)) == {"TIMER_FILES"}


@pytest.mark.parametrize("content", [None, b"", bytes(7), bytes(4096)])
def test_a_timer_that_does_not_know_how_far_it_has_come(store, content):
    """A broker begins at the first timer message of the log, and repeats its deliveries."""
    path = store / "config" / "timercheck"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    (finding,) = timer_findings(store).values()
    assert finding.kind.name == "TIMER_FILES"
    (said,) = finding.examples
    assert "is missing" in said if content is None else "does not say how far" in said
    assert "treats all timer messages as new" in said


@pytest.mark.parametrize("name", ["timerwheel", "config/timercheck"])
def test_a_timer_that_a_broker_makes_anew_is_good(store, name):
    (store / name).unlink()
    shutil.rmtree(store / "timerlog")
    assert timer_findings(store) == {}
