# SPDX-License-Identifier: Apache-2.0
"""``rocketmq-store check``, ``recover``, ``rebuild-index`` and ``rebuild-queues``."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.golden_store import GoldenStore, golden, tree_state
from tests.rmqsource.cli.command_line import Answer, Run
from tests.store_factory import StoreFactory, small_store

pytest.importorskip("typer")

from rmqsource.cli.check import FINDING_COLUMNS
from rmqsource.cli.report import ProgressBars
from store_core.layout import HEADER_IPV4
from store_core.state.store_lock import StoreLock


@pytest.fixture(autouse=True)
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None, raising=False)


def sizes(store: GoldenStore) -> list[str]:
    return ["--config", str(store.config_file)]


@pytest.mark.parametrize("command", ["check", "recover", "rebuild-index", "rebuild-queues"])
def test_help_shows_examples_and_exit_codes(run: Run, command: str) -> None:
    answer = run(command, "--help")
    assert answer.code == 0
    assert f"rocketmq-store {command} /data/store" in answer.out
    assert "2 wrong usage" in " ".join(answer.out.split())


def test_a_good_store(run: Run) -> None:
    store = golden("classic-5x")
    before = tree_state(store.root)
    answer = run("check", str(store.root), *sizes(store))
    assert answer.code == 0, answer.err
    assert "verdict           good" in answer.out
    assert "2600" in answer.out
    as_json = run("check", str(store.root), "--format", "json", *sizes(store))
    row = json.loads(as_json.out)
    assert (row["verdict"], row["findings"], row["checked"]["units"]) == ("good", [], 2530)
    assert tree_state(store.root) == before


def test_a_damaged_store(run: Run) -> None:
    store = golden("torn-5x")
    answer = run("check", str(store.root), *sizes(store))
    assert answer.code == 1
    assert "damaged: 2 findings of damage" in answer.out
    assert "; messages lost, by their queues: 1\n" in answer.out
    assert "222710" in answer.out
    as_csv = run("check", str(store.root), "--format", "csv", *sizes(store))
    rows = list(csv.DictReader(io.StringIO(as_csv.out)))
    assert tuple(rows[0]) == FINDING_COLUMNS
    assert [row["kind"] for row in rows[:2]] == ["log gap", "log tail"]
    assert rows[0]["severity"] == "damage"


def test_several_stores_and_none(run: Run, tmp_path: Path) -> None:
    good, torn = golden("onefile-5x"), golden("torn-5x")
    answer = run("check", str(good.root), str(torn.root), "--format", "json")
    assert answer.code == 1
    assert [json.loads(line)["store"] for line in answer.out.splitlines()] == [
        str(good.root),
        str(torn.root),
    ]
    assert run("check", str(tmp_path / "nothing")).code == 2
    assert run("check", str(good.root), "--option", "keys=a").code == 2


def test_rebuilds_bring_back_what_was_lost(run: Run, tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    shutil.rmtree(root / "index")
    shutil.rmtree(root / "consumequeue")
    lost = run("check", str(root), *sizes(store))
    assert lost.code == 1
    assert "needs repair" in lost.out
    index = run("rebuild-index", str(root), *sizes(store))
    assert (index.code, index.err) == (0, "")
    assert said(index) > {("index_files", "15"), ("entries", "5669"), ("records", "2600")}
    queues = run("rebuild-queues", str(root), *sizes(store))
    assert (queues.code, queues.err) == (0, "")
    assert said(queues) > {("queues", "34"), ("units", "2530"), ("records", "2600")}
    good = run("check", str(root), *sizes(store))
    assert good.code == 0, good.out


def said(answer: Answer) -> set[tuple[str, ...]]:
    return {tuple(line.split()) for line in answer.out.splitlines()}


def test_repairs_for_programs(run: Run, tmp_path: Path) -> None:
    store = golden("torn-5x")
    root = store.copy_to(tmp_path)
    rows = {}
    for command in (
        *(["rebuild-queues", "--accept-moved"], ["rebuild-index"]),
        *(["recover", "--dry-run"], ["recover", "--cut"]),
    ):
        answer = run(*command, str(root), "--format", "json", *sizes(store))
        assert answer.code == 1
        assert "damage: " in answer.err
        rows[" ".join(command)] = json.loads(answer.out)
    assert all(row["store"] == str(root) for row in rows.values())
    queues, index, plan, done = rows.values()
    assert (queues["units_moved"], queues["damaged_parts"]) == (9, 2)
    assert (index["records"], index["damaged_parts"]) == (queues["records"], 2)
    assert plan["log_end"] == done["log_end"] == 222710
    assert plan["done"] != done["done"]
    assert len(plan["queues_cut"]) == len(done["queues_cut"])
    table = run("recover", str(root), "--format", "csv", *sizes(store))
    assert next(csv.DictReader(io.StringIO(table.out)))["log_end"] == "222710"


@pytest.mark.parametrize("command", ["check", "recover", "rebuild-index", "rebuild-queues"])
def test_a_path_that_is_not_there_is_told(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    for name, reason in (("none", "does not exist"), ("file", "is a file"), ("", "no RocketMQ")):
        answer = run(command, str(tmp_path / name))
        assert (answer.code, answer.out) == (2, "")
        assert f"{tmp_path / name}: {reason}" in answer.err


def test_rebuilds_of_a_damaged_log(run: Run, tmp_path: Path) -> None:
    store = golden("torn-5x")
    root = store.copy_to(tmp_path)
    refused = run("rebuild-queues", str(root), *sizes(store))
    assert refused.code == 1
    assert "--accept-moved" in refused.err
    moved = run("rebuild-queues", str(root), "--accept-moved", *sizes(store))
    assert moved.code == 1
    assert "bytes hold no record" in moved.err
    assert "9 units are not at the queue offset" in moved.err
    index = run("rebuild-index", str(root), *sizes(store))
    assert index.code == 1
    assert "the result lacks what was there" in index.err


def test_a_rebuild_that_loses_messages_is_refused_without_its_flag(
    run: Run, tmp_path: Path
) -> None:
    store = small_store(tmp_path / "store")
    root = store.write()
    last = store.records[-1].commit_log_offset
    with store.segment_path(last).open("r+b") as file:
        file.seek(last % store.segment_bytes + HEADER_IPV4.at("sys_flag"))
        file.write((4).to_bytes(4, "big"))  # prepared: in no queue
    options = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    planned = run("rebuild-queues", root, "--dry-run", *options)
    assert "the rebuild would be refused without --accept-lost" in planned.err
    refused = run("rebuild-queues", root, *options)
    assert refused.code == 1
    assert "1 messages that are in the log would be in no queue" in refused.err
    assert "--accept-lost" in refused.err
    done = run("rebuild-queues", root, "--accept-lost", *options)
    assert done.code == 1
    assert "losses for consumers, by queue: TopicA/1: 1 lost" in done.err
    assert "not queued" in run("check", root, *options).out


@pytest.mark.parametrize("command", ["recover", "rebuild-index", "rebuild-queues"])
def test_a_store_in_use_is_refused(run: Run, tmp_path: Path, command: str) -> None:
    store = golden("onefile-5x")
    root = store.copy_to(tmp_path)
    with StoreLock(str(root)):
        answer = run(command, str(root), *sizes(store))
    assert answer.code == 2
    assert "has it open" in answer.err or "open" in answer.err
    assert run(command, str(tmp_path / "*"), str(root)).code == 2


def test_recover_a_crashed_store(run: Run, tmp_path: Path) -> None:
    store = golden("crashed-5x")
    root = store.copy_to(tmp_path)
    before = tree_state(root)
    plan = run("recover", str(root), "--dry-run", *sizes(store))
    assert plan.code == 0, plan.err
    assert tree_state(root) == before
    done = run("recover", str(root), *sizes(store))
    assert done.code == 0, done.err
    for answer in (plan, done):
        words = [line.split() for line in answer.out.splitlines()]
        assert ["log_end", "249590"] in words
        assert ["units_added", "80"] in words
    assert not (root / "abort").exists()
    assert run("check", str(root), *sizes(store)).code == 0


def test_recover_tells_of_records_that_it_cuts(run: Run, tmp_path: Path) -> None:
    store = golden("torn-5x")
    root = store.copy_to(tmp_path)
    plan = run("recover", str(root), "--dry-run", *sizes(store))
    assert plan.code == 1
    assert "99 readable records after offset 222710 would be cut off (only with --cut)" in plan.err
    refused = run("recover", str(root), *sizes(store))
    assert refused.code == 1
    assert "followed by 99 readable records" in refused.err
    done = run("recover", str(root), "--cut", *sizes(store))
    assert done.code == 1
    assert "99 readable records after offset 222710 were cut off" in done.err
    assert "_cut" in done.out
    good = run("check", str(root), *sizes(store))
    assert good.code == 0, good.out


def test_recover_cuts_what_was_neither_flushed_nor_dispatched(run: Run, tmp_path: Path) -> None:
    store = StoreFactory(tmp_path / "store")
    for number in range(9):
        store.add(dispatched=number < 4, queue_offset=number)
    store.data[store.records[5].commit_log_offset + 90] ^= 0xFF
    root = store.write(abort=b"1")
    (root / "checkpoint").unlink()
    plan = run("recover", str(root), "--dry-run")
    done = run("recover", str(root))
    assert (plan.code, done.code) == (3, 3)
    assert "3 readable records after offset" in done.err
    assert "neither flushed nor dispatched" in done.err
    assert "_cut" in done.out
    assert run("recover", str(root)).code == 0


def test_a_cut_that_leaves_no_queue_file_tells_their_size(run: Run, tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    path = min((root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF
    path.write_bytes(data)
    (root / "abort").write_text("1")
    done = run("recover", str(root), "--cut")
    assert "mappedFileSizeConsumeQueue=2000" in done.err
    assert "mappedFileSizeConsumeQueue" not in run("recover", str(root)).err


def test_recover_erases_what_an_earlier_cut_left(run: Run, tmp_path: Path) -> None:
    store = golden("torn-5x", recovered=True)
    root = store.copy_to(tmp_path)
    done = run("recover", str(root), *sizes(store))
    assert done.code == 0, done.err
    assert "32 readable records after offset 222710 were cut off: an earlier cut" in done.err
    assert run("check", str(root), *sizes(store)).code == 0


def test_recover_tells_of_queues_that_it_does_not_mend(run: Run, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    root = store.write()
    paths = [root / "consumequeue" / "TopicA" / name / f"{0:020d}" for name in ("0", "1")]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    options = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    done = run("recover", str(root), *options)
    assert done.code == 1
    assert "rebuild-queues" in done.err
    assert "some queues do not match the log" in done.out
    assert run("check", str(root), *options).code == 1
    assert run("rebuild-queues", str(root), *options).code == 0
    assert run("recover", str(root), *options).code == 0


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/TopicA/0", "index"])
def test_recover_tells_of_files_that_it_does_not_mend(run: Run, tmp_path: Path, where: str) -> None:
    root = small_store(tmp_path / "store").write()
    strange = root / where / ("20260101000000000" if where == "index" else "a name")
    if where == "index":
        os.mkfifo(strange)
    else:
        strange.write_bytes(b"")
    options = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    for flags in (["--dry-run"], [], ["--cut"]):
        done = run("recover", str(root), *flags, "--format", "json", *options)
        assert done.code == 1, done.err
        assert json.loads(done.out)["files_not_mended"] == [str(strange)]
        assert f"{strange}: not repaired: " in done.err
    assert run("check", str(root), *options).code == 1
    strange.unlink()
    done = run("recover", str(root), *options)
    assert done.code == 0
    assert "from offset 8192 on" in done.err
    assert "`rocketmq-store check` checks everything" in done.err
    assert run("check", str(root), *options).code == 0


def test_recover_cuts_flushed_records_only_when_told_to(run: Run, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    store.write()
    offset = store.records[-3].commit_log_offset
    path = store.segment_path(offset)
    data = bytearray(path.read_bytes())
    data[offset % store.segment_bytes] ^= 0x40
    path.write_bytes(data)
    sizes = ["--option", "maxHashSlotNum=8", "--option", "maxIndexNum=64"]
    refused = run("recover", str(store.root), *sizes)
    assert refused.code == 1
    assert "--cut" in refused.err
    assert path.read_bytes() == data
    assert run("recover", str(store.root), "--cut", *sizes).code == 1
    good = run("check", str(store.root), *sizes)
    assert good.code == 0, good.out


def test_progress_is_for_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = ProgressBars()
    quiet.step("log", 1, 2)
    quiet.hide()
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    shown = ProgressBars()
    shown.step("log", 1, 2)
    shown.step("log", 2, 2)
    shown.hide()
    assert "log" in stream.getvalue()


def test_delay_levels_that_are_not_known_are_asked_for(run: Run, tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    (root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0").mkdir(parents=True, exist_ok=True)
    guessed = run("recover", str(root), "--dry-run")
    assert "messageDelayLevel" in guessed.err
    assert "messageDelayLevel" not in run("recover", str(root), "--dry-run", *sizes(store)).err


def test_settings_without_effect_are_named_once(run: Run, tmp_path: Path) -> None:
    store = small_store(tmp_path / "store").write()
    config = tmp_path / "broker.conf"
    config.write_text("debugLockEnable=true\nmappedFileSizeCommitLog=4096\n")
    for command in ("recover", "rebuild-queues"):
        answer = run(command, store, "--dry-run", "--config", config)
        config = config.rename(tmp_path / f"{command}.conf")
        assert answer.err.count("no effect here: debugLockEnable") == 1, answer.err
    assert "no effect" not in run("check", store, "--config", config).err
