# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys

import pytest

from rmqsource import cli
from tests.rmqsource.cli.command_line import Answer, Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return ``run(*arguments) -> Answer``, which runs ``rocketmq-store`` with these arguments."""

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["rocketmq-store", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        code = left.value.code
        return Answer(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call
