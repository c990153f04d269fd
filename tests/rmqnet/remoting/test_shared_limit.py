from __future__ import annotations

from typing import Any

import pytest

from rmqnet.remoting.shared_limit import SharedLimit


class Connection:
    reason = ""
    is_aborted = False

    def __init__(self, address: str) -> None:
        self.address = address

    def abort(self) -> None:
        self.is_aborted = True


def connections() -> Any:
    return [Connection(f"10.0.0.{number}:1") for number in range(3)]


def test_who_has_most_goes_and_who_is_gone_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small, large, late = connections()
    limit = SharedLimit("answers", "it does not read", 100)
    limit.note(small, 30)
    limit.note(large, 60)
    limit.note(late, 10)
    assert not any(each.is_aborted for each in (small, large, late))
    limit.note(late, 11)
    assert [each.is_aborted for each in (small, large, late)] == [False, True, False]
    assert large.reason == "it does not read"
    assert caplog.messages == [
        "answers take 101 bytes, more than 100; 10.0.0.1:1 is disconnected, which has 60 of them"
    ]
    limit.note(large, 0)  # its end is told
    limit.note(late, 70)
    assert not small.is_aborted
    limit.note(late, 0)
    limit.note(late, 71)
    assert late.is_aborted


def test_one_alone_may_have_too_many() -> None:
    one, other, _ = connections()
    limit = SharedLimit("answers", "it does not read", 100)
    limit.note(one, 1)
    limit.note(other, 101)
    assert (one.is_aborted, other.is_aborted) == (False, True)
    limit.note(one, 100)
    assert not one.is_aborted
