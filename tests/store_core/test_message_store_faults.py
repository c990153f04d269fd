# SPDX-License-Identifier: Apache-2.0
"""Disks that are full, read-only, gone or failing: errors advise a remedy, nothing is lost."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from store_core import MessageStore, StoreNotFoundError, StoreWriteError
from store_core.snapshot.read_only_store import ReadOnlyStore
from store_core.state.running_flags import RunningFlag
from tests.store_core.crash.by_hand import dispatch_all, without_threads
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, make_message

SOME = 90  # messages: more than a segment


@pytest.fixture
def store(tmp_path):
    with without_threads():
        made = MessageStore(config_of(tmp_path / "store"))
        made.load()
        made.start()
        yield made
        made.shutdown()


@pytest.fixture
def failing(monkeypatch):
    """Return a switch: with an error number every call that writes or creates files fails."""
    switch = {"errno": 0, "makes": 0}

    def wrap(name, key, applies=lambda *_: True):
        true = getattr(os, name)

        def call(*args, **kwargs):
            if switch[key] and applies(*args):
                raise OSError(switch[key], os.strerror(switch[key]), str(args[0]))
            return true(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "ftruncate", "posix_fallocate"):
        wrap(name, "errno")
    wrap("open", "makes", lambda path, flags=0, *_: bool(flags & os.O_CREAT))
    for name in ("mkdir", "link"):
        wrap(name, "makes")
    return switch


def put(store, numbers):
    """Put until a put is refused; return the numbers that were put, and the refusal."""
    done = []
    for number in numbers:
        result = store.put_message(make_message(number))
        if not result.is_appended:
            return done, result
        done.append(number)
    return done, None


def judged(store, numbers):
    """Stop, start again, and check the content."""
    store.shutdown()
    config = store.config
    return judge(Path(config.store_path_root_dir), config, numbers, numbers)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk(store, failing, code):
    first, _ = put(store, range(SOME))
    failing["errno"] = code
    end = store.max_phy_offset
    more, refused = put(store, range(SOME, 3 * SOME))
    assert refused.status.name in {"CREATE_MAPPED_FILE_FAILED", "UNKNOWN_ERROR"}
    assert "free space on this disk" in refused.reason
    assert "commitlog/0" in refused.reason
    assert more or store.max_phy_offset == end
    with pytest.raises(StoreWriteError, match="free space"):
        store.services.reput.run_once()
    refused = store.put_message(make_message(0))
    assert refused.status.name == "SERVICE_NOT_AVAILABLE"
    failing["errno"] = 0
    dispatch_all(store)
    put_again, refused = put(store, range(1000, 1000 + SOME))
    assert refused is None
    assert not store.flags.flags & RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    assert judged(store, [*first, *more, *put_again])


def test_full_disk_when_queues_are_written_and_the_index_not(store, failing, monkeypatch):
    """The queues have the units then: they are not added twice, nor are the index entries."""
    put(store, range(SOME))
    dispatch_all(store)
    more, _ = put(store, range(SOME, SOME + 20))
    full = OSError(errno.ENOSPC, "No space left on device")
    from store_core.index.index_writer import IndexFileWriter

    for method in ("append", "publish"):
        with monkeypatch.context() as patch:
            patch.setattr(IndexFileWriter, method, lambda *_: (_ for _ in ()).throw(full))
            with pytest.raises(StoreWriteError, match="free space"):
                store.services.reput.run_once()
            assert store.flags.flags & RunningFlag.WRITE_INDEX_FILE_ERROR
            refused = store.put_message(make_message(0))
            assert refused.status.name == "SERVICE_NOT_AVAILABLE"
    dispatch_all(store)
    assert judged(store, [*range(SOME), *more])


@contextmanager
def small_disk(path, failing):
    """Yield a function that fills a disk or frees it: a real one of 128 KiB, or a simulated one."""
    path.mkdir()
    size = "size=128k"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        yield lambda full: failing.update(errno=errno.ENOSPC if full else 0)
        return
    ballast = path / "ballast"

    def fill(full):
        if not full:
            ballast.unlink()
            return
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    try:
        yield fill
    finally:
        subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)


def test_small_disk(tmp_path, failing):
    with without_threads(), small_disk(tmp_path / "disk", failing) as fill:
        store = MessageStore(config_of(tmp_path / "disk" / "store"))
        store.load()
        store.start()
        first, _ = put(store, range(30))
        fill(True)
        more, refused = put(store, range(30, 500))
        assert len(more) < 400
        assert "No space left on device: free space" in refused.reason
        with pytest.raises(StoreWriteError, match="free space"):
            store.services.reput.run_once()
        fill(False)
        dispatch_all(store)
        again, refused = put(store, range(500, 540))
        assert refused is None
        dispatch_all(store)
        assert judged(store, [*first, *more, *again])


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.EACCES, "let the user"), (errno.EROFS, "mount this disk writable")],
)
def test_nothing_can_be_made(store, failing, code, advice):
    """A directory without permission, or read-only: open files go on, until they are full."""
    first, _ = put(store, range(10))
    failing["makes"] = code
    more, refused = put(store, range(10, 10 + 2 * SOME))
    assert refused.status.name == "CREATE_MAPPED_FILE_FAILED"
    assert advice in refused.reason
    failing["makes"] = 0
    again, refused = put(store, range(1000, 1020))
    assert refused is None
    assert judged(store, [*first, *more, *again])


def test_store_that_cannot_be_made_or_locked(tmp_path, failing):
    failing["makes"] = errno.EACCES
    root = tmp_path / "store"
    with pytest.raises(StoreWriteError, match="Permission denied: let the user"):
        MessageStore(config_of(root)).load()
    assert not root.exists()
    failing["makes"] = 0
    with MessageStore(config_of(root)) as store:
        numbers, _ = put(store, range(20))
    failing["makes"] = errno.EROFS
    with pytest.raises(StoreWriteError, match="mount this disk writable"):
        MessageStore(config_of(root)).load()
    failing["makes"] = 0
    assert not (root / "abort").exists()
    judge(root, config_of(root), numbers, numbers)


def test_log_directory_that_vanishes(store, tmp_path):
    """Later messages are not acknowledged; when the directory is back, the rest is there."""
    numbers, _ = put(store, range(10))
    log = tmp_path / "store" / "commitlog"
    shutil.copytree(log, tmp_path / "kept")
    shutil.rmtree(log)
    assert store.put_message(make_message(10)).status.name == "FLUSH_DISK_TIMEOUT"
    refused = store.put_message(make_message(11))
    assert refused.status.name == "SERVICE_NOT_AVAILABLE"
    assert "it was deleted while it was in use: restore the directory" in refused.reason
    assert f"{log} no longer exists" in refused.reason
    store.shutdown()
    assert (tmp_path / "store" / "abort").exists()
    shutil.copytree(tmp_path / "kept", log)
    assert judged(store, numbers)


@pytest.mark.parametrize("flushed", [True, False])
def test_a_store_that_vanishes_is_not_called_full(tmp_path, caplog, flushed):
    """Every call that puts, flushes, reads or stops names the missing directory."""
    root = tmp_path / "store"
    with without_threads():
        store = MessageStore(config_of(root))
        store.load()
        store.start()
        put(store, range(10))
        dispatch_all(store)
        reader = ReadOnlyStore(config_of(root))
        if not flushed:
            store.put_message(make_message(10))
        shutil.rmtree(root)
        store.services.clean_commit_log.run_once()
        refused = store.put_message(make_message(11))
        assert refused.status.name == "SERVICE_NOT_AVAILABLE"
        log = f"storePathCommitLog {root / 'commitlog'} no longer exists"
        assert refused.reason.startswith(log)
        assert log in caplog.text
        assert not re.search(r"\bfull\b", caplog.text + refused.reason)
        with pytest.raises(StoreNotFoundError, match=f"{root}: does not exist"):
            reader.look()
        reader.close()
        with pytest.raises(StoreWriteError, match=f"{root}.*: restore the directory"):
            store.shutdown()


def test_queue_directory_that_vanishes(store, tmp_path):
    """No file of zeros replaces the units that were there."""
    numbers, _ = put(store, range(10))
    dispatch_all(store)
    shutil.copytree(tmp_path / "store" / "consumequeue", tmp_path / "kept")
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    more, _ = put(store, range(10, 12))
    with pytest.raises(StoreWriteError, match="restore the directory"):
        store.services.reput.run_once()
    assert store.put_message(make_message(12)).status.name == "SERVICE_NOT_AVAILABLE"
    shutil.copytree(tmp_path / "kept", tmp_path / "store" / "consumequeue")
    dispatch_all(store)
    again, _ = put(store, range(12, 20))
    assert judged(store, [*numbers, *more, *again])


def test_log_that_cannot_be_forced(tmp_path, monkeypatch):
    """A second try cannot write a page that failed: only a restart helps."""
    from store_core.files import mapped_file

    config = config_of(tmp_path / "store")
    with MessageStore(config) as store:
        numbers, _ = put(store, range(5))
        with monkeypatch.context() as patch:
            patch.setattr(mapped_file, "sync_data", _fail)
            statuses = [store.put_message(make_message(5)).status.name]
            while statuses[-1] == "FLUSH_DISK_TIMEOUT" and len(statuses) < 10**5:
                refused = store.put_message(make_message(4 + 2 * len(statuses)))
                statuses.append(refused.status.name)
        assert statuses[0] == "FLUSH_DISK_TIMEOUT"
        assert statuses[-1] == "SERVICE_NOT_AVAILABLE"
        assert "this disk has a fault" in refused.reason
        assert "shut the store down and start it again" in refused.reason
    assert (tmp_path / "store" / "abort").exists()
    put_at_all = [*numbers, 5, *range(6, 6 + 2 * len(statuses), 2)]
    judge(tmp_path / "store", config, numbers, put_at_all)


def _fail(_):
    raise OSError(errno.EIO, "Input/output error")


_FEW_FILES = """
import json, os, resource, sys
from pathlib import Path
from store_core import MessageStore
from tests.store_core.crash.messages import config_of, make_message
from tests.store_core.test_message_store_faults import put
store = MessageStore(config_of(Path(sys.argv[1])))
store.load(); store.start()
first, _ = put(store, range(10))
store.wait_for_dispatch()
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 1, most))
more, refused = put(store, range(10, 3000))
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1024) if most > 0 else 1024, most))
deadline = 10**6
while store.put_message(make_message(5000)).status.name != "PUT_OK" and deadline:
    deadline -= 1
again, other = put(store, range(5001, 5100))
assert store.wait_for_dispatch()
store.shutdown()
print(json.dumps([[*first, *more, 5000, *again], refused.status.name, refused.reason]))
"""


def test_too_many_open_files(tmp_path):
    root = tmp_path / "store"
    done = subprocess.run(
        [sys.executable, "-c", _FEW_FILES, str(root)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    numbers, status, reason = json.loads(done.stdout)
    assert status in {"CREATE_MAPPED_FILE_FAILED", "SERVICE_NOT_AVAILABLE"}
    assert "Too many open files: allow more open files (ulimit -n)" in reason
    assert judge(root, config_of(root), numbers, numbers) == sorted(numbers)
