"""What a check concludes where there is little to look at: no log, no permission, no records."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.byte_source import ByteSource, read_error
from store_core.files.store_directory import StoreDirectory
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import CheckReport, Verdict, check_store
from tests.golden_store import golden
from tests.store_core.tools.check.support import all_kinds, checked, kinds


class Forbidding(StoreDirectory):
    """A directory of which some files may not be read; tests may run as a user who may."""

    forbidden = ""

    def open(self, path: str) -> ByteSource:
        if self.forbidden and self.forbidden in path:
            raise read_error(PermissionError(13, "Permission denied"), path)
        return super().open(path)


def check_without(root: Path, forbidden: str, properties: dict[str, str]) -> CheckReport:
    directory = Forbidding(str(root))
    with StoreSnapshot(directory, MessageStoreConfig.from_properties(properties)) as view:
        directory.forbidden = forbidden
        return check_store(view)


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "batch-5x", "cluster-5x"])
@pytest.mark.parametrize("lost", [(), ("consumequeue", "batchconsumequeue"), ("index",)])
def test_a_log_that_is_gone_is_damage(tmp_path, name, lost):
    store = golden(name)
    root = store.copy_to(tmp_path)
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").mkdir()  # as the place where a disk is not mounted
    for part in lost:
        shutil.rmtree(root / part, ignore_errors=True)
    report = checked(root, store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert "LOG_MISSING" in kinds(report)


@pytest.mark.parametrize("left", ["consumequeue", "index", "checkpoint", "config"])
def test_one_trace_of_a_message_is_enough(tmp_path, left):
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path)
    for entry in [entry for entry in root.iterdir() if entry.name not in {left, "lock"}]:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (root / "commitlog").mkdir()
    assert "LOG_MISSING" in kinds(checked(root, store.config_properties))


def test_a_store_that_never_got_a_message_is_good():
    report = checked(golden("empty-5x").root, golden("empty-5x").config_properties)
    assert (report.verdict, report.verdict_text) == (Verdict.GOOD, "good")


@pytest.mark.parametrize("missing", ["lock", "checkpoint", "commitlog"])
def test_an_empty_store_that_no_broker_made_is_not_good(tmp_path, missing):
    root = golden("empty-5x").copy_to(tmp_path)
    path = root / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = checked(root, golden("empty-5x").config_properties)
    assert report.verdict is Verdict.NOT_CHECKED
    assert all_kinds(report) == {"LOG_UNKNOWN"}
    assert report.verdict_text == "not checked: log unknown"


@pytest.mark.parametrize("queues", [True, False])
def test_random_bytes_are_no_good_log(tmp_path, queues):
    store = golden("onefile-5x")
    root = store.copy_to(tmp_path)
    path = next((root / "commitlog").iterdir())
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))
    if not queues:
        for name in ("consumequeue", "index"):
            shutil.rmtree(root / name, ignore_errors=True)
    report = checked(root, store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert {"NO_RECORD", "LOG_GAP", "LOG_TAIL"} & set(kinds(report))


@pytest.mark.parametrize(
    ("name", "forbidden"),
    [
        ("classic-5x", "commitlog/00000000000000065536"),
        ("classic-5x", "consumequeue/TopicTest/0/"),
        ("batch-5x", "batchconsumequeue/BatchTopic/0/"),
        ("classic-5x", "/index/"),
        ("cluster-5x", "config/topics.json"),
        ("ext-5x", "consumequeue_ext/ExtA/0"),
    ],
)
def test_a_file_that_may_not_be_read_is_not_damage(name, forbidden):
    store = golden(name)
    report = check_without(store.root, forbidden, store.config_properties)
    assert report.verdict is Verdict.NOT_CHECKED, report.findings
    assert "NO_PERMISSION" in all_kinds(report)
    assert report.verdict_text.startswith("not checked: ")
    assert not report.is_good


def test_damage_elsewhere_is_still_told(tmp_path):
    store = golden("torn-5x")
    report = check_without(store.root, "consumequeue/TopicTest/0/", store.config_properties)
    assert report.verdict is Verdict.DAMAGED
    assert report.verdict_text.endswith("1 parts were not checked")
