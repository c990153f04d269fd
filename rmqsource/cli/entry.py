# SPDX-License-Identifier: Apache-2.0
"""The command ``rocketmq-store``; needs the extra ``cli`` and reports if it is missing."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rmqsource.exit_codes import INTERRUPTED, NOT_DONE
from rmqsource.extras import missing_package
from rmqsource.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command line; always raises ``SystemExit``."""
    with _interrupted_at_once():
        sys.exit(_run())


def _run() -> int:
    try:
        from rmqsource.cli.app import app  # noqa: PLC0415 (the extra may be missing)
    except ModuleNotFoundError as err:
        if (err.name or "").split(".")[0] not in _EXTRA:
            raise
        return _missing_extra(err.name or "")
    try:
        return app(prog_name="rocketmq-store", standalone_mode=False) or 0
    except Exception as err:
        if not hasattr(err, "format_message"):  # typer may bring its own click
            raise
        return _wrong_use(err)


def _wrong_use(err: Any) -> int:
    """Print a usage error, escaped, since it may contain file names; return the exit code."""
    shown = io.StringIO()
    err.show(file=shown)
    for line in shown.getvalue().rstrip("\n").split("\n"):
        print(printable(line), file=sys.stderr)
    return int(err.exit_code)


def _missing_extra(module: str) -> int:
    print(f"rocketmq-store: {missing_package(module, 'cli')}", file=sys.stderr)
    return NOT_DONE


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process while modules are loaded: there is nothing to clean up yet.

    An exception could come from any line of any module. Running commands handle Ctrl-C themselves.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # Python delivers signals to the main thread only; others may have a handler
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: Any) -> None:
    os.write(2, b"rocketmq-store: interrupted\n")
    os._exit(INTERRUPTED)
