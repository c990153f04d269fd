# SPDX-License-Identifier: Apache-2.0
"""Something else in place of each file of a store: each command gives a clear error, none hangs."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmqsource.cli.app import app
from rmqsource.errors import SourceError
from store_core.config.message_store_config import MessageStoreConfig
from store_core.errors import StoreError
from store_core.message_store import MessageStore
from tests.reused_process import ReusedProcess
from tests.rmqsource.metadata.support import open_snapshot, rows_of
from tests.rmqsource.reading import read_rows
from tests.store_factory import small_store

SIZES = {"maxHashSlotNum": "8", "maxIndexNum": "64"}
FLAGS = [part for name, value in SIZES.items() for part in ("--option", f"{name}={value}")]
READING = [["info"], ["topics"], ["messages", "--key", "k7"], ["check"], ["recover", "--dry-run"]]
WRITING = [["recover"], ["recover", "--cut"], ["rebuild-index"], ["rebuild-queues"], ["salvage"]]
METADATA = ["queues", "index", "segments", "checkpoint", "consumer_offsets"]
CODES = {0, 1, 2, 3}


def put_fifo(path):
    os.mkfifo(path)


def put_directory(path):
    path.mkdir()


def put_socket(path):
    # The name of a socket may have 107 bytes.
    at, here = os.open(path.parent, os.O_RDONLY), Path.cwd()
    try:
        os.fchdir(at)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)
        os.close(at)


def put_device(path):
    path.symlink_to("/dev/zero")


def put_dangling_link(path):
    path.symlink_to("/nowhere/at/all")


def put_link_loop(path):
    path.symlink_to(path.name)


KINDS = [put_fifo, put_directory, put_socket, put_device, put_dangling_link, put_link_loop]


def run_command(arguments, root):
    """Run a command in this process; return its exit code, output, and the exception it raised."""
    name, *rest = arguments
    target = [root + "-new"] if name == "salvage" else []
    result = CliRunner().invoke(app, [name, root, *target, *rest, *FLAGS])
    raised = result.exception
    is_error = raised is not None and not isinstance(raised, SystemExit)
    return [result.exit_code, result.output[-2000:], repr(raised) if is_error else ""]


def read_tables(root):
    """Read all rows."""
    for table in ("messages", "keys"):
        with suppress(StoreError, SourceError):
            read_rows(root, table=table, **SIZES)
    for table in METADATA:
        with suppress(StoreError, SourceError), open_snapshot(Path(root), SIZES) as snapshot:
            rows_of(snapshot, table)


def put_a_message(root):
    """Open the store for writing and put a message, if possible."""
    config = MessageStoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=2048,
        max_hash_slot_num=8,
        max_index_num=64,
    )
    try:
        with MessageStore(config) as store:
            store.load()
            store.start()
    except StoreError as err:
        return str(err)
    return ""


@pytest.fixture(scope="module")
def process():
    with ReusedProcess() as child:
        yield child


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    root = tmp_path_factory.mktemp("template") / "store"
    small_store(root, 24, segment_bytes=2048, entries=64).write(abort=b"1")
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:1}}}')
    return root


def files_of(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def judge(put, name, writing, template, root, process):
    shutil.copytree(template, root)
    (root / name).unlink()
    put(root / name)
    for arguments in [*READING, *writing]:
        code, output, raised = process.call(run_command, arguments, str(root))
        assert not raised, (put, name, arguments, output, raised)
        assert code in CODES, (put, name, arguments, output)
    process.call(read_tables, str(root))
    process.call(put_a_message, str(root))
    shutil.rmtree(root)


def test_every_command_tells_and_ends(template, tmp_path, process):
    for number, name in enumerate(files_of(template)):
        other, writing = KINDS[number % len(KINDS)], WRITING[number % len(WRITING)]
        for put in {put_fifo, other}:
            judge(put, name, [writing], template, tmp_path / f"s{number}", process)


@pytest.mark.soak
@pytest.mark.parametrize("put", KINDS)
def test_every_command_with_every_kind(put, template, tmp_path, process):
    for number, name in enumerate(files_of(template)):
        for writing in WRITING:
            judge(put, name, [writing], template, tmp_path / f"s{number}", process)


@pytest.mark.parametrize("put", KINDS)
def test_a_segment_that_is_none_is_no_smaller_store(put, template, tmp_path):
    for name in [name for name in files_of(template) if name.startswith("commitlog/")]:
        root = tmp_path / name[-4:]
        shutil.copytree(template, root)
        (root / name).unlink()
        put(root / name)
        with pytest.raises((StoreError, SourceError), match=name):
            read_rows(root, table="messages", **SIZES)


@pytest.mark.parametrize("put", KINDS)
def test_a_configuration_that_is_none(put, template, tmp_path, process):
    put(tmp_path / "broker.conf")
    arguments = ["info", "--config", str(tmp_path / "broker.conf")]
    code, output, raised = process.call(run_command, arguments, str(template))
    assert (code, raised) == (2, ""), output
    assert "broker.conf" in output
