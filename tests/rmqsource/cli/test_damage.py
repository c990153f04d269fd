# SPDX-License-Identifier: Apache-2.0
"""Any damage of a command's stores sets its exit code; other warnings do not."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rmqsource.exit_codes import FOUND, GOOD
from rmqsource.scan import message_reader
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.repair import rebuild_in_place
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run
from tests.store_factory import StoreFactory

pytest.importorskip("typer")

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file)
PASSING = ("--option", "mode=DROPMALFORMED")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORE.root, tmp_path / "store"))


@pytest.fixture
def made(tmp_path: Path) -> StoreFactory:
    """Return ten messages of each of two topics, not written yet."""
    factory = StoreFactory(tmp_path / "made", segment_bytes=1024, units_per_file=4)
    for number in range(10):
        factory.add("A", properties={"KEYS": f"k{number}"})
        factory.add("B")
    return factory


@pytest.mark.parametrize("logger", ["rmqnet.broker.broker", "rmqsource.damage", "store_core.ha"])
@pytest.mark.parametrize("command", ["messages", "queues", "check", "trace", "rebuild-index"])
def test_what_others_in_the_process_warn_of_is_shown_and_no_damage(
    run: Run, copied: Path, monkeypatch: pytest.MonkeyPatch, command: str, logger: str
) -> None:
    opened = StoreSnapshot.__init__

    def opens(snapshot: StoreSnapshot, *given: Any) -> None:
        said = ("slave %s is gone", "10.0.0.7:4000")
        other = Thread(target=logging.getLogger(logger).warning, args=said)
        other.start()
        other.join()
        opened(snapshot, *given)

    monkeypatch.setattr(StoreSnapshot, "__init__", opens)
    more = ("--key", "R0") if command == "trace" else ()
    answer = run(command, copied, *SIZES, *more)
    assert answer.code == GOOD, answer.err
    assert "slave 10.0.0.7:4000 is gone" in answer.err.splitlines()
    assert "damage: " not in answer.err


def damages(run: Run, *words: object) -> list[str]:
    """Return a command's report of damage, for which its exit code must be 1."""
    answer = run(*words)
    assert answer.code == FOUND, answer.err
    told = [line for line in answer.err.splitlines() if line.startswith("damage: ")]
    texts = [line[len("damage: ") :] for line in told]
    assert not [line for line in answer.err.splitlines() if line in texts]
    return texts


@pytest.mark.parametrize(
    "command",
    [
        ("messages", "--limit", "0"),
        ("messages", "--last", "10000"),
        ("diff", STORE.root),
        ("trace", "--key", "R0", "--option", "access=commitlog"),
        ("transactions",),
    ],
)
def test_damaged_places(run: Run, copied: Path, command: tuple[object, ...]) -> None:
    with min((copied / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(100_000)
        segment.write(b"\xee" * 400)
    (name, *more) = command
    extra = (*PASSING, "--option", "access=commitlog")
    if "access=commitlog" in command or name == "transactions":
        extra = PASSING
    told = damages(run, name, copied, *more, *SIZES, *extra)
    assert [f"store {copied}: dropped 1 damaged places, " in text for text in told] == [True]


def test_the_end_of_the_log(run: Run, made: StoreFactory) -> None:
    root = made.write()
    for path in (root / "commitlog").iterdir():
        if int(path.name) > 0:
            path.unlink()
    (told,) = damages(run, "plan", root, *PASSING)
    assert told.startswith(f"store {root}: ")
    assert "messages after it are lost" in told


def test_queues_that_lost_units(run: Run, made: StoreFactory) -> None:
    root = made.write()
    min((root / "consumequeue" / "A" / "0").iterdir()).unlink()
    asked = ("--topic", "A", "--option", "access=consumequeue")
    (told,) = damages(run, "messages", root, *asked, *PASSING)
    assert (
        told == f"store {root}: consume queue A/0 begins at 4: some of its messages may be missing"
    )


def test_a_segment_that_goes_meanwhile(
    run: Run, made: StoreFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made.write()
    segment, read = root / "commitlog" / ("0" * 20), message_reader.read_split

    def read_late(*given: Any) -> Any:
        segment.unlink(missing_ok=True)
        return read(*given)

    monkeypatch.setattr(message_reader, "read_split", read_late)
    (told,) = damages(run, "messages", root, "--option", "failOnDataLoss=false")
    assert told == f"segment {segment} was deleted between planning and reading; skipped"


@pytest.mark.parametrize("command", ["topics", "groups"])
def test_queues_of_tables(run: Run, copied: Path, command: str) -> None:
    queue = copied / "consumequeue" / "orders" / "0" / ("0" * 20)
    queue.write_bytes(queue.read_bytes()[:-7])
    (told,) = damages(run, command, copied, *SIZES, *PASSING)
    assert told.startswith(f"consume queue orders/0 is skipped: {queue} at byte 793: ")


def test_an_index_file(run: Run, tmp_path: Path) -> None:
    store = golden("classic-5x")
    root = store.copy_to(tmp_path)
    victim = max((root / "index").iterdir())
    victim.write_bytes(b"\xff" * victim.stat().st_size)
    (told,) = damages(run, "segments", root, *PASSING)
    assert told.startswith(f"the content of an index file is skipped: {victim}: ")


def test_consumer_offsets_of_a_trace(run: Run, copied: Path) -> None:
    offsets = copied / "config" / "consumerOffset.json"
    offsets.write_text("{torn")
    offsets.with_name(offsets.name + ".bak").unlink(missing_ok=True)
    (told,) = damages(run, "trace", copied, "--key", "R0", *SIZES)
    assert told.startswith(f"consumer groups of {copied} are not shown: {offsets}: ")


@pytest.mark.parametrize("planned", [True, False])
def test_queues_that_can_have_no_directory(run: Run, tmp_path: Path, planned: bool) -> None:
    factory = StoreFactory(tmp_path / "store")
    factory.add("A")
    factory.add("a/b", dispatched=False)
    more = ("--dry-run",) if planned else ()
    (told,) = damages(run, "rebuild-queues", factory.write(), *more)
    assert told == "cannot create a directory for queue 0 of topic 'a/b'"


def test_what_a_rebuild_leaves_behind(
    run: Run, made: StoreFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made.write()
    remove: Callable[[str], None] = rebuild_in_place.remove_tree

    def fails(path: str) -> None:
        if Path(path).exists():
            raise PermissionError(13, "Permission denied", path)
        remove(path)

    monkeypatch.setattr(rebuild_in_place, "remove_tree", fails)
    (told,) = damages(run, "rebuild-index", root)
    assert told == f"{root / '_rebuild'} cannot be deleted: Permission denied; delete it yourself"
