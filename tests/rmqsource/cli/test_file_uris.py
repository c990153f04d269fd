# SPDX-License-Identifier: Apache-2.0
"""Commands that write take ``file:`` URIs as paths: nothing is made at ``./file:``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from rmqsource import clean_staging
from store_core import HAService, Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.state.store_lock import StoreLock
from store_core.tools.repair.cut_log import cut_log
from store_core.tools.repair.store_recovery import recover_store
from tests.rmqsource.cli.command_line import Run
from tests.rmqsource.cli.serving import Serving

pytest.importorskip("typer")
_SIZES = {"mapped_file_size_commit_log": 1 << 16}
_MESSAGES = 5


def uri_of(path: str | Path) -> str:
    return f"file://{quote(os.fsencode(path))}"


def config_of(path: str) -> MessageStoreConfig:
    return MessageStoreConfig(store_path_root_dir=path, **_SIZES)


def put(path: str) -> None:
    with MessageStore(config_of(path)) as store:
        for number in range(_MESSAGES):
            store.put_message(Message("t", b"x", keys=["k"], queue_id=number % 2))


def messages_in(path: str) -> int:
    with StoreSnapshot(path) as snapshot:
        return sum(snapshot.get_max_offset_in_queue("t", queue_id) for queue_id in (0, 1))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty directory, which stays empty."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    yield
    assert list(here.iterdir()) == []


@pytest.fixture(params=["st ore", "st\udcffre"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    root = f"{tmp_path}/{request.param}"
    put(root)
    return root


def crash(root: str) -> None:
    Path(root, "abort").touch()


def test_recover_and_rebuild(run: Run, root: str) -> None:
    crash(root)
    for command in (
        ("recover", "--dry-run"),
        ("recover",),
        ("recover", "--cut"),
        ("rebuild-index",),
        ("rebuild-queues",),
        ("clean-staging",),
    ):
        answer = run(command[0], uri_of(root), *command[1:])
        assert answer.code == 0, answer.err
    assert not Path(root, "abort").exists()
    assert messages_in(root) == _MESSAGES


def test_recover_of_a_path_that_is_shown_as_a_uri(run: Run, root: str) -> None:
    crash(root)
    assert run("recover", root).code == 0
    assert not Path(root, "abort").exists()


def test_a_log_outside_of_the_store(tmp_path: Path) -> None:
    log = tmp_path / "the log"
    config = MessageStoreConfig(
        store_path_root_dir=uri_of(tmp_path / "store"), store_path_commit_log=uri_of(log), **_SIZES
    )
    with MessageStore(config) as store:
        store.put_message(Message("t", b"x", queue_id=0))
    assert list(log.iterdir())
    with StoreSnapshot(uri_of(tmp_path / "store"), config) as snapshot:
        assert snapshot.get_max_offset_in_queue("t", 0) == 1


def test_salvage(run: Run, root: str, tmp_path: Path) -> None:
    assert run("salvage", uri_of(root), uri_of(root + " new")).code == 0
    assert messages_in(root + " new") == _MESSAGES


def test_serve(root: str, tmp_path: Path) -> None:
    offsets = tmp_path / "offsets of groups.json"
    for more in ((), ("--read-only", "--offsets", uri_of(offsets))):
        with Serving(Path(uri_of(root)), "--port", 0, *more) as serving:
            code, _, err = serving.stop()
        assert code == 0, err
    new = tmp_path / "a new store"
    with Serving(uri_of(new), "--port", 0) as serving:  # type: ignore[arg-type]
        assert (new / "lock").exists()


def test_follow(run: Run, root: str, tmp_path: Path) -> None:
    copy = tmp_path / "a copy"
    with MessageStore(config_of(root)) as store, HAService(store, port=0) as service:
        until = ("--from-offset", "earliest", "--until", store.max_phy_offset)
        answer = run("follow", service.address, uri_of(copy), *until, *_options())
    assert answer.code == 0, answer.err
    assert messages_in(str(copy)) == _MESSAGES


def _options() -> tuple[str, str]:
    return "--option", f"mappedFileSizeCommitLog={_SIZES['mapped_file_size_commit_log']}"


def test_pages_and_exports_are_checked_at_the_place_that_is_named(
    run: Run, root: str, tmp_path: Path
) -> None:
    taken = tmp_path / "is taken"
    taken.mkdir()
    (taken / "other").touch()
    for command in ("report", "export"):
        answer = run(command, uri_of(root), "-o", uri_of(taken))
        assert answer.code == 2
        assert f"{taken}" in answer.err
    answer = run("import", uri_of(taken), uri_of(tmp_path / "new"))
    assert (answer.code, f"{taken}: there is no file part-" in answer.err) == (2, True)
    answer = run("copy", uri_of(root), uri_of(root))
    assert (answer.code, "the same store" in answer.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_python_takes_them(root: str) -> None:
    put(uri_of(root))
    assert messages_in(root) == 2 * _MESSAGES
    config = MessageStoreConfig(**_SIZES)
    assert recover_store(uri_of(root), config, clock=lambda: 0)
    with StoreLock(uri_of(root)) as lock:
        assert lock.root == root
    assert clean_staging(uri_of(root), 0) == []
    with StoreSnapshot(root) as snapshot:
        second = snapshot.get_message("g", "t", 0, 0, 32).messages[1].commit_log_offset
    assert cut_log(uri_of(root), config, second, clock=lambda: 0).startswith(root)
