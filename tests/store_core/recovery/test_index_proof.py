# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from store_core import MessageStoreConfig
from store_core.codec.message_batch_codec import MessageColumns
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import index_entries
from store_core.index.index_file import IndexFile
from store_core.index.index_writer import IndexWriter, index_file_names
from store_core.layout import INDEX_ENTRY, index_file_bytes
from store_core.log.commit_log import CommitLog, scan_frames
from store_core.log.log_scan import skip_gap
from store_core.recovery.recovery_dispatch import (
    IndexProof,
    PendingIndexEntries,
    index_keys,
    index_proof,
)
from store_core.state.checkpoint import StoreCheckpoint
from tests.golden_store import golden
from tests.store_core.tools.repair.test_rebuild_index import (
    WHOLE,
    clock_of,
    config_of,
    contents,
    sizes_of,
)

NAME = "classic-5x"


class Walked:
    """A proof after a walk over the log of a copy, from an offset on."""

    def __init__(self, store, root, *, since_ms=0, start=0):
        config, directory = config_of(store), StoreDirectory(str(root))
        self.proof = index_proof(directory, config, StoreCheckpoint(index_msg_timestamp=since_ms))
        log = CommitLog(directory, config)
        self.records = []
        for frames in scan_frames(
            log, max(start, log.min_offset), log.segments.max_offset, on_gap=skip_gap
        ):
            self.records += frames.column("commit_log_offset").tolist()
            if self.proof is not None:
                self.proof.add(frames)
        log.close()

    @property
    def proved(self):
        return sorted(self.proof.proved) if self.proof is not None else None


@pytest.fixture
def copy(tmp_path):
    store = golden(NAME)
    return store, store.copy_to(tmp_path)


def filled(store, root):
    return [
        name for name in index_file_names(root / "index") if header(store, root, name).entry_count
    ]


def header(store, root, name):
    directory = StoreDirectory(str(root))
    with directory.open(directory.resolve("index", name)) as source:
        return IndexFile(source, *sizes_of(store)).header


def patch(store, root, name, entry, field, change):
    """Change a field of an entry with a function."""
    path = root / "index" / name
    data = bytearray(path.read_bytes())
    at = index_file_bytes(sizes_of(store)[0], 0) + entry * INDEX_ENTRY.size
    values = INDEX_ENTRY.unpack(data, at)._asdict()
    values[field] = change(values[field])
    data[at : at + INDEX_ENTRY.size] = INDEX_ENTRY.pack(**values)
    path.write_bytes(data)


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "empty-5x"])
def test_files_of_the_log_are_proved(name, tmp_path):
    store = golden(name)
    root = store.copy_to(tmp_path)
    assert Walked(store, root).proved == filled(store, root)


def test_only_files_that_are_not_known_to_be_flushed_are_looked_at(copy):
    store, root = copy
    names = filled(store, root)
    since = header(store, root, names[4]).end_timestamp
    assert Walked(store, root, since_ms=since).proved == names[5:]
    last = header(store, root, names[-1]).end_timestamp
    assert Walked(store, root, since_ms=last).proof is None
    assert Walked(store, root, since_ms=last + 1).proved == names  # no file ends there


def test_the_walk_may_begin_anywhere(copy):
    store, root = copy
    records = Walked(store, root).records
    names = filled(store, root)
    for start in records[1::97]:
        assert Walked(store, root, start=start).proved == names


def test_records_behind_the_last_entry_are_left_to_others(copy):
    store, root = copy
    names = filled(store, root)
    (root / "index" / names[-1]).unlink()
    assert Walked(store, root).proved == names[:-1]


@pytest.mark.parametrize("file", [0, 5, -1])
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("commit_log_offset", lambda offset: offset - 1),
        ("time_diff_seconds", lambda seconds: seconds + 1),
    ],
)
def test_an_entry_that_is_not_the_records(copy, file, field, change):
    store, root = copy
    names = filled(store, root)
    last = header(store, root, names[file]).entry_count
    before = contents(root)
    patch(store, root, names[file], last // 2, field, change)
    assert contents(root) != before
    assert Walked(store, root).proved in ([], names[:file] or None)


def test_a_torn_file_and_those_behind_it_are_not_proved(copy):
    store, root = copy
    names = filled(store, root)
    patch(store, root, names[3], 2, "previous_entry", lambda entry: entry + 1)
    assert Walked(store, root).proved == names[:3]
    patch(store, root, names[0], 2, "previous_entry", lambda entry: entry + 1)
    assert Walked(store, root).proof is None


def test_a_record_that_has_keys_and_no_entries(copy):
    store, root = copy
    names = filled(store, root)
    missing = header(store, root, names[5]).begin_phy_offset
    for name in index_file_names(root / "index"):
        (root / "index" / name).unlink()
    log = CommitLog(StoreDirectory(str(root)), config_of(store))
    with IndexWriter(root / "index", *sizes_of(store), clock_of(names)) as writer:
        for frames in scan_frames(log, 0, log.segments.max_offset, on_gap=skip_gap):
            entries = index_entries(MessageColumns(frames), with_tags=False)
            kept = entries.commit_log_offset != missing
            columns = {name: getattr(entries, name)[kept] for name in entries._fields[:3]}
            writer.append(entries._replace(**columns))
    log.close()
    assert len(filled(store, root)) == len(names)
    assert Walked(store, root).proved == []


def test_what_is_to_see_the_walk(copy):
    store, root = copy
    config, directory = config_of(store), StoreDirectory(str(root))

    def chosen(config=config, since_ms=0, last_exit_ok=False):
        checkpoint = StoreCheckpoint(index_msg_timestamp=since_ms)
        return type(index_keys(directory, config, checkpoint, last_exit_ok=last_exit_ok))

    assert chosen() is IndexProof
    last = header(store, root, filled(store, root)[-1]).end_timestamp
    assert chosen(since_ms=last) is PendingIndexEntries  # nothing to prove; the tail may be missing
    assert chosen(last_exit_ok=True) is type(None)
    assert chosen(MessageStoreConfig(message_index_enable=False)) is type(None)
    for name in index_file_names(root / "index"):
        (root / "index" / name).unlink()
    assert chosen(last_exit_ok=True) is PendingIndexEntries
    assert chosen() is PendingIndexEntries
