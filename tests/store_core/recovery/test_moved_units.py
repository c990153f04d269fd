# SPDX-License-Identifier: Apache-2.0
"""Units at other queue offsets than in their records are no proof that a log ends."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import LogDamageError
from store_core.layout import CHECKPOINT
from store_core.log.end_rules import NEVER_DISPATCHED
from store_core.recovery.recovery_plan import Loss
from store_core.tools.repair.rebuild_in_place import rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from tests.store_core.damage import read_everything
from tests.store_factory import StoreFactory

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=8,
                            max_index_num=64)  # fmt: skip
NOW_MS = 1_900_000_000_000


def put(root: Path, count: int, queues: int, topic: str = "T") -> list[tuple[int, int]]:
    """Put messages, stop cleanly, return start and size of each record."""
    with MessageStore(replace(CONFIG, store_path_root_dir=str(root))) as store:
        results = [
            store.put_message(Message(topic, b"%d" % n * 9, queue_id=n % queues)).append_result
            for n in range(count)
        ]
        store.wait_for_dispatch()
    return [(result.commit_log_offset, result.store_size) for result in results]


def damage(root: Path, start: int, size: int = 8) -> None:
    segment = CONFIG.mapped_file_size_commit_log
    path = root / "commitlog" / f"{start - start % segment:020d}"
    with path.open("r+b") as file:
        file.seek(start % segment)
        file.write(b"\xa5" * size)


def accept_moved(root: Path) -> int:
    return rebuild_queues_in_place(str(root), CONFIG, accept_moved=True).result.moved


def refuses(root: Path, *, kept: list[int]) -> None:
    """Every reader reports that the log is damaged, and shows or keeps all readable records."""
    rows, gaps, error = read_everything(root)
    assert ([row["commit_log_offset"] for row in rows], error) == (kept, None)
    assert gaps
    before = log_bytes(root)
    assert plan_recovery(str(root), CONFIG).log.loss is Loss.MESSAGES
    with pytest.raises(LogDamageError, match="--cut"):
        recover_store(str(root), CONFIG, clock=lambda: NOW_MS)
    with pytest.raises(LogDamageError, match="--cut"):
        MessageStore(replace(CONFIG, store_path_root_dir=str(root))).load()
    assert log_bytes(root) == before
    assert not (root / "_cut").exists()


def log_bytes(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]


@pytest.mark.parametrize("queues", [1, 3, 8])
@pytest.mark.parametrize("lost", [1, 20])
def test_what_follows_damage_is_kept_after_a_rebuild_that_moved_units(tmp_path, queues, lost):
    records = put(tmp_path, 90, queues)
    start, stop = records[30][0], sum(records[30 + lost - 1])
    damage(tmp_path, start, stop - start)
    assert accept_moved(tmp_path) > 0
    refuses(tmp_path, kept=[at for at, _ in records[:30] + records[30 + lost :]])


def test_damage_before_the_last_record_keeps_it(tmp_path):
    records = put(tmp_path, 20, 4)
    damage(tmp_path, records[-2][0])
    damage(tmp_path, records[-6][0])  # of the queue of the last one
    damage(tmp_path, records[-5][0])
    accept_moved(tmp_path)
    bad = {20 - 2, 20 - 6, 20 - 5}
    refuses(tmp_path, kept=[at for n, (at, _) in enumerate(records) if n not in bad])


def test_messages_put_after_a_rebuild_are_kept_when_damage_comes_again(tmp_path):
    """Their queue offsets repeat those of earlier records."""
    records = put(tmp_path, 40, 2)
    size = CONFIG.mapped_file_size_commit_log
    records += put(tmp_path, size // records[0][1], 2)  # the damage is in the segment before
    damage(tmp_path, records[10][0], 300)
    accept_moved(tmp_path)
    records += put(tmp_path, 40, 2)
    damage(tmp_path, records[-20][0])
    kept = [at for n, (at, _) in enumerate(records) if n != len(records) - 20]
    kept = [at for at in kept if not records[10][0] <= at < records[10][0] + 300]
    refuses(tmp_path, kept=kept)
    accept_moved(tmp_path)
    refuses(tmp_path, kept=kept)


def test_a_last_record_that_fails_its_crc_is_kept_where_its_unit_was_moved(tmp_path):
    records = put(tmp_path, 20, 1)
    damage(tmp_path, records[3][0])
    accept_moved(tmp_path)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(records[-1][0] + 8)  # the CRC of the body
        file.write(b"\1\2\3\4")
    refuses(tmp_path, kept=[at for n, (at, _) in enumerate(records) if n != 3])


@pytest.mark.parametrize("bad", [12, 15, 19])
def test_a_topic_that_was_made_once_more_has_records_of_the_same_queue_offset(tmp_path, bad):
    """A rebuild puts them after those of the deleted topic, or skips them."""
    records = put(tmp_path, 10, 1)
    with MessageStore(replace(CONFIG, store_path_root_dir=str(tmp_path))) as store:
        assert store.delete_topic("T")
    records += put(tmp_path, 14, 1)
    accept_moved(tmp_path)
    damage(tmp_path, records[bad][0])
    refuses(tmp_path, kept=[at for n, (at, _) in enumerate(records) if n != bad])


@pytest.mark.parametrize("queues", [1, 4])
def test_what_lies_between_two_damaged_records_after_a_confirmed_one_is_kept(tmp_path, queues):
    """The checkpoint has the time of the last record, which is missing for a comparison."""
    records = put(tmp_path, 20, queues) + put(tmp_path, 3, queues)
    time.sleep(0.002)  # the clock goes on
    with MessageStore(replace(CONFIG, store_path_root_dir=str(tmp_path))) as store:
        last = store.put_message(Message("T", b"last")).append_result
        store.wait_for_dispatch()
    confirm(tmp_path, records[19][0])
    for start in (records[20][0], last.commit_log_offset):
        damage(tmp_path, start)
    refuses(tmp_path, kept=[at for n, (at, _) in enumerate(records) if n != 20])


def confirm(root: Path, offset: int) -> None:
    """Let the checkpoint say that recovery accepted a record as the last, as before two puts."""
    path = root / "checkpoint"
    data = bytearray(path.read_bytes())
    at = CHECKPOINT.at("confirm_phy_offset")
    data[at : at + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


def batch_topic(root: Path) -> None:
    (root / "config").mkdir(parents=True)
    topic = {"topicName": "T", "attributes": {"queue.type": "BatchCQ"}}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))


def test_batch_queues_tell_that_records_after_a_confirmed_one_were_dispatched(tmp_path):
    """The first message after a start is damaged: the checkpoint confirms the one before it."""
    batch_topic(tmp_path)
    records = put(tmp_path, 5, 2) + put(tmp_path, 5, 2)
    assert (tmp_path / "batchconsumequeue/T").is_dir()
    damage(tmp_path, records[5][0])
    kept = [at for n, (at, _) in enumerate(records) if n != 5]
    refuses(tmp_path, kept=kept)
    accept_moved(tmp_path)
    refuses(tmp_path, kept=kept)


def cut_store(root: Path, *, moved: int, units_left: int, stale_offset: int) -> tuple[Path, int]:
    """Return a store of 8 records, after which RocketMQ cut and left 4 records; and the offset.

    ``moved`` of the 8 records were lost, and the queues rebuilt.
    """
    factory = StoreFactory(root, segment_bytes=1 << 14)
    for number in [*range(2), *range(2 + moved, 8)]:
        factory.add(queue_offset=number)
    end = factory.end_offset
    factory.add_bytes(b"\xff" * 60)
    for number in range(4):
        record = factory.add(dispatched=False, queue_offset=stale_offset + number)
        if number < units_left:
            factory.queues["TopicA", 0].append((record.commit_log_offset, record.total_size, 0))
    factory.write()
    (root / "checkpoint").unlink()
    return root, end


@pytest.mark.parametrize("moved", [0, 1, 3])
@pytest.mark.parametrize("units_left", [0, 1, 3])
def test_a_cut_of_a_store_with_moved_units_stays_a_cut(tmp_path, moved, units_left):
    root, end = cut_store(tmp_path, moved=moved, units_left=units_left, stale_offset=8)
    rows, gaps, _ = read_everything(root)
    assert (len(rows), gaps) == (8 - moved, [])
    planned = plan_recovery(str(root), CONFIG).log
    assert (planned.log_end, planned.loss) == (end, Loss.OLD_CUT)
    assert planned.reason == NEVER_DISPATCHED


@pytest.mark.parametrize("stale_offset", [3, 11, 40])
def test_where_it_cannot_be_told_it_is_damage(tmp_path, stale_offset):
    """Records without a unit that the queue would have skipped, or that it lacks with others."""
    root, end = cut_store(tmp_path, moved=1, units_left=0, stale_offset=stale_offset)
    rows, gaps, _ = read_everything(root)
    assert (len(rows), [gap.commit_log_offset for gap in gaps]) == (11, [end])
    planned = plan_recovery(str(root), CONFIG).log
    assert (planned.log_end, planned.loss) == (end, Loss.MESSAGES)


def test_a_record_whose_queue_id_is_another_is_no_proof_that_the_log_ends_before_it(tmp_path):
    """Its queue seems to lack it; but it has a unit, in the queue to which it was dispatched."""
    places = put(tmp_path, 12, 1) + put(tmp_path, 7, 2)
    begin, (last, _) = places[12][0], places[-1]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.write(b"\xa5" * begin)
        file.seek(last + 12)
        file.write((1).to_bytes(4, "big"))
    (tmp_path / "checkpoint").unlink()
    shutil.rmtree(tmp_path / "index")
    refuses(tmp_path, kept=[start for start, _ in places[12:]])
