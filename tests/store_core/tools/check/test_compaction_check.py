# SPDX-License-Identifier: Apache-2.0
"""Check of compacted logs: a real broker's are good, and each kind of damage has its finding."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.record_encoder import encode_records
from store_core.codec.record_frames import RecordFrames
from store_core.layout import BATCH_CQ_UNIT, HEADER_IPV4
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import compaction_check
from store_core.tools.check.compaction_check import NewestOfKeys
from tests.examples import examples
from tests.golden_compacted import LOST_IN_LOG, TOPIC, unpack_compacted
from tests.golden_kinds import OPTIONS, unpack_kind
from tests.golden_store import tree_state
from tests.store_core.tools.check.support import all_kinds, checked, kinds

_KEYS = st.sampled_from([None, "", " ", "\u2003", "a", "b", "a b", "é", "c "])
_BATCHES = st.lists(st.lists(st.tuples(_KEYS, st.booleans()), max_size=8), max_size=6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_compacted(tmp_path)


def files(root: Path, kind: str, topic: str = TOPIC) -> list[Path]:
    return sorted((root / "compaction" / kind / topic / "0").iterdir())


def units(root: Path):
    return BATCH_CQ_UNIT.table(files(root, "compactionCq")[0].read_bytes())


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_compacted_logs_of_a_real_broker_are_good(root):
    before = tree_state(root)
    report = checked(root, OPTIONS)
    assert report.is_good
    assert (report.counts.compacted_queues, report.counts.compacted_records) == (2, 50)
    (only,) = [[f.count for f in report.findings if f.kind.name == "COMPACTED_ONLY"]]
    assert sum(only) == LOST_IN_LOG
    assert "NOT_READ" not in {f.kind.name for f in report.findings}
    assert tree_state(root) == before


def test_a_log_that_lost_nothing_has_nothing_alone(tmp_path):
    report = checked(unpack_kind("compaction-5x", tmp_path), OPTIONS)
    assert report.is_good
    assert report.counts.compacted_records == 60
    assert all_kinds(report) == set()


def test_a_changed_body(root):
    at = int(units(root)[3]["commit_log_offset"])
    change(files(root, "compactionLog")[0], at + 88, b"?")
    report = checked(root, OPTIONS)
    assert kinds(report) == {"COMPACTED_BODY": 1}
    (finding,) = [f for f in report.findings if f.kind.name == "COMPACTED_BODY"]
    assert (finding.place, finding.position) == (str(files(root, "compactionLog")[0]), at)
    assert finding.examples == ("queue offset 3",)


def test_a_lost_record_and_a_unit_of_garbage(root):
    change(files(root, "compactionLog")[0], int(units(root)[1]["commit_log_offset"]), bytes(8))
    change(files(root, "compactionCq")[0], 46 * 4 + 8, (99).to_bytes(4, "big"))
    found = kinds(checked(root, OPTIONS))
    assert found == {"COMPACTED_UNIT": 2, "COMPACTED_WITHOUT_UNIT": 1}


def test_units_that_were_cut_short(root):
    change(files(root, "compactionCq")[0], 46 * 3, bytes(46 * 2))
    found = kinds(checked(root, OPTIONS))
    assert found == {"COMPACTED_FILES": 1, "COMPACTED_WITHOUT_UNIT": 14}


@pytest.mark.parametrize("kind", ["compactionLog", "compactionCq"])
def test_a_crash_while_files_are_replaced(root, kind):
    path = files(root, kind)[0]
    path.rename(path.with_name(path.name + ".delete"))
    found = kinds(checked(root, OPTIONS))
    alone = "COMPACTED_UNIT" if kind == "compactionLog" else "COMPACTED_WITHOUT_UNIT"
    assert found == {"COMPACTED_FILES": 1, "STRANGE_FILE": 1, alone: 17}


def test_a_lost_directory(root):
    shutil.rmtree(root / "compaction" / "compactionCq")
    report = checked(root, OPTIONS)
    assert kinds(report) == {"COMPACTED_FILES": 4}


def lose(root: Path, topic: str, offset: int) -> None:
    """Lose a message of queue 0 as a broker does that begins a file twice: no unit refers to it."""
    path = files(root, "compactionCq", topic=topic)[0]
    table = BATCH_CQ_UNIT.table(path.read_bytes())
    gone = table["base_queue_offset"] == offset
    assert gone.sum() == 1
    path.write_bytes(table[~gone].tobytes() + bytes(BATCH_CQ_UNIT.size))
    # Another message, without a unit either, takes its place.
    at = int(table["commit_log_offset"][gone][0]) + HEADER_IPV4.at("queue_offset")
    change(files(root, "compactionLog", topic=topic)[0], at, (offset + 1).to_bytes(8, "big"))


def test_the_newest_message_of_a_key_that_a_broker_lost(tmp_path):
    root = unpack_kind("compaction-5x", tmp_path)  # no key comes twice
    lose(root, "orders", 3)
    report = checked(root, OPTIONS)
    assert kinds(report) == {"COMPACTED_LOST": 1, "COMPACTED_WITHOUT_UNIT": 1}
    (finding,) = [f for f in report.findings if f.kind.name == "COMPACTED_LOST"]
    assert (finding.place, finding.position) == ("compaction/orders/0", 3)
    assert finding.examples == ("queue offset 3",)


def test_a_message_whose_key_has_a_newer_one_may_go(root):
    lose(root, TOPIC, 64)
    assert kinds(checked(root, OPTIONS)) == {"COMPACTED_WITHOUT_UNIT": 1}


def test_a_message_whose_keys_are_damaged_is_none_that_was_lost(root):
    """It was replaced by a newer one of its key; for its damaged key there is no newer message."""
    with StoreSnapshot(root) as view:
        (message,) = view.get_message("g", TOPIC, 1, 53, 1).messages
    path = min((root / "commitlog").iterdir())
    begin = message.commit_log_offset - int(path.name)
    at = path.read_bytes().index(b"KEYS\x01item-0\x02", begin) + len(b"KEYS\x01item-")
    change(path, at, b"X")
    report = checked(root, OPTIONS)
    assert "COMPACTED_LOST" not in all_kinds(report)
    assert kinds(report) == {"INDEX_ENTRY": 1, "NOT_FOUND_BY_KEY": 1}
    shutil.rmtree(root / "index")  # nothing else shows it
    assert kinds(checked(root, OPTIONS))["COMPACTED_LOST"] == 1


def test_what_the_commit_log_has_lost_is_not_missed(root):
    lose(root, TOPIC, 4)
    assert kinds(checked(root, OPTIONS)) == {"COMPACTED_WITHOUT_UNIT": 1}


def columns_of(rows, first):
    """Return messages with some keys, with a body or without, from a queue offset on."""
    raw = [b"" if key is None else b"KEYS\x01" + key.encode() + b"\x02" for key, _ in rows]
    values = {
        "topic": pa.array(["T"] * len(rows)),
        "body": pa.array([b"x" if has_body else b"" for _, has_body in rows], pa.binary()),
        "properties_raw": pa.array(raw, pa.binary()),
    }
    encoded = encode_records(pa.record_batch(values), store_host=bytes(8))
    encoded.patch(np.arange(first, first + len(rows)), encoded.starts, 1)
    return MessageColumns(RecordFrames(encoded.block, 0, encoded.starts), raw_body=True)


def by_hand(batches):
    newest = {}
    for offset, (key, has_body) in enumerate(row for rows in batches for row in rows):
        if key is not None and key.strip():
            newest[key] = (offset, has_body)
    return sorted(offset for offset, has_body in newest.values() if has_body)


@pytest.mark.parametrize("at_once", [1, 1 << 20])
@given(batches=_BATCHES, chance=st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None)
def test_equal_to_a_loop_in_any_order_and_twice(at_once, batches, chance):
    firsts = np.cumsum([0, *map(len, batches)]).tolist()
    parts = [columns_of(rows, first) for rows, first in zip(batches, firsts) if rows] * 2
    chance.shuffle(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_check, "_ROWS_AT_ONCE", at_once)
        newest = NewestOfKeys()
        for part in parts:
            newest.add(part)
        assert newest.kept_offsets().tolist() == by_hand(batches)
