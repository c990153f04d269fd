"""RocketMQ opens stores whose index and queues were made anew, and finds in them what it wrote."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from tests.golden_store import golden
from tests.interop import java_oracle

_EVER = 1 << 62
pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("name", "api"), [("expired-5x", "v5"), ("classic-4x", "v4")])
def test_rebuilt_store_is_the_same_to_rocketmq(tmp_path: Any, name: str, api: str) -> None:
    source = golden(name)
    root = source.copy_to(tmp_path)
    shutil.copy(source.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(source.config_properties)
    rebuild_index_in_place(str(root), config, clock=lambda: 1_800_000_000_000)
    rebuild_queues_in_place(str(root), config)
    out = java_oracle.dump(root, tmp_path / "dump", api=api)
    for dump in ("messages", "consume_queue", "offset_by_time", "get_message"):
        lines = (out / f"{dump}.jsonl").read_text("utf-8").split("\n")[:-1]
        assert [json.loads(line) for line in lines] == list(source.dump(dump)), dump
    begin = source.meta["min_phy_offset"]
    lines = (out / "index_query.jsonl").read_text("utf-8").split("\n")[:-1]
    for line, row in zip(lines, source.dump("index_query")):
        answer = json.loads(line)
        if row["begin"] or row["end"] < _EVER:
            continue  # times in the index depend on where its files begin
        assert answer["message_offsets"] == row["message_offsets"], row["key"]
        assert answer["phy_offsets"] == [at for at in row["phy_offsets"] if at >= begin]
    found = java_oracle.check(root, api=api)
    assert found["ok"], found
