# SPDX-License-Identifier: Apache-2.0
"""A process that takes one command a line on standard input and answers with a line of JSON."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_ANSWER_SECONDS = 120
_SAID = 4000


class ProcessError(Exception):
    """The process failed at a command or is gone; the message has its output."""


class ObedientProcess:
    """Starts immediately; leaving the block kills it in any case.

    Parameters
    ----------
    directory
        For the process's files, with its errors in file ``err``; created here.
    command
        Starts the process.
    error
        Exception to raise if a command fails or the process is gone.
    """

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        *,
        error: type[ProcessError] = ProcessError,
    ) -> None:
        directory.mkdir(parents=True)
        self._error = error
        self._errors = directory / "err"
        self._asking = threading.Lock()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, name=directory.name, daemon=True)
        self._listener.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process with SIGKILL, as in a crash."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP); on return all its threads are stopped."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def exchange(self, command: str, timeout_s: float = _ANSWER_SECONDS) -> dict[str, Any]:
        """Send one line; return the process's answer, which may report a failure."""
        with self._asking:
            self.send_line(command)
            return self.receive_line(command, timeout_s)

    def send_line(self, command: str) -> None:
        """Send one line; its answer must be received before the next is sent."""
        if self._process.stdin is None or self._process.stdin.closed:
            raise self._error(f"{command}: the process was killed")
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except OSError as err:
            raise self._error(self.story(command)) from err

    def receive_line(self, command: str, timeout_s: float = _ANSWER_SECONDS) -> dict[str, Any]:
        """Return the answer to what was sent."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty as err:
            raise self._error(self.story(command)) from err
        if answer is None:
            raise self._error(self.story(command))
        return answer

    def story(self, what: str) -> str:
        """Return a text for people: the request, and the end of the process's output."""
        errors = self._errors.read_text("utf-8", "replace")[-_SAID:]
        return f"{what}\nexit status {self._process.poll()}\n{errors}"

    def _listen(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                if line.startswith("{"):
                    self._answers.put(json.loads(line))
        self._answers.put(None)


# A process that takes JSON objects, ``{"do": COMMAND, …}``, and answers each with a line.


class JsonNode(ObedientProcess):
    """Starts immediately; it also ends when this process does."""

    def ask(self, do: str, *, timeout_s: float = _ANSWER_SECONDS, **arguments: Any) -> Any:
        """Run one command; return its answer.

        Raises
        ------
        ProcessError
            The command failed, or there was no answer in time.
        """
        command = json.dumps({"do": do, **arguments})
        return self._result(command, self.exchange(command, timeout_s))

    def begin(self, do: str, **arguments: Any) -> str:
        """Send one command without waiting for its answer; `finish` returns that."""
        command = json.dumps({"do": do, **arguments})
        self.send_line(command)
        return command

    def finish(self, command: str, timeout_s: float = _ANSWER_SECONDS) -> Any:
        """Return the answer to the command that `begin` returned."""
        return self._result(command, self.receive_line(command, timeout_s))

    def _result(self, command: str, answer: dict[str, Any]) -> Any:
        if "error" in answer:
            raise self._error(self.story(f"{command}: {answer['error']}"))
        return answer["answer"]
