# SPDX-License-Identifier: Apache-2.0
"""A store with a path that is not UTF-8: it works, and is shown as a ``file:`` URI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rmqsource
from rmqsource.options.source_options import options_for
from rmqsource.scan.store_versions import open_snapshots
from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from tests.rmqsource.cli.command_line import Run


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = os.fsdecode(os.fsencode(tmp_path) + b"/st\xff\xe9re")
    with MessageStore(MessageStoreConfig(store_path_root_dir=root)) as store:
        for number in range(5):
            store.put_message(Message("t", b"x", keys=["k"], queue_id=number % 2))
    return root


def test_commands_take_it(run: Run, root: str, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/st%FF%E9re"
    for path in (root, uri, f"{tmp_path}/st*"):
        (row,) = run("messages", path, "--limit", "1", "--format", "json").rows
        assert (row["topic"], row["store"]) == ("t", uri)
    for command, code in (("info", 0), ("check", 0), ("segments", 0), ("lag", 0), ("groups", 0)):
        answer = run(command, root, "--format", "json")
        assert (answer.code, bool(answer.out)) == (code, bool(answer.out)), answer.err
    assert run("recover", root, "--dry-run").code == 0
    assert run("rebuild-index", root).code == 0
    assert run("diff", root, uri).code == 0
    assert run("salvage", root, root + "new").code == 0
    assert run("diff", root, root + "new").code == 0


def test_what_spark_would_have_to_name_is_refused(run: Run, root: str) -> None:
    for command in (("export", root, "-o", root + "out"), ("import", root, root + "new")):
        answer = run(*command)
        assert answer.code == 2
        assert "the name is not UTF-8, which Spark requires" in answer.err


def test_python_takes_it(root: str, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/st%FF%E9re"
    with StoreSnapshot(root) as snapshot:
        assert snapshot.directory.uri == uri
        assert snapshot.get_max_offset_in_queue("t", 0) == 3
    assert uri in rmqsource.snapshot(Path(root))
    (snapshot,) = open_snapshots(options_for([f"{tmp_path}/st*"]))
    with snapshot:
        assert snapshot.directory.uri == uri


def test_half_a_character_is_no_path(run: Run) -> None:
    answer = run("info", "/tmp/\ud800")
    assert answer.code == 2
    assert "\\ud800" in answer.err
    assert "Traceback" not in answer.err
