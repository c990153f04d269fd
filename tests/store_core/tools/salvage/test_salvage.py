# SPDX-License-Identifier: Apache-2.0
"""A whole salvage: what stays, what moves, permitted targets, and the remains of an interrupt."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from store_core.codec.message_codec import string_to_properties, verify_property_crc
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreConfigError, StoreNotFoundError, StoreWriteError
from store_core.layout import (
    COMPRESSED_FLAG,
    HEADER_IPV4,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
)
from store_core.recovery.recovery_plan import Loss
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair.store_recovery import plan_recovery
from store_core.tools.salvage import report_path
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from store_core.tools.salvage.salvage_report import SalvageReport
from tests.golden_compacted import TOPIC, unpack_compacted
from tests.golden_kinds import OPTIONS as STORE_OPTIONS
from tests.golden_kinds import unpack_kind
from tests.golden_store import GOLDEN_NAMES, golden, tree_state
from tests.store_core.putting import Log
from tests.store_core.timer.timed_store import (
    START_MS,
    Clock,
    bodies,
    put_timed,
    run,
    timed_config,
    timed_store,
)
from tests.store_core.tools.salvage.damage import (
    NAMES,
    NOW_MS,
    OPTIONS,
    check,
    records_of,
    salvaged_config,
)
from tests.store_factory import StoreFactory, small_store

CONFIG = MessageStoreConfig(max_hash_slot_num=8, max_index_num=64)


def salvaged(root, target, config=CONFIG):
    return salvage_store(str(root), str(target), config, OPTIONS)


@pytest.mark.parametrize(("name", "recovered"), NAMES)
def test_of_a_good_store_the_new_log_has_the_same_bytes(name, recovered, tmp_path):
    store = golden(name, recovered)
    config = MessageStoreConfig.from_properties(store.config_properties)
    report = salvaged(store.root, tmp_path / "new", config)
    assert (report.gaps, report.rejected, report.moved_queues) == ((), (), 0)
    with StoreSnapshot(store.root, config) as view:
        old = {
            Path(s.path).name: s.path for s in view.log.segments if s.from_offset < view.end_offset
        }
        end = view.end_offset
    made = {path.name: path for path in (tmp_path / "new" / "commitlog").iterdir()}
    assert made.keys() == old.keys()
    for segment, path in made.items():
        held = min(end - int(segment), path.stat().st_size)
        data = path.read_bytes()
        assert data[:held] == Path(old[segment]).read_bytes()[:held]
        assert not any(data[held:])
    check(tmp_path / "new", salvaged_config(config))


def test_readable_records_that_an_old_cut_left_are_told(tmp_path):
    told = {}
    for name, recovered in (("torn-5x", True), ("classic-4x", False)):
        store = golden(name, recovered)
        config = MessageStoreConfig.from_properties(store.config_properties)
        notes = salvaged(store.root, tmp_path / name, config).notes
        told[name] = [note for note in notes if "readable records after offset" in note]
    (note,) = told.pop("torn-5x")
    assert note.startswith("32 readable records after offset 222710 are not copied")
    assert "the checkpoint confirms the record before it as the last" in note
    assert told == {"classic-4x": []}


def test_a_log_without_records_whose_queues_expired_gives_a_sound_store(tmp_path):
    factory = StoreFactory(tmp_path / "old", first_offset=4096)
    factory.queues["A", 0] = [(3000 + 100 * number, 100, 0) for number in range(3)]
    report = salvaged(factory.write(), tmp_path / "new")
    assert (report.records, report.kept_queues) == (0, 1)
    planned = plan_recovery(str(tmp_path / "new"), CONFIG)
    assert (planned.log.log_end, planned.log.loss) == (4096, Loss.NOTHING)
    check(tmp_path / "new", salvaged_config(CONFIG))


def test_every_golden_store_gives_a_sound_one(tmp_path):
    for name in GOLDEN_NAMES:
        store = golden(name)
        config = MessageStoreConfig.from_properties(store.config_properties)
        salvaged(store.root, tmp_path / name, config)
        check(tmp_path / name, salvaged_config(config))


def test_what_lies_behind_a_loss_moves_and_the_report_says_where(tmp_path):
    factory = small_store(tmp_path / "old", 60)
    root, lost = factory.write(), factory.records[20]
    factory.erase(lost)
    report = salvaged(root, tmp_path / "new")
    assert [g[:2] for g in report.gaps] == [(lost.commit_log_offset, lost.total_size)]
    assert (report.records, report.missing_messages, report.moved_queues) == (59, 1, 1)
    moved = [key for key, queue in report.queues.items() if queue.has_moved]
    assert moved == [(lost.topic_bytes.decode(), lost.queue_id)]
    told = json.loads(report_path(str(tmp_path / "new")).read_text("utf-8"))
    assert told == json.loads(json.dumps(report.as_dict()))
    by_old = {}
    for place in told["places"]:
        at = range(place["commit_log_offset"], place["commit_log_offset"] + place["bytes"])
        by_old.update({old: old + place["new_commit_log_offset"] - at.start for old in at})
    old = [r.commit_log_offset for r in factory.records if r is not lost]
    new = [r.commit_log_offset for r in records_of(tmp_path / "new", CONFIG)]
    assert [by_old[offset] for offset in old] == new
    assert lost.commit_log_offset not in by_old


@pytest.mark.parametrize(("first_offset", "begins_at"), [(0, 0), (4096 * 7, 3)])
def test_queues_begin_at_0_where_the_log_does(first_offset, begins_at, tmp_path):
    # Otherwise the units before their first one, with offset 0, would count as messages.
    factory = small_store(tmp_path / "old", 0, first_offset=first_offset)
    for number in range(8):
        factory.add(properties={"n": str(number)})
    root = factory.write()
    with factory.segment_path(first_offset).open("r+b") as file:
        file.write(bytes(sum(record.total_size for record in factory.records[:3])))
    report = salvaged(root, tmp_path / "new")
    queue = report.queues["TopicA", 0]
    assert (queue.first_offset, queue.next_offset) == (begins_at, begins_at + 5)
    assert records_of(tmp_path / "new", CONFIG)[0].commit_log_offset == first_offset
    check(tmp_path / "new", CONFIG)


def test_offsets_of_consumers_and_delays_follow(tmp_path):
    factory = small_store(tmp_path / "old", 60)
    for number in range(6):
        factory.add("SCHEDULE_TOPIC_XXXX", queue_id=2, properties={"DELAY": "3", "n": str(number)})
    root, lost = factory.write(), factory.records[20]
    topic, queue_id = lost.topic_bytes.decode(), lost.queue_id
    for record in (lost, factory.records[62]):
        factory.erase(record)
    ends = len(factory.queues[topic, queue_id])
    offsets = {
        f"{topic}@g": {str(queue_id): ends},
        f"{topic}@new": {str(queue_id): 2},
        "Gone@g": {"0": 9},
    }
    config = root / "config"
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (config / "delayOffset.json").write_text('{"offsetTable":{3:4}}')
    (config / "subscriptionGroup.json").write_text("{anything")
    (config / "consumerOffset.json.bak").write_text("{}")
    (config / "deep").mkdir()
    (config / "deep" / "file").write_text("kept")
    report = salvaged(root, tmp_path / "new")
    made = tmp_path / "new" / "config"
    assert json.loads((made / "consumerOffset.json").read_text())["offsetTable"] == {
        f"{topic}@g": {str(queue_id): ends - 1},
        f"{topic}@new": {str(queue_id): 2},
        "Gone@g": {"0": 0},
    }
    assert json.loads((made / "delayOffset.json").read_text())["offsetTable"] == {"3": 3}
    assert (made / "subscriptionGroup.json").read_text() == "{anything"
    assert (made / "deep" / "file").read_text() == "kept"
    assert (made / "topics.json").read_bytes() == (config / "topics.json").read_bytes()
    assert not (made / "consumerOffset.json.bak").exists()
    assert [note.split(":")[0] for note in report.notes] == [
        *("config/consumerOffset.json", "config/delayOffset.json")
    ]


@pytest.mark.parametrize(
    "content",
    [None, b"{", b"[1]", b'{"topicConfigTable":7}', b'{"topicConfigTable":{"A":{"perm":{}}}}'],
)
def test_without_a_list_of_topics_one_is_made(content, tmp_path):
    root = small_store(tmp_path / "old", 20).write(topics=False)
    if content is not None:
        (root / "config").mkdir()
        (root / "config" / "topics.json").write_bytes(content)
    report = salvaged(root, tmp_path / "new")
    table = json.loads((tmp_path / "new" / "config" / "topics.json").read_text())
    found = {name: topic["readQueueNums"] for name, topic in table["topicConfigTable"].items()}
    assert found == {"TopicA": 2, "TopicB": 2}
    assert "recreated" in report.notes[-1]


def test_end_marks_name_the_new_place_of_what_was_prepared(tmp_path):
    factory = small_store(tmp_path / "old", 10)
    prepared = [factory.add(sys_flag=0x4, queue_offset=0) for _ in range(3)]
    for record in (*prepared, factory.records[1]):
        offset = record.commit_log_offset
        factory.add(sys_flag=0x8, prepared_transaction_offset=offset, body=b"end %d" % offset)
    root, lost = factory.write(), [factory.records[3], prepared[1]]
    for record in lost:
        factory.erase(record)
    report = salvaged(root, tmp_path / "new")
    assert report.records == len(factory.records) - 2
    found = []
    for record in records_of(tmp_path / "new", CONFIG):
        if record.body.startswith(b"end "):
            at = int.from_bytes(record.raw[76:84], "big")
            found.append((int(record.body[4:]), at))
    by_old = report.places
    expected = []
    for record in (*prepared, factory.records[1]):
        run = [r for r in by_old if 0 <= record.commit_log_offset - r.old < r.length]
        old = record.commit_log_offset
        expected.append((old, old - run[0].old + run[0].new if run else old))
    assert found == expected
    assert [old == new for old, new in expected] == [False, True, False, True]


def test_the_crc_of_whole_records_is_checked_and_made_anew(tmp_path):
    log = Log(tmp_path / "old", enabled_append_prop_crc=True)
    for number in range(8):
        log.put_ok(body=b"b%d" % number, properties={"n": str(number)})
    log.queue.close()
    old = records_of(tmp_path / "old", CONFIG)
    path = tmp_path / "old" / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[old[2].commit_log_offset + 50] ^= 1  # the born host, which no other checksum covers
    path.write_bytes(data)
    report = salvaged(tmp_path / "old", tmp_path / "new")
    assert [r.commit_log_offset for r in report.rejected] == [old[2].commit_log_offset]
    new = records_of(tmp_path / "new", CONFIG)
    assert [r.kept for r in new] == [r.kept for r in old if r is not old[2]]
    assert all(verify_property_crc(record.raw) for record in new)


@pytest.mark.parametrize("flag", [COMPRESSED_FLAG, INNER_BATCH_FLAG | NEED_UNWRAP_FLAG])
def test_a_body_that_is_not_what_its_flags_say_is_taken_over_and_named(tmp_path, flag):
    store = small_store(tmp_path / "old", 12)
    store.write()
    bad = store.records[4].commit_log_offset
    with store.segment_path(bad).open("r+b") as file:
        file.seek(bad % store.segment_bytes + HEADER_IPV4.at("sys_flag"))
        file.write(flag.to_bytes(4, "big"))
    report = salvaged(store.root, tmp_path / "new")
    assert (report.records, report.rejected) == (12, ())
    assert [record.commit_log_offset for record in report.undecodable] == [bad]
    named = json.loads(report_path(str(tmp_path / "new")).read_text())["undecodable_records"]
    assert [record["commit_log_offset"] for record in named] == [bad]


def test_light_queues_get_offsets_without_holes(tmp_path):
    factory = small_store(tmp_path / "old", 0)
    for number in range(6):
        factory.add(
            properties={
                "INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y",
                "INNER_MULTI_QUEUE_OFFSET": f"{number + 98},{number}",
            }
        )
    root, lost = factory.write(), factory.records[1]
    factory.erase(lost)
    config = replace(CONFIG, enable_multi_dispatch=True)
    report = salvaged(root, tmp_path / "new", config)
    found = [
        string_to_properties(r.raw[r.raw.index(b"INNER") :])["INNER_MULTI_QUEUE_OFFSET"]
        for r in records_of(tmp_path / "new", CONFIG)
    ]
    assert found == ["0,0", "1,1", "2,2", "3,3", "4,4"]
    assert [run[:2] for run in report.queues["%LMQ%x", 0].runs] == [(98, 0), (100, 1)]
    check(tmp_path / "new", config)


def test_light_queues_are_made_only_where_there_were_some(tmp_path):
    properties = {
        "INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y",
        "INNER_MULTI_QUEUE_OFFSET": "5,6",
    }
    factory = small_store(tmp_path / "off", 5)
    factory.add(properties=properties)
    report = salvaged(factory.write(), tmp_path / "without")
    assert {topic for topic, _ in report.queues} == {"TopicA", "TopicB"}
    assert [note for note in report.notes if note.startswith("2 times, records name light queues")]
    check(tmp_path / "without", CONFIG)
    factory = small_store(tmp_path / "on", 5)
    factory.add("%LMQ%z")
    factory.add(properties=properties)
    report = salvaged(factory.write(), tmp_path / "with")
    assert {("%LMQ%x", 0), ("%LMQ%y", 0)} <= report.queues.keys()


def test_a_link_out_of_the_store_is_not_followed(tmp_path):
    root = small_store(tmp_path / "old", 5).write()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text('{"offsetTable":{"secret@g":{"0":1}}}')
    config = root / "config"
    (config / "rules.json").symlink_to(outside / "secret.json")
    (config / "consumerOffset.json").symlink_to(outside / "secret.json")
    (config / "more").symlink_to(outside)
    (config / "groups.json").symlink_to("topics.json")
    report = salvaged(root, tmp_path / "new")
    new = tmp_path / "new" / "config"
    assert sorted(path.name for path in new.iterdir()) == ["groups.json", "topics.json"]
    assert not any("secret" in path.read_text() for path in new.iterdir())
    left_out = [note for note in report.notes if "leads out of the store" in note]
    assert {note.split()[0] for note in left_out} == {
        *("config/rules.json", "config/consumerOffset.json", "config/more")
    }


def test_the_report_does_not_go_through_a_link(tmp_path):
    root = small_store(tmp_path / "old", 5).write()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "new.salvage.json.tmp").symlink_to(tmp_path / "mine")
    salvaged(root, tmp_path / "new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert json.loads((tmp_path / "new.salvage.json").read_text("utf-8"))["records"] == 5
    assert not (tmp_path / "new.salvage.json").is_symlink()


def test_everything_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    root = small_store(tmp_path / "old", 20).write()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:1}}}')
    (root / "config" / "more").mkdir()
    (root / "config" / "more" / "rules.json").write_text("{}")
    forced, missing = set(), []
    for name in ("fsync", "fdatasync"):
        call = getattr(os, name)

        def spy(fd, call=call):
            call(fd)
            forced.add(os.fstat(fd).st_ino)

        monkeypatch.setattr(os, name, spy)
    rename = Path.rename

    def renamed(path, target):
        new = [path, *path.rglob("*"), tmp_path / "new.salvage.json", tmp_path]
        missing.extend(str(p) for p in new if p.stat().st_ino not in forced)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    salvaged(root, tmp_path / "new")
    assert missing == []
    assert (tmp_path / "new" / "config" / "more" / "rules.json").is_file()


def test_several_directories_of_a_log_become_one(tmp_path):
    store = golden("multipath-5x")
    config = MessageStoreConfig.from_properties(store.config_properties)
    report = salvaged(store.root, tmp_path / "new", config)
    assert report.records == len(records_of(store.root, config))
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        *("checkpoint", "commitlog", "config", "consumequeue", "index", "lock")
    ]


def test_the_target_must_be_new_and_elsewhere(tmp_path):
    root = small_store(tmp_path / "old", 5).write()
    before = tree_state(root)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    for target in (full, full / "file", root, root / "new", root / "commitlog" / "x", tmp_path):
        with pytest.raises(StoreConfigError):
            salvaged(root, target)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(StoreConfigError, match="one is inside the other"):
        salvaged(root, tmp_path / "link" / "new")
    with pytest.raises(StoreNotFoundError):
        salvaged(tmp_path / "none", tmp_path / "new")
    assert tree_state(root) == before
    (tmp_path / "empty").mkdir()
    assert salvaged(root, tmp_path / "empty").records == 5
    assert tree_state(root) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left")])
def test_what_ends_early_leaves_nothing(error, tmp_path):
    root = small_store(tmp_path / "old", 60).write()
    left = tmp_path / "new.salvage-part"
    left.mkdir()  # of one that was killed
    (left / "file").touch()

    def progress(what, done, total):
        assert not (left / "file").exists()
        assert (left / "commitlog").is_dir()
        raise error

    options = SalvageOptions(clock=lambda: NOW_MS, progress=progress)
    with pytest.raises((KeyboardInterrupt, StoreWriteError)):
        salvage_store(str(root), str(tmp_path / "new"), CONFIG, options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_failing_dispatch_ends_it(tmp_path, monkeypatch):
    root = small_store(tmp_path / "old", 60).write()

    def fail(*_):
        raise OSError(28, "No space left", "some file")

    monkeypatch.setattr("store_core.index.index_writer.IndexWriter.append", fail)
    with pytest.raises(StoreWriteError, match="free space"):
        salvaged(root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_store_without_records(tmp_path):
    root = small_store(tmp_path / "old", 3).write()
    shutil.rmtree(root / "commitlog")
    report = salvaged(root, tmp_path / "new")
    assert (report.records, report.queues) == (0, {})
    assert records_of(tmp_path / "new", CONFIG) == []
    check(tmp_path / "new", CONFIG)


def test_progress_reaches_its_end(tmp_path):
    root = small_store(tmp_path / "old", 60).write()
    seen = []
    options = SalvageOptions(lambda: NOW_MS, lambda *step: seen.append(step))
    salvage_store(str(root), str(tmp_path / "new"), CONFIG, options)
    assert seen[-1][1] == seen[-1][2] > 0
    assert all(np.diff([done for _, done, _ in seen]) >= 0)


# A broker enqueues timer messages of a salvaged store again, or none would be delivered.


@pytest.fixture
def clock():
    return Clock(START_MS)


def test_waiting_timer_messages_are_delivered_after_salvage(tmp_path, clock):
    old, new = tmp_path / "old", tmp_path / "new"
    with timed_store(old, clock) as (store, service):
        put_timed(store, b"waits", TIMER_DELIVER_MS=str(START_MS + 60_000))
        run(store, service)  # enqueued: the checkpoint is older
    assert (old / "config" / "timercheck").exists()
    salvage_store(str(old), str(new), timed_config(old), SalvageOptions(clock))
    with timed_store(new, clock) as (store, service):
        run(store, service)
        assert bodies(store) == []
        run(store, service, START_MS + 120_000)
        assert bodies(store) == [b"waits"]


@pytest.mark.parametrize("name", ["timerwheel", "timerwheel.5200"])
def test_the_report_says_what_becomes_of_timer_messages(tmp_path, name):
    """Also with a broker that keeps snapshots of its wheel."""
    store = golden("cluster-5x")
    root = store.copy_to(tmp_path / "old")
    (root / "timerwheel").rename(root / name)
    before = tree_state(root)
    config = MessageStoreConfig.from_properties(store.config_properties)
    options = SalvageOptions(Clock(START_MS))
    report = salvage_store(str(root), str(tmp_path / "new"), config, options)
    assert not list((tmp_path / "new" / "config").glob("timer*"))
    assert any("including those already delivered or cancelled" in note for note in report.notes)
    assert tree_state(root) == before


# Reports of a salvage about compacted logs, which it does not take over.


def salvaged_compacted(root: Path, target: Path) -> SalvageReport:
    config = MessageStoreConfig.from_properties(STORE_OPTIONS)
    return salvage_store(str(root), str(target), config, SalvageOptions(clock=lambda: 1))


def test_messages_that_only_the_compacted_log_has_are_counted(tmp_path):
    root = unpack_compacted(tmp_path)
    before = tree_state(root)
    report = salvaged_compacted(root, tmp_path / "new")
    text = f"are not in the new one ({TOPIC}: 10)"
    assert [text in note for note in report.notes].count(True) == 1
    assert tree_state(root) == before
    assert not (tmp_path / "new" / "compaction").exists()


def test_nothing_is_lost_where_the_log_has_all(tmp_path):
    report = salvaged_compacted(unpack_kind("compaction-5x", tmp_path), tmp_path / "new")
    (note,) = report.notes
    assert note.startswith("compacted logs are not copied")


@pytest.mark.parametrize("lost", ["commitlog", "consumequeue"])
def test_a_lost_part_of_the_store_counts(tmp_path, lost):
    root = unpack_compacted(tmp_path)
    shutil.rmtree(root / lost)
    (root / lost).mkdir()
    count = 50 if lost == "commitlog" else 10
    report = salvaged_compacted(root, tmp_path / "new")
    assert [f"({TOPIC}: {count})" in note for note in report.notes].count(True) == 1
