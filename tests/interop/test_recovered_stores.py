"""RocketMQ opens stores that crashed and that this project recovered; it finds every message."""

from __future__ import annotations

import shutil
import time
from contextlib import closing

import pytest

from store_core.config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog
from store_core.log.log_stretch import frames_from
from store_core.repair.store_recovery import recover_store
from tests.golden_store import golden
from tests.interop import java_oracle

pytestmark = pytest.mark.interop
_BODY_AT = 88


@pytest.mark.parametrize("api", java_oracle.APIS)
@pytest.mark.parametrize(
    ("name", "by_java"), [("crashed-5x", False), ("torn-5x", False), ("torn-5x", True)]
)
def test_crashed_and_torn_stores(tmp_path, name, by_java, api):
    # by_java: recovered by RocketMQ before, which leaves phantom units and records behind the cut
    store = golden(name, recovered=by_java)
    root = store.copy_to(tmp_path)
    shutil.copy(store.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(store.config_properties)
    end = recovered_end(root, config)
    assert end == store.meta["max_phy_offset"]
    found = java_oracle.check(root, api=api)
    assert found["ok"], found
    assert found["messages"] == len(list(store.dump("messages")))
    assert recovered_end(root, config) == end


def test_a_torn_store_of_an_old_release(tmp_path):
    root = java_oracle.generate("classic-4x", 31, tmp_path / "made")
    before = java_oracle.check(root, api="v4")["messages"]
    java_oracle.put(root, 20, 1, api="v4", halt=True)
    config = MessageStoreConfig.from_properties(
        golden("classic-4x").config_properties  # the profile's, whatever the seed
    )
    start, end = last_record(root, config)
    path = root / "commitlog" / f"{start - start % config.mapped_file_size_commit_log:020d}"
    with path.open("rb+") as file:
        file.seek(start % config.mapped_file_size_commit_log + _BODY_AT)
        file.write(bytes(end - start - _BODY_AT))
    recovered_end(root, config)
    found = java_oracle.check(root, api="v4")
    assert found["ok"], found
    assert found["messages"] == before + 19


def last_record(root, config):
    """Return where the last record of a log begins and ends."""
    with closing(CommitLog(StoreDirectory(str(root)), config)) as log:
        *_, frames = frames_from(log, 0, log.segments.max_offset)
        start = int(frames.column("commit_log_offset")[-1])
        return start, start + int(frames.column("total_size")[-1])


def recovered_end(root, config):
    """Recover a store and return where its log ends."""
    return recover_store(str(root), config, clock=lambda: time.time_ns() // 10**6).log.log_end
