"""What a program's JVM makes of its classes at its start, kept in a file that later JVMs map.

Tests start hundreds of JVMs, and each spends most of its first seconds on reading classes: with
the file a name server, a broker and a client take a quarter less. A JVM that cannot use the file,
as that of another JDK, goes on without.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TIMEOUT_SECONDS = 300


def archive_classes(
    jar: Path, options: Sequence[str], arguments: Sequence[str], *, until: str | None = None
) -> None:
    """Run a program once, and keep the classes that it loads.

    Parameters
    ----------
    jar
        The program; its libraries are jars, too.
    options, arguments
        Of the JVM, and of the program.
    until
        The program is ended as soon as it writes a line that begins so; None: it ends by itself.
    """
    with tempfile.TemporaryDirectory(prefix="class-archive-") as folder:
        listed, made = Path(folder, "classes"), Path(folder, "archive")
        command = ["java", f"-XX:DumpLoadedClassList={listed}", *options, "-jar", str(jar)]
        _run([*command, *arguments], until)
        sources = [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}"]
        _run(["java", "-Xshare:dump", *sources, "-jar", str(jar)], None)
        if made.exists():
            _archive(jar).write_bytes(made.read_bytes())


def archive_options(jar: Path) -> list[str]:
    """Return what a JVM that runs the program is told of its archive, where there is one."""
    archive = _archive(jar)
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def _archive(jar: Path) -> Path:
    return jar.with_suffix(".jsa")


def _run(command: Sequence[str], until: str | None) -> None:
    """Run a program; what becomes of it shows in the file that it makes."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if until is not None and line.startswith(until):
                    break
        finally:
            if until is not None:
                process.kill()
            process.wait(_TIMEOUT_SECONDS)
