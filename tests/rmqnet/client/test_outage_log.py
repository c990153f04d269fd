from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from rmqnet import BrokerError
from rmqnet.client.outage_log import OutageLog
from rmqnet.errors import RemotingConnectError

logger = logging.getLogger(__name__)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _away(address: str, text: str = "refused") -> RemotingConnectError:
    err = RemotingConnectError(text)
    err.address = address
    return err


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG)
    return lambda: [each.message for each in caplog.records if each.levelno == logging.WARNING]


def test_one_warning_a_server_and_minute(
    warnings: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    log = OutageLog(clock)
    for second in range(120):
        clock.now = float(second)
        for queue in range(3):
            log.report(logger, _away("a:1", f"for {second} s"), "%d %d", second, queue)
    assert warnings() == ["0 0", "60 0"]
    assert len(caplog.records) == 360, "the others are there for who wants them"


def test_each_server_for_itself(warnings: Callable[[], list[str]]) -> None:
    log = OutageLog(Clock())
    for address in ("a:1", "b:1", "a:1"):
        log.report(logger, _away(address), "%s", address)
    assert warnings() == ["a:1", "b:1"]


def test_a_refusal_that_speaks_of_one_queue_hides_no_other(
    warnings: Callable[[], list[str]],
) -> None:
    log = OutageLog(Clock())
    log.report(logger, _away("a:1"), "away")
    for remark in ("queue 1 is damaged", "queue 2 is damaged", "queue 1 is damaged"):
        log.report(logger, BrokerError(1, remark, "a:1", "PULL_MESSAGE"), "%s", remark)
    assert warnings() == ["away", "queue 1 is damaged", "queue 2 is damaged"]


def test_what_it_remembers_is_bounded() -> None:
    clock = Clock()
    log = OutageLog(clock)
    for number in range(5000):
        clock.now = number / 10
        log.report(logger, ValueError(str(number)), "x")
    assert len(log._warned) <= 1600, "those of a minute, and up to 1,000"
