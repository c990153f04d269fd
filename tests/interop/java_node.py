"""A JVM of the program in oracle/cluster that obeys objects of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.java_cluster import java_options
from tests.interop.obedient_process import JsonNode, ProcessError


class JavaNodeError(ProcessError):
    """A command failed in the JVM, or the JVM is gone; the message holds what it said."""


class JavaNode(JsonNode):
    """Starts at once; the JVM also ends when this process does.

    Parameters
    ----------
    directory
        Takes what the JVM writes; made here.
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
