"""A JVM of the program in oracle/cluster that obeys objects of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.java_cluster import java_options
from tests.interop.obedient_process import ObedientProcess, ProcessError

_ANSWER_SECONDS = 120


class JavaNodeError(ProcessError):
    """A command failed in the JVM, or the JVM is gone; the message holds what it said."""


class JavaNode(ObedientProcess):
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
        java, *options = java_options(directory, release)
        given = [f"-D{each}" for each in properties]
        super().__init__(directory, [java, *given, *options, kind], error=JavaNodeError)
        self.release = release

    def ask(self, do: str, *, timeout_s: float = _ANSWER_SECONDS, **arguments: Any) -> Any:
        """Give one command; return its answer.

        Raises
        ------
        JavaNodeError
            It failed, or there was no answer in time.
        """
        command = json.dumps({"do": do, **arguments})
        return self._result(command, self.exchange(command, timeout_s))

    def begin(self, do: str, **arguments: Any) -> str:
        """Give one command without waiting for its answer; `finish` returns that."""
        command = json.dumps({"do": do, **arguments})
        self.send_line(command)
        return command

    def finish(self, command: str, timeout_s: float = _ANSWER_SECONDS) -> Any:
        """Return the answer to the command that `begin` returned."""
        return self._result(command, self.receive_line(command, timeout_s))

    def _result(self, command: str, answer: dict[str, Any]) -> Any:
        if "error" in answer:
            raise JavaNodeError(self.story(f"{command}: {answer['error']}"))
        return answer["answer"]
