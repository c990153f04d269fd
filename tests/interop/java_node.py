# SPDX-License-Identifier: Apache-2.0
"""A JVM that runs the program of oracle/cluster and takes commands as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.java_cluster import java_options
from tests.interop.obedient_process import JsonNode, ProcessError


class JavaNodeError(ProcessError):
    """A command failed in the JVM, or the JVM is gone; the message has its output."""


class JavaNode(JsonNode):
    """Starts immediately; the JVM also ends when this process does.

    Parameters
    ----------
    directory
        For the files of the JVM; created here.
    release
        One of `java_cluster.RELEASES`.
    kind
        ``server-node`` or ``client-node``.
    properties
        System properties of the JVM.
    """

    def __init__(
        self, directory: Path, release: str, kind: str, properties: Sequence[str] = ()
    ) -> None:
        options = java_options(directory, release, properties)
        super().__init__(directory, [*options, kind], error=JavaNodeError)
        self.release = release
