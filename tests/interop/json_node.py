"""A process that obeys objects of JSON, ``{"do": COMMAND, …}``, and answers each with a line."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.obedient_process import ObedientProcess

_ANSWER_SECONDS = 120


class JsonNode(ObedientProcess):
    """Starts at once; it also ends when this process does."""

    def ask(self, do: str, *, timeout_s: float = _ANSWER_SECONDS, **arguments: Any) -> Any:
        """Give one command; return its answer.

        Raises
        ------
        ProcessError
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
            raise self._error(self.story(f"{command}: {answer['error']}"))
        return answer["answer"]
