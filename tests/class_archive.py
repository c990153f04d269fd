# SPDX-License-Identifier: Apache-2.0
"""An archive of a program's JVM classes, written to a file that later JVMs map.

Tests start hundreds of JVMs, and loading classes takes much of their time. With the archive a name
server, a broker and a client need a quarter to a third less time, a Spark session two fifths less.
A JVM that cannot use the archive, such as one of another JDK, starts without it.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_TIMEOUT_SECONDS = 300


def listing_option(listed: Path) -> str:
    """Return the option with which a JVM lists the classes that it loads in a file."""
    return f"-XX:DumpLoadedClassList={listed}"


def archive_options(archive: Path) -> list[str]:
    """Return the option with which a JVM uses an archive if there is one."""
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def archive_classes(archive: Path, listed: Path, program: Sequence[str]) -> None:
    """Archive the listed classes; if that fails, leave no archive.

    Parameters
    ----------
    archive
        The file to make.
    listed
        Class names, as a JVM with `listing_option` lists them.
    program
        ``-jar FILE`` or ``-cp JARS``, as given to the JVM that listed the classes.
    """
    with tempfile.TemporaryDirectory(prefix="class-archive-", dir=archive.parent) as folder:
        made = Path(folder, archive.name)
        sources = [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}"]
        run(["java", "-Xshare:dump", *sources, *program])
        if made.exists():
            made.rename(archive)


def run(
    command: Sequence[str], *, until: str | None = None, env: Mapping[str, str] | None = None
) -> list[str]:
    """Run a program to list or archive its classes; return its output lines.

    Parameters
    ----------
    command, env
        The program and its environment; that of this process if ``env`` is None.
    until
        Kill the program as soon as a line of its output begins with this text; if None, let it
        end by itself. It is killed after five minutes in any case.
    """
    lines = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
        env=env,
    ) as process:
        assert process.stdout is not None
        too_long = threading.Timer(_TIMEOUT_SECONDS, process.kill)
        too_long.start()
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if until is not None and line.startswith(until):
                process.kill()
        process.wait()
        too_long.cancel()
    return lines
