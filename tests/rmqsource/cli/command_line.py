# SPDX-License-Identifier: Apache-2.0
"""The output of the command line as tests read it: exit code and both streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Answer]
