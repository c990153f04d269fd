# SPDX-License-Identifier: Apache-2.0
"""The advice of a check repairs its findings."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import HEADER_IPV4
from store_core.tools.check import CheckReport, Finding
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import recover_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.store_core.tools.check.support import checked
from tests.store_core.tools.check.test_store_check import CASES, SIZES
from tests.store_factory import StoreFactory, small_store

NOW_MS = 1_800_000_000_000
COMMAND = re.compile(r"rocketmq-store ([a-z-]+)|(rebuild-queues) --")
CONFIG = MessageStoreConfig.from_properties(
    {**SIZES, "mappedFileSizeConsumeQueue": "320", "mappedFileSizeCommitLog": "4096"}
)
OF_A_0 = [2, 4, 8, 10, 14, 16, 20, 22, 26, 28]
"""Places among all of the first records of TopicA/0."""


def in_record(number: int, field: str, value: int) -> Callable[[StoreFactory], object]:
    def change(store: StoreFactory) -> None:
        record = store.records[number]
        with store.segment_path(record.commit_log_offset).open("r+b") as file:
            file.seek(record.commit_log_offset % store.segment_bytes + HEADER_IPV4.at(field))
            file.write(value.to_bytes(HEADER_IPV4.dtype[field].itemsize, "big", signed=True))

    return change


def without_queue(change: Callable[[StoreFactory], object]) -> Callable[[StoreFactory], object]:
    def both(store: StoreFactory) -> None:
        change(store)
        shutil.rmtree(store.root / "consumequeue" / "TopicA" / "0")

    return both


def crashed(change: Callable[[StoreFactory], object]) -> Callable[[StoreFactory], object]:
    def both(store: StoreFactory) -> None:
        change(store)
        (store.root / "abort").touch()

    return both


FIELDS = {
    f"{field} of {number} is {value}": in_record(number, field, value)
    for field, values in {
        "queue_offset": (0, 1, 3, 77, 1 << 40, -1, -(1 << 63)),
        "queue_id": (1, 3, 99, -1),
        "sys_flag": (4, 8, 12),
        "store_timestamp": (0, -1, 4_102_444_800_000, 1_600_000_000_000),
        "born_timestamp": (0, 4_102_444_800_000),
        "commit_log_offset": (0, 5),
        "flag": (7,),
    }.items()
    for number in (OF_A_0[0], OF_A_0[1], OF_A_0[4], 58)
    for value in values
}
DAMAGE = {
    **{name: case.change for name, case in CASES.items()},
    **FIELDS,
    **{f"{name}, queue lost": without_queue(change) for name, change in FIELDS.items()},
    **{f"{name}, crashed": crashed(case.change) for name, case in CASES.items()},
    "record gone": lambda s: s.erase(s.records[8]),
    "record and queue gone": without_queue(lambda s: s.erase(s.records[8])),
    "first record gone": lambda s: s.erase(s.records[2]),
    "first record and queue gone": without_queue(lambda s: s.erase(s.records[2])),
}


def follow(store: StoreFactory, finding: Finding, target: Path) -> CheckReport | None:
    """Follow the advice of a finding, and check again; None if it names no command."""
    named = COMMAND.search(finding.advice)
    if named is None:
        return None
    command, root = named[1] or named[2], target
    shutil.copytree(store.root, root)
    if command == "rebuild-queues":
        flags = re.findall(r"--accept-(\w+)", finding.advice)
        accepted = {f"accept_{flag}": True for flag in flags}
        rebuild_queues_in_place(str(root), CONFIG, **accepted)
    elif command == "rebuild-index":
        rebuild_index_in_place(str(root), CONFIG, clock=lambda: NOW_MS)
    elif command == "recover":
        recover_store(str(root), CONFIG, clock=lambda: NOW_MS)
    else:
        assert command == "salvage"
        root = target.with_name(target.name + "-new")
        salvage_store(str(target), str(root), CONFIG, SalvageOptions(lambda: NOW_MS))
    return checked(root, SIZES)


@pytest.mark.parametrize("name", DAMAGE)
def test_advice_that_is_followed_mends(tmp_path: Path, name: str) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    DAMAGE[name](store)
    for number, finding in enumerate(checked(store.root, SIZES).findings):
        after = follow(store, finding, tmp_path / f"{number}")
        if after is not None:
            left = [one for one in after.findings if one.kind is finding.kind]
            assert left == [], finding.advice
