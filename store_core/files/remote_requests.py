# SPDX-License-Identifier: Apache-2.0
"""Requests to a remote filesystem: retried while it is busy or away, and run in parallel."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from store_core.errors import FileVanishedError, StorePermissionError, StoreReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")
_U = TypeVar("_U")

AT_ONCE = 16
"""Most requests that one process has under way at the same time."""

_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_LONGEST_SECONDS = 30.0
"""No request is retried after this time: pyarrow's S3 client retries by itself meanwhile."""

# Error texts of S3, GCS, Azure and HDFS, as pyarrow and fsspec pass them on.
_GONE = re.compile(
    r"NO_SUCH_KEY|NO_SUCH_BUCKET|NO_SUCH_UPLOAD|RESOURCE_NOT_FOUND|HTTP status 404|"
    r"Path does not exist|FileNotFoundException|BlobNotFound"
)
_DENIED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE|"
    r"UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION|INVALID_CLIENT_TOKEN|EXPIRED_TOKEN|"
    r"HTTP status 40[13]|AccessControlException|Permission denied"
)
_FINAL = re.compile(r"HTTP status (?:301|400|405|501)|Not a directory|VALIDATION|Not implemented")
_JAVA_STACK = re.compile(r"\s*\n\s+at .*", re.DOTALL)
_FINAL_ERRORS = (
    FileNotFoundError,
    PermissionError,
    NotADirectoryError,
    IsADirectoryError,
    NotImplementedError,
)

_pause = time.sleep
_pool_lock = threading.Lock()
_pools: list[ThreadPoolExecutor] = []
_in_pool = threading.local()


class ShortReadError(OSError):
    """The answer to a request has fewer bytes than the object."""


def request(call: Callable[[], _T], path: str, hide: Callable[[str], str] = str) -> _T:
    """Return the result of a request; it is retried, after growing pauses, where that may help.

    Raises
    ------
    FileVanishedError, StorePermissionError
        There is no such object; it may not be read.
    StoreReadError
        Anything else, or all attempts failed: after about 15 s, or half a minute if each answer
        takes long.
    """
    pause, begun = _FIRST_PAUSE_SECONDS, time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return call()
        except (OSError, RuntimeError) as err:
            is_over = attempt == _ATTEMPTS or time.monotonic() - begun > _LONGEST_SECONDS
            if is_over or _is_final(err):
                raise _read_error(err, path, hide, attempt) from None
        # Random, so that not all rejected clients come back at the same moment.
        _pause(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    raise AssertionError


def _is_final(err: Exception) -> bool:
    text = str(err)
    return isinstance(err, _FINAL_ERRORS) or any(
        words.search(text) for words in (_GONE, _DENIED, _FINAL)
    )


def _read_error(
    err: Exception, path: str, hide: Callable[[str], str], attempts: int
) -> StoreReadError:
    said = getattr(err, "strerror", None) or str(err) or type(err).__name__
    text = hide(_JAVA_STACK.sub("", str(said)))
    if isinstance(err, FileNotFoundError) or _GONE.search(text):
        return FileVanishedError(text, path)
    if isinstance(err, PermissionError) or _DENIED.search(text):
        return StorePermissionError(text, path)
    if attempts > 1:
        text = f"{text} (tried {attempts} times; try again when the filesystem is available)"
    return StoreReadError(text, path)


def start(call: Callable[[], _T]) -> Future[_T]:
    """Begin a call in a thread; at most `AT_ONCE` run, the others wait.

    In one of those threads it runs immediately: calls that wait for each other would never end.
    """
    if getattr(_in_pool, "here", False):
        done: Future[_T] = Future()
        try:
            done.set_result(call())
        except BaseException as err:
            done.set_exception(err)
        return done
    return _pool().submit(call)


def at_once(call: Callable[[_U], _T], items: Iterable[_U]) -> list[_T]:
    """Return the result of a call for each item, in order; the calls run in parallel.

    The first error is raised when all have ended.
    """
    given = list(items)
    if len(given) < 2:  # noqa: PLR2004 (nothing runs beside a single one)
        return [call(item) for item in given]
    begun = [start(lambda item=item: call(item)) for item in given]  # type: ignore[misc]
    errors = [future.exception() for future in begun]
    for error in errors:
        if error is not None:
            raise error
    return [future.result() for future in begun]


def _pool() -> ThreadPoolExecutor:
    with _pool_lock:
        if not _pools:
            _pools.append(ThreadPoolExecutor(AT_ONCE, "remote", initializer=_mark_thread))
        return _pools[0]


def _mark_thread() -> None:
    _in_pool.here = True


os.register_at_fork(after_in_child=_pools.clear)  # a child process has no copy of the threads
