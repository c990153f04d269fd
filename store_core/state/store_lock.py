# SPDX-License-Identifier: Apache-2.0
"""The broker's own ``lock`` file, and the ``abort`` file that marks a running store.

Source: RocketMQ ``DefaultMessageStore.start``, ``load``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from store_core.errors import StoreLockedError, StoreWriteError
from store_core.files.byte_source import (
    open_to_read,
    open_to_write,
    read_error,
    refuse_link,
    refuse_other_names,
)
from store_core.files.file_writing import (
    flush_directory,
    make_directory,
    sync_data,
    write_all,
    write_error,
)
from store_core.files.store_directory import local_path
from store_core.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIR,
    INDEX_DIR,
    LOCK_FILE,
    QUEUE_DIRS,
)
from store_core.state.store_state import is_locked_here, locked_here, unlocked_here

_WRITTEN = (LOCK_FILE, ABORT_FILE, CHECKPOINT_FILE)
_WRITTEN_BELOW = (COMMIT_LOG_DIR, INDEX_DIR)


try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]  # stores are written on Unix only


LOCK_TEXT = b"lock"


_changes = threading.Lock()


class StoreLock:
    """The right to write to a store: a lock on byte 0 of ``lock``, as Java's ``FileChannel`` takes.

    Acquire it before anything is loaded. RocketMQ acquires it in ``start``, after loading, recovery
    and truncation, so two of its processes that start together can cut each other's log.

    The lock belongs to the process, and the system drops it when any descriptor of the file is
    closed, so a process remembers which files it has locked and does not open them again
    (`store_state`). A forked child does not have the lock.
    """

    def __init__(self, root: str) -> None:
        directory = Path(local_path(root)).absolute()
        self.root = str(directory)
        self.path = str(directory / LOCK_FILE)
        self.abort_path = str(directory / ABORT_FILE)
        self._fd = -1
        self._pid = 0
        self._key: tuple[int, int] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object has the lock; False in a forked child."""
        return self._fd >= 0 and self._pid == os.getpid()

    def acquire(self) -> None:
        """Acquire the lock, write the file's four bytes, and force them to the disk.

        Raises
        ------
        StoreLockedError
            Another process, or another store object in this one, has the lock.
        StoreWriteError
            The file cannot be created or written, or a directory is a link out of the store.
        """
        if self.is_held:
            return
        with _changes:
            try:
                make_directory(self.root)
                self._check_own()
                refuse_links_out(self.root)
                fd = open_to_write(self.path, os.O_CREAT)
            except OSError as err:
                raise write_error(err, self.path) from err
            try:
                self._lock(fd)
                found = os.fstat(fd)
            except OSError as err:
                os.close(fd)
                raise write_error(err, self.path) from err
            except BaseException:
                os.close(fd)
                raise
            self._key = (found.st_dev, found.st_ino)
            locked_here(self._key)
            self._fd, self._pid = fd, os.getpid()

    def release(self) -> None:
        """Release the lock; the file stays, as after a broker stops."""
        with _changes:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            if self._key is not None:
                unlocked_here(self._key)
                self._key = None

    def is_aborted(self) -> bool:
        """Return whether ``abort`` exists, so the store was not stopped cleanly.

        Raises
        ------
        StoreReadError
            The file cannot be checked; ``Path.exists`` of newer Pythons would return False.
        """
        try:
            Path(self.abort_path).stat()
        except FileNotFoundError:
            return False
        except OSError as err:
            raise read_error(err, self.abort_path) from err
        return True

    def create_abort(self) -> None:
        """Create ``abort`` with this process's id as its text, as 5.x does.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        StoreLockedError
            The process that forked this one has the lock.
        """
        self._check_fork()
        try:
            fd = open_to_write(self.abort_path, os.O_CREAT | os.O_TRUNC)
            try:
                write_all(fd, 0, memoryview(str(os.getpid()).encode()))
                sync_data(fd)
            finally:
                os.close(fd)
            flush_directory(self.root)
        except OSError as err:
            raise write_error(err, self.abort_path) from err

    def remove_abort(self) -> None:
        """Delete ``abort``, on the disk too; call it after everything else is flushed.

        Raises
        ------
        StoreWriteError
            The file cannot be deleted.
        StoreLockedError
            The process that forked this one has the lock.
        """
        self._check_fork()
        try:
            with suppress(FileNotFoundError):
                Path(self.abort_path).unlink()
            flush_directory(self.root)
        except OSError as err:
            raise write_error(err, self.abort_path) from err

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _check_fork(self) -> None:
        if self._fd >= 0 and not self.is_held:
            raise StoreLockedError(
                f"process {self._pid}, which forked this one, has the store open",
                self.root,
            )

    def _check_own(self) -> None:
        """Raise if this process has the lock: opening and closing the file again would drop it."""
        if is_locked_here(self.path):
            raise StoreLockedError(self.holder(), self.root)

    def _lock(self, fd: int) -> None:
        if fcntl is None:  # pragma: no cover (Windows)
            raise StoreLockedError("a store can be written only on Unix", self.root)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as err:  # POSIX allows EAGAIN and EACCES
            raise StoreLockedError(self.holder(), self.root) from err
        except OSError as err:
            raise write_error(err, self.path) from err
        try:
            write_all(fd, 0, memoryview(LOCK_TEXT))
            sync_data(fd)
        except OSError as err:
            raise write_error(err, self.path) from err

    def holder(self) -> str:
        """Return a text that names the process with the store open: this one, or ``abort``'s."""
        if is_locked_here(self.path):
            return "another store object of this process has it open; shut that one down first"
        text = "another process has this store open"
        pid = _read_pid(self.abort_path)
        if pid is not None and _is_running(pid):
            text = f"process {pid} has this store open"
        elif pid is not None:
            text += f" (abort names process {pid}, which is not running on this machine)"
        return f"{text}; stop that broker first, or give another directory"


def _unlock_changes() -> None:
    """Give a forked child a fresh mutex: the thread that may have locked it is not in the child."""
    global _changes  # noqa: PLW0603 (it guards what is one in a process)
    _changes = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_changes)


def _read_pid(path: str) -> int | None:
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            text = file.read(20)
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _is_running(pid: int) -> bool:
    if not 0 < pid < 1 << 31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, as another user
        return True
    return True


def refuse_links_out(root: str) -> None:
    """Raise if a directory of a store links out of it, or a file is a link or has hard links.

    A copy made with ``cp -a`` has the links of the original: writes through them go into the
    original without its lock. All files of a copy made with ``cp -al`` are those of the original.
    Before anything is changed, this checks the files that are written first: the few with known
    names, and the last file of each queue. Other links are refused when they are opened.

    Raises
    ------
    StoreWriteError
        There is such a link, or a directory cannot be read.
    """
    real = os.path.realpath(root)
    _refuse_files(root)
    _look_at(root, real)
    for name in QUEUE_DIRS:
        for topic in _look_at(str(Path(root, name)), real):
            for queue in _look_at(topic, real):
                _refuse_last_file(queue)


def _refuse_last_file(queue: str) -> None:
    """Raise if a queue's last file is a link: recovery cuts that file and new units go there."""
    try:
        with os.scandir(queue) as entries:
            last = max(entries, key=lambda entry: entry.name, default=None)
        if last is not None and last.is_symlink():
            refuse_link(last.path)
    except FileNotFoundError:  # opening the queue reports it
        return
    except OSError as err:
        raise StoreWriteError(err.strerror or str(err), os.fsdecode(err.filename or queue)) from err


def _refuse_files(root: str) -> None:
    files = [Path(root, name) for name in _WRITTEN]
    try:
        # These two are written or removed at shutdown: an error only then would leave the store
        # as after a crash.
        refuse_link(str(Path(root, CHECKPOINT_FILE)))
        _refuse_directory(Path(root, ABORT_FILE))
        for name in _WRITTEN_BELOW:
            with suppress(FileNotFoundError, NotADirectoryError):
                files += Path(root, name).iterdir()
        for file in files:
            with suppress(FileNotFoundError, NotADirectoryError):
                refuse_other_names(str(file), file.lstat())
    except OSError as err:
        raise StoreWriteError(err.strerror or str(err), os.fsdecode(err.filename or root)) from err


def _refuse_directory(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        text = (
            "is a directory, but brokers have a file of this name, which a clean stop removes: "
            "move it away"
        )
        raise OSError(errno.EISDIR, text, str(path))


def _look_at(path: str, real_root: str) -> list[str]:
    """Return the directories in a directory; raise if one is a link out of the store."""
    directories = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    _check(entry.path, real_root)
                if entry.is_dir():
                    directories.append(entry.path)
    except (FileNotFoundError, NotADirectoryError):  # opening it reports the error
        return []
    except OSError as err:
        raise StoreWriteError(err.strerror or str(err), path) from err
    return directories


def _check(path: str, real_root: str) -> None:
    target = os.path.realpath(path)
    if not Path(target).is_dir() or os.path.commonpath([real_root, target]) == real_root:
        return
    advice = "mount that directory here, or move it here"
    if Path(path).name == COMMIT_LOG_DIR:
        advice = f"remove the link and give storePathCommitLog={target} in the configuration"
    raise StoreWriteError(
        f"is a link that leads out of the store, to {target}; the store does not write through "
        f"it: {advice}",
        path,
    )
