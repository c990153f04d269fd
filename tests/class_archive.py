"""What a JVM makes of a program's classes at its start, kept in a file that later JVMs map.

Tests start hundreds of JVMs, and reading classes is much of what these do: with the file a name
server, a broker and a client need a quarter to a third less, a Spark session two fifths. A JVM that
cannot use the file, as that of another JDK, goes on without.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_TIMEOUT_SECONDS = 300


def listing_option(listed: Path) -> str:
    """Return what lets a JVM write the names of the classes that it loads into a file."""
    return f"-XX:DumpLoadedClassList={listed}"


def archive_options(archive: Path) -> list[str]:
    """Return what lets a JVM use an archive, where there is one."""
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def archive_classes(archive: Path, listed: Path, program: Sequence[str]) -> None:
    """Make an archive of listed classes; where that fails there is none.

    Parameters
    ----------
    archive
        The file to make.
    listed
        Names of classes, by a JVM with `listing_option`.
    program
        ``-jar FILE`` or ``-cp JARS``, as that JVM had it.
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
    """Run a program whose classes are to be listed or archived; return the lines that it wrote.

    Parameters
    ----------
    command, env
        The program; None: with the environment of this process.
    until
        The program is ended as soon as it writes a line that begins so; None: it ends by itself.
        After five minutes it is ended all the same.
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
