# SPDX-License-Identifier: Apache-2.0
"""Reads of a store whose log has lost its end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rmqsource.errors import DamagedStoreError
from tests.rmqsource.reading import plan, read_rows
from tests.store_factory import StoreFactory

SEGMENT = 1024
RECORDS = 24


@pytest.fixture
def factory(tmp_path: Path) -> StoreFactory:
    """Return a store that was stopped cleanly, and whose last segments are gone."""
    made = StoreFactory(tmp_path / "store", segment_bytes=SEGMENT)
    for number in range(RECORDS):
        made.add(queue_id=number % 2, properties={"KEYS": f"k{number}"})
    root = made.write()
    for path in (root / "commitlog").iterdir():
        if int(path.name) >= SEGMENT:
            path.unlink()
    return made


def held(factory: StoreFactory) -> list[int]:
    offsets = (record.commit_log_offset for record in factory.records)
    return [offset for offset in offsets if offset < SEGMENT]


@pytest.mark.parametrize("options", [{}, {"topic": "TopicA"}, {"keys": "k3"}, {"queueId": "1"}])
def test_what_may_ask_for_lost_messages_fails(factory: StoreFactory, options) -> None:
    lost = RECORDS - len(held(factory))
    with pytest.raises(DamagedStoreError, match=f"{lost} messages after it are lost"):
        plan(factory.root, **options)


def test_other_modes_read_what_is_left_with_a_warning(factory: StoreFactory, caplog) -> None:
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        with caplog.at_level(logging.WARNING):
            rows = read_rows(factory.root, ("commit_log_offset",), mode=mode)
        assert sorted(row["commit_log_offset"] for row in rows) == held(factory)
        assert "after it are lost" in caplog.text
        caplog.clear()


def test_what_ends_before_is_read(factory: StoreFactory) -> None:
    third = factory.records[2]
    end = str(third.store_timestamp)
    rows = read_rows(
        factory.root, ("commit_log_offset",), endingTimestamp=end, storeTimeSlackMs="0"
    )
    assert [row["commit_log_offset"] for row in rows] == held(factory)[:2]
