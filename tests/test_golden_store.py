# SPDX-License-Identifier: Apache-2.0
"""The golden stores are unpacked exactly as they were packed."""

from __future__ import annotations

import hashlib
import tarfile

import pytest

from tests.golden_store import (
    CLUSTER_NAMES,
    GOLDEN_NAMES,
    RECOVERED_NAMES,
    STORE_NAMES,
    golden,
    tree_state,
)


def test_all_golden_stores_are_there():
    assert len(STORE_NAMES) == 13
    assert CLUSTER_NAMES == ("cluster-4x", "cluster-5x", "cluster-5x-ext")
    assert RECOVERED_NAMES == ("crashed-551", "crashed-5x", "torn-5x")


@pytest.mark.parametrize("name", STORE_NAMES)
def test_unpacked_files_are_those_that_rocketmq_listed(name):
    store = golden(name)
    files = {
        path: {"size": size, "sha256": digest}
        for path, (size, _, digest) in tree_state(store.root).items()
        if digest
    }
    assert files == store.meta["files"]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_modification_times_and_contents_are_kept(name):
    store = golden(name)
    state = tree_state(store.root)
    with tarfile.open(store.directory / "store.tar.gz") as tar:
        for member in tar:
            path = member.name[len("store/") :].rstrip("/")  # Python 3.9 keeps a folder's slash
            size, mtime_ns, digest = state.pop(path or ".")
            assert mtime_ns == member.mtime * 10**9
            if member.isfile():
                content = tar.extractfile(member).read()
                assert (size, digest) == (member.size, hashlib.sha256(content).hexdigest())
    assert not state


@pytest.mark.parametrize("name", STORE_NAMES)
def test_dumps_have_the_lines_that_meta_counts(name):
    store = golden(name)
    counts = {f"{dump}.jsonl": sum(1 for _ in store.dump(dump)) for dump in store.dump_names}
    assert counts == store.meta["line_counts"]


def test_options_name_what_the_files_do_not_show():
    assert golden("classic-5x").options == {"maxHashSlotNum": "100", "maxIndexNum": "400"}
    assert golden("cluster-5x").options == {"maxHashSlotNum": "125", "maxIndexNum": "500"}
    directories = "disk-b/commitlog,disk-a/commitlog,disk-c/commitlog"
    assert golden("multipath-5x").options["storePathCommitLog"] == directories


def test_config_file_holds_every_property():
    store = golden("ext-5x")
    lines = store.config_file.read_text("utf-8").splitlines()
    assert dict(line.split("=", 1) for line in lines) == store.config_properties
    assert store.config_properties["enableConsumeQueueExt"] == "true"


@pytest.mark.parametrize("name", RECOVERED_NAMES)
def test_recovered_store_was_stopped_cleanly(name):
    assert (golden(name).root / "abort").exists()
    assert not (golden(name, recovered=True).root / "abort").exists()


def test_tree_state_sees_every_change(tmp_path):
    root = golden("onefile-5x").copy_to(tmp_path)
    before = tree_state(root)
    assert before == tree_state(golden("onefile-5x").root)
    segment = root / "commitlog" / "00000000000000000000"
    segment.touch()
    assert tree_state(root) != before
