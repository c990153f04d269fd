# SPDX-License-Identifier: Apache-2.0
"""A missing end of a log to which the rest of its store still refers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.object_store import ObjectStore
from store_core import LogDamageError, Message, MessageStore, MessageStoreConfig, PutMessageStatus
from store_core.config.message_store_config import MessageStoreConfig as Config
from store_core.layout import CHECKPOINT
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap
from store_core.recovery.lost_end import LostEnd
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import Severity, check_store
from store_core.tools.repair.rebuild_in_place import rebuild_index_in_place, rebuild_queues_in_place
from store_core.tools.repair.store_recovery import plan_recovery, recover_store
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from tests.golden_dledger import DLEDGER_NAMES, unpack_dledger
from tests.golden_dledger import OPTIONS as DLEDGER_OPTIONS
from tests.golden_kinds import KINDS, unpack_kind
from tests.golden_store import GOLDEN_NAMES, RECOVERED_NAMES, STORE_NAMES, golden
from tests.store_core.remote import serve_objects
from tests.store_factory import StoreFactory, small_store

SEGMENT = 8192
SIZES = Config(max_hash_slot_num=8, max_index_num=64)
NOW_MS = 1_800_000_000_000


def written(root: Path, count: int = 200) -> MessageStoreConfig:
    """Write a store in one run and stop it cleanly."""
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    with MessageStore(config) as store:
        for n in range(count):
            store.put_message(Message("T", b"x" * 100, queue_id=n % 2, keys=[f"k{n}"]))
    return config


def segments(root: Path) -> list[Path]:
    """Return the segments that have data."""
    found = sorted((root / "commitlog").iterdir())
    return [path for path in found if path.read_bytes().strip(b"\0")]


def delete_last(root: Path) -> None:
    last = segments(root)[-1]
    for path in (root / "commitlog").iterdir():
        if path.name >= last.name:
            path.unlink()


def zero_last(root: Path) -> None:
    segments(root)[-1].write_bytes(b"\0" * SEGMENT)


def zero_half(root: Path) -> None:
    path = segments(root)[-1]
    data = path.read_bytes()
    size = int.from_bytes(data[:4], "big")  # of each of the records in the middle
    path.write_bytes(data[: 20 * size].ljust(SEGMENT, b"\0"))


def cut_file(root: Path) -> None:
    path = segments(root)[-1]
    path.write_bytes(path.read_bytes()[: SEGMENT // 2])


def spoil_last_half(root: Path) -> None:
    path = segments(root)[-1]
    used = len(path.read_bytes().rstrip(b"\0"))
    data = path.read_bytes()[: used // 2] + b"\x5a" * (used - used // 2)
    path.write_bytes(data.ljust(SEGMENT, b"\0"))


LOSSES: tuple[Callable[[Path], None], ...] = (delete_last, zero_last, zero_half)


def lost_end(root: Path, config: Config = SIZES) -> LostEnd | None:
    with StoreSnapshot(root, config) as view:
        return view.lost_end


def contents(root: Path) -> dict[str, bytes]:
    """Return the files except ``lock``, by name."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.mark.parametrize("lose", LOSSES)
def test_a_clean_store_without_its_end_is_recovered_with_a_flag_only(tmp_path, lose):
    root = tmp_path / "store"
    config = written(root)
    lose(root)
    before = contents(root)
    with StoreSnapshot(root, config) as view:
        report = check_store(view)
        assert view.evident_lost_end == view.lost_end
    (finding,) = report.with_severity(Severity.DAMAGE)
    lost = 200 - report.counts.records
    assert lost > 0
    assert (finding.kind.name, finding.count) == ("LOG_END_LOST", lost)
    assert f"messages lost, by their queues: {lost}" in report.verdict_text
    assert not report.with_severity(
        Severity.REPAIRABLE
    )  # no repair that would erase the proof is advised
    for refuse in (
        lambda: MessageStore(config).load(),
        lambda: recover_store(str(root), config, clock=lambda: NOW_MS),
        lambda: rebuild_queues_in_place(str(root), config),
        lambda: rebuild_queues_in_place(str(root), config, accept_moved=True),
        lambda: rebuild_index_in_place(str(root), config, clock=lambda: NOW_MS),
    ):
        with pytest.raises(LogDamageError, match=f"{lost} messages after it are lost.*--cut"):
            refuse()
        assert contents(root) == before
    assert plan_recovery(str(root), config).log.lost_end.messages == lost
    done = recover_store(str(root), config, clock=lambda: NOW_MS, cut=True)
    assert done.log.lost_end.messages == lost
    with StoreSnapshot(root, config) as view:
        assert check_store(view).findings == ()
    with MessageStore(config) as store:
        assert (
            store.put_message(Message("T", b"next", queue_id=0)).status is PutMessageStatus.PUT_OK
        )
    assert lost_end(root, config) is None


def test_a_clean_store_whose_end_is_garbage_is_recovered_with_a_flag_only(tmp_path):
    config = written(tmp_path)
    spoil_last_half(tmp_path)
    with pytest.raises(LogDamageError, match="messages after it are lost"):
        recover_store(str(tmp_path), config, clock=lambda: NOW_MS)


def test_a_clean_store_whose_last_file_is_cut_has_lost_its_end(tmp_path):
    """The record that is cut in the middle is damage by itself."""
    config = written(tmp_path)
    cut_file(tmp_path)
    found = lost_end(tmp_path, config)
    with StoreSnapshot(tmp_path, config) as view:
        assert found.messages == 200 - check_store(view).counts.records - 1


def test_a_salvage_counts_what_is_lost_at_the_end(tmp_path):
    config = written(tmp_path / "store")
    delete_last(tmp_path / "store")
    found = salvage_store(
        str(tmp_path / "store"), str(tmp_path / "new"), config, SalvageOptions(lambda: NOW_MS)
    )
    assert found.missing_messages == 200 - found.records > 0


@pytest.mark.parametrize("lose", LOSSES)
def test_queues_and_index_beyond_the_log_are_what_a_power_cut_leaves(tmp_path, lose):
    """The checkpoint does not say that anything after the end was forced."""
    config = written(tmp_path)
    lose(tmp_path)
    (tmp_path / "abort").write_bytes(b"1")
    set_checkpoint(tmp_path, physic_msg_timestamp=1, confirm_phy_offset=0)
    assert lost_end(tmp_path, config) is None
    recover_store(str(tmp_path), config, clock=lambda: NOW_MS)
    assert lost_end(tmp_path, config) is None


@pytest.mark.parametrize("field", ["physic_msg_timestamp", "confirm_phy_offset"])
def test_what_was_forced_before_a_crash_and_is_gone_is_lost(tmp_path, field):
    factory = StoreFactory(tmp_path / "store", segment_bytes=1024)
    for number in range(24):
        factory.add(queue_id=number % 2)
    root = factory.write(abort=b"1")
    last = factory.records[-1]
    values = {"physic_msg_timestamp": 1, "confirm_phy_offset": 0}
    values[field] = getattr(
        last, {"confirm_phy_offset": "commit_log_offset"}.get(field, "store_timestamp")
    )
    set_checkpoint(root, **values)
    gone = [path for path in (root / "commitlog").iterdir() if int(path.name) >= 1024]
    for path in gone:
        path.unlink()
    found = lost_end(root)
    left = sum(record.commit_log_offset < 1024 for record in factory.records)
    assert found.messages == 24 - left
    with pytest.raises(LogDamageError, match="are lost"):
        recover_store(str(root), SIZES, clock=lambda: NOW_MS)
    slave = Config(max_hash_slot_num=8, max_index_num=64, broker_role="SLAVE")
    expected = field == "confirm_phy_offset"  # a slave's time is that of the last dispatch
    assert (lost_end(root, slave) is not None) == expected


def test_a_checkpoint_alone_is_wrong_where_the_queues_end_with_the_log(tmp_path):
    root = small_store(tmp_path / "store").write()
    set_checkpoint(root, physic_msg_timestamp=NOW_MS)
    assert lost_end(root) is None
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    assert "the checkpoint says" in str(lost_end(root))


@pytest.mark.parametrize("dispatched", [0, 3, 5])
def test_a_refused_store_is_refused_again(tmp_path, dispatched):
    """A power cut took queues and forced records; some of the records left are in no queue."""
    factory = StoreFactory(tmp_path / "store", segment_bytes=1 << 16)
    for number in range(6):
        factory.add(queue_id=number % 2, dispatched=number < dispatched)
    root = factory.write(abort=b"1")
    last = factory.records[-1].store_timestamp
    set_checkpoint(root, physic_msg_timestamp=last + 1, confirm_phy_offset=0)
    config = replace(SIZES, store_path_root_dir=str(root))
    for _ in range(3):
        with pytest.raises(LogDamageError, match="messages after it are lost"):
            MessageStore(config).load()
        with pytest.raises(LogDamageError, match="messages after it are lost"):
            recover_store(str(root), SIZES, clock=lambda: NOW_MS)
        assert lost_end(root) is not None
    recover_store(str(root), SIZES, clock=lambda: NOW_MS, cut=True)
    with StoreSnapshot(root, SIZES) as view:
        assert [view.get_max_offset_in_queue("TopicA", number) for number in range(2)] == [3, 3]


@pytest.mark.parametrize("newest", [2, 9, 15])
def test_a_clock_that_was_set_back_is_no_loss(tmp_path, newest):
    """The checkpoint's record is before the last ones, which no queue has yet."""
    factory = StoreFactory(tmp_path / "store", segment_bytes=1024)
    for number in range(24):
        time = NOW_MS + (600_000 if number == newest else number)
        factory.add(store_timestamp=time, dispatched=number < 22)
    root = factory.write(abort=b"1")
    set_checkpoint(root, physic_msg_timestamp=NOW_MS + 600_001, confirm_phy_offset=0)
    assert lost_end(root) is not None
    set_checkpoint(root, physic_msg_timestamp=NOW_MS + 600_000)
    assert lost_end(root) is None
    store = MessageStore(replace(SIZES, store_path_root_dir=str(root)))
    assert store.load().records > 0
    store.shutdown()


def without_end_and_checkpoint(root: Path, queues: int, **message: object) -> Config:
    """Write a store that was copied without its checkpoint and its last segment."""
    config = Config(
        store_path_root_dir=str(root), mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=2000, max_hash_slot_num=100, max_index_num=400,
    )  # fmt: skip
    with MessageStore(config) as store:
        for number in range(200):
            store.put_message(Message("T", b"x" * 20, queue_id=number % queues, **message))
    delete_last(root)
    (root / "checkpoint").unlink()
    return config


def test_many_queues_are_asked_where_nothing_else_proves_a_loss(tmp_path):
    config = without_end_and_checkpoint(tmp_path, 100)
    with StoreSnapshot(tmp_path, config) as view:
        assert view.evident_lost_end == view.lost_end
        assert view.lost_end.messages > 0


@pytest.mark.parametrize("message", [{}, {"keys": ["k"]}])
def test_a_remote_store_says_it_too(tmp_path, monkeypatch, message):
    config = without_end_and_checkpoint(tmp_path / "store", 8, **message)
    uri = serve_objects(monkeypatch, ObjectStore(0), str(tmp_path / "store"))
    with StoreSnapshot(uri, config) as view:
        assert view.evident_lost_end.messages == view.lost_end.messages > 0


def test_a_given_end_is_no_loss(tmp_path):
    config = written(tmp_path)
    with StoreSnapshot(tmp_path, config, 1000) as view:
        assert view.lost_end is None


def test_what_a_broker_has_added_since_is_no_loss(tmp_path):
    """A broker opened the store and stopped it again while the store was read."""
    config = written(tmp_path, 50)
    with StoreSnapshot(tmp_path, config) as view:
        with MessageStore(config) as store:
            store.put_message(Message("T", b"more", queue_id=0))
        assert view.lost_end is None


def set_checkpoint(root: Path, **values: int) -> None:
    path = root / "checkpoint"
    data = bytearray(path.read_bytes())
    for name, value in values.items():
        at = CHECKPOINT.at(name)
        data[at : at + 8] = value.to_bytes(8, "big", signed=True)
    path.write_bytes(data)


# Stores of real brokers -----------------------------------------------------------------------


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_no_golden_store_has_lost_its_end(name):
    for recovered in (False, True) if name in RECOVERED_NAMES else (False,):
        store = golden(name, recovered=recovered)
        config = Config.from_properties(store.options)
        assert lost_end(store.root, config) is None


@pytest.mark.parametrize("name", KINDS)
def test_no_store_of_another_kind_has_lost_its_end(tmp_path, name):
    assert lost_end(unpack_kind(name, tmp_path), Config.from_properties(DLEDGER_OPTIONS)) is None


@pytest.mark.parametrize("name", DLEDGER_NAMES)
def test_no_dledger_store_has_lost_its_end_and_one_without_it_has(tmp_path, name):
    root, config = unpack_dledger(name, tmp_path), Config.from_properties(DLEDGER_OPTIONS)
    assert lost_end(root, config) is None
    if (root / "abort").exists():
        return
    zero_from_last_record(root, config)
    assert lost_end(root, config).messages == 1


@pytest.mark.parametrize(
    "name", [n for n in STORE_NAMES if n not in {"empty-5x", *RECOVERED_NAMES}]
)
def test_a_golden_store_without_its_last_record_has_lost_its_end(tmp_path, name):
    store = golden(name)
    root, config = store.copy_to(tmp_path), Config.from_properties(store.options)
    lost = zero_from_last_record(root, config)
    found = lost_end(root, config)
    assert (found.end_offset, found.messages) == (lost, 1)


def zero_from_last_record(root: Path, config: Config) -> int:
    """Erase the last record; return its offset."""
    with StoreSnapshot(root, config) as view:
        log, end, size = view.log, view.end_offset, view.log.segments.file_size
        segment = log.segments.find(end - 1)
        last = segment.from_offset
        for frames in scan_frames(log, last, end, on_gap=skip_gap):
            last = int(frames.column("commit_log_offset")[-1])
    at = last - segment.from_offset - segment.header_bytes
    path = Path(segment.path)
    path.write_bytes(path.read_bytes()[:at].ljust(size, b"\0"))
    return last - segment.header_bytes
