"""RocketMQ opens stores that crashed and that this project recovered; it finds every message."""

from __future__ import annotations

import shutil
import time
from contextlib import closing

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog
from store_core.log.log_scan import scan_frames, skip_gap
from store_core.recovery.recovery_plan import Loss
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
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


@pytest.mark.parametrize("api", java_oracle.APIS)
@pytest.mark.parametrize("at_border", [True, False])
def test_what_a_cut_by_rocketmq_left_is_no_message(tmp_path, api, at_border):
    """RocketMQ recovers a log that tore, at the begin of a segment too, and stops cleanly.

    Behind the cut readable records stay, all of which were dispatched before the crash.
    """
    profile = "classic-5x" if api == "v5" else "classic-4x"
    root = java_oracle.generate(profile, 31, tmp_path / "made")
    config = MessageStoreConfig.from_properties(golden(profile).config_properties)
    size, starts = config.mapped_file_size_commit_log, record_starts(root, config)
    last = [start for start in starts if start // size == starts[-1] // size]
    torn = last[0 if at_border else 3]
    assert (torn % size == 0) == at_border
    with (root / "commitlog" / f"{torn - torn % size:020d}").open("rb+") as file:
        file.seek(torn % size + 4)
        file.write(b"\0")
    (root / "abort").write_text("1" if api == "v5" else "")
    wanted = starts.index(torn)
    assert java_oracle.check(root, api=api, may_cut=True)["messages"] == wanted
    with StoreSnapshot(root, config) as view:
        assert view.end_offset == torn
    planned = plan_recovery(str(root), config).log
    assert (planned.log_end, planned.loss) == (torn, Loss.OLD_CUT)
    assert planned.records_behind == len(last) - (1 if at_border else 4)
    assert recovered_end(root, config) == torn
    for release in java_oracle.APIS if api == "v4" else ("v5",):
        found = java_oracle.check(root, api=release)
        assert found["ok"], found
        assert found["messages"] == wanted


@pytest.mark.parametrize("api", java_oracle.APIS)
def test_a_store_of_which_everything_was_cut(tmp_path, api):
    store = golden("classic-5x" if api == "v5" else "classic-4x")
    root = store.copy_to(tmp_path)
    shutil.copy(store.directory / "config.json", tmp_path)
    config = MessageStoreConfig.from_properties(store.config_properties)
    with min((root / "commitlog").iterdir()).open("rb+") as file:
        file.seek(4)
        file.write(b"\0")
    (root / "abort").write_text("1" if api == "v5" else "")
    assert recovered_end(root, config) == 0
    found = java_oracle.check(root, api=api)
    assert found["ok"], found
    assert found["messages"] == 0
    java_oracle.put(root, 20, 1, api=api)
    found = java_oracle.check(root, api=api)
    assert (found["ok"], found["messages"]) == (True, 20), found


def record_starts(root, config):
    """Return where the records of a log start."""
    with closing(CommitLog(StoreDirectory(str(root)), config)) as log:
        parts = scan_frames(log, 0, log.segments.max_offset, on_gap=skip_gap)
        return [start for part in parts for start in part.column("commit_log_offset").tolist()]


def last_record(root, config):
    """Return where the last record of a log begins and ends."""
    with closing(CommitLog(StoreDirectory(str(root)), config)) as log:
        *_, frames = scan_frames(log, 0, log.segments.max_offset, on_gap=skip_gap)
        start = int(frames.column("commit_log_offset")[-1])
        return start, start + int(frames.column("total_size")[-1])


def recovered_end(root, config):
    """Recover a store and return where its log ends."""
    done = recover_store(str(root), config, clock=lambda: time.time_ns() // 10**6, cut=True)
    return done.log.log_end
