# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the Java baseline: RocketMQ's own store code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.side_process import SideProcess, parse_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROJECT = Path(__file__).parent / "java"


class JavaSideError(Exception):
    """The Java baseline cannot be built or failed."""


class JavaSide:
    """The Java baseline, built by Maven at the first use.

    Parameters
    ----------
    work
        Directory for the build and for RocketMQ's log files.
    """

    def __init__(self, work: Path) -> None:
        self._target = work / "java"
        self._logs = work / "java-logs"

    def build(self) -> None:
        """Build the baseline, unless it was built after the source last changed."""
        jar = self._target / "java-baseline.jar"
        sources = [_PROJECT / "pom.xml", *_PROJECT.glob("src/**/*.java")]
        if jar.exists() and jar.stat().st_mtime >= max(s.stat().st_mtime for s in sources):
            return
        if shutil.which("mvn") is None:
            raise JavaSideError("the Java side needs a JDK and Maven; choose others with --only")
        self._run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(_PROJECT / "pom.xml"),
                f"-Dbench.build={self._target.resolve()}",
                "package",
                "dependency:copy-dependencies",
            ]
        )

    def run(self, *command: str | int, options: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run a command of the baseline and return its figures, one for each round.

        Parameters
        ----------
        command
            Name and arguments.
        options
            Options of the JVM, such as system properties.
        """
        output = self._run(self._command(command, options))
        figures = parse_figures(output)
        if not figures:
            raise JavaSideError(f"the Java baseline printed no figure: {output[-2000:]}")
        return figures

    def start(self, *command: str | int, options: Sequence[str] = ()) -> SideProcess:
        """Start a command that runs until its standard input ends."""
        return SideProcess(self._command(command, options))

    def _command(self, command: Sequence[str | int], options: Sequence[str]) -> list[str]:
        self.build()
        self._logs.mkdir(parents=True, exist_ok=True)
        return [
            "java",
            "-Xmx4g",
            f"-Duser.home={self._logs.resolve()}",
            "-Duser.timezone=UTC",
            *options,
            "-cp",
            f"{self._target / 'java-baseline.jar'}:{self._target / 'dependency' / '*'}",
            "bench.JavaBaseline",
            *map(str, command),
        ]

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise JavaSideError(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout


def last_round(figures: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the figure of the last, warm round."""
    return [figure for figure in figures if figure["figure"] == name][-1]
