# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from store_core.errors import FileVanishedError, StorePermissionError, StoreReadError
from store_core.files import remote_requests
from store_core.files.remote_requests import AT_ONCE, at_once, request, start

BUSY = "AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate"


@pytest.fixture
def pauses(monkeypatch):
    made = []
    monkeypatch.setattr(remote_requests, "_pause", made.append)
    return made


class Flaky:
    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.mark.parametrize(
    "error",
    [
        OSError(BUSY),
        OSError("AWS Error UNKNOWN (HTTP status 503)"),
        OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 56"),
        OSError("AWS Error INTERNAL_FAILURE during GetObject operation"),
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError("timed out"),
        RuntimeError("StandbyException: Operation category READ is not supported"),
    ],
)
def test_what_may_pass_is_asked_again_after_growing_pauses(error, pauses):
    call = Flaky(error, error, error, error)
    assert request(call, "bucket/file") == "done"
    assert call.calls == 5
    assert [low <= pause <= 2 * low for low, pause in zip((0.05, 0.1, 0.2, 0.4), pauses)] == [
        True
    ] * 4


def test_it_is_given_up_in_the_end_and_the_object_is_named(pauses):
    call = Flaky(*[OSError(f"{BUSY} for hunter22")] * 100)
    with pytest.raises(
        StoreReadError, match=r"bucket/file: .*SLOW_DOWN.*\*\*\* .tried 8 times"
    ) as e:
        request(call, "bucket/file", lambda text: text.replace("hunter22", "***"))
    assert call.calls == 8
    assert 6 < sum(pauses) < 20
    assert type(e.value) is StoreReadError
    assert e.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(2, "No such file or directory"), FileVanishedError),
        (OSError("AWS Error NO_SUCH_KEY during GetObject operation"), FileVanishedError),
        (OSError("AWS Error UNKNOWN (HTTP status 404)"), FileVanishedError),
        (PermissionError(13, "Permission denied"), StorePermissionError),
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation"), StorePermissionError),
        (OSError("AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2"), StorePermissionError),
        (NotADirectoryError(20, "Not a directory"), StoreReadError),
        (OSError("AWS Error UNKNOWN (HTTP status 501) during GetObject"), StoreReadError),
    ],
)
def test_what_stays_is_asked_once(error, kind, pauses):
    call = Flaky(error)
    with pytest.raises(kind) as caught:
        request(call, "bucket/file")
    assert (type(caught.value), call.calls, pauses) == (kind, 1, [])
    assert caught.value.path == "bucket/file"


def test_errors_of_the_program_are_not_hidden(pauses):
    with pytest.raises(TypeError):
        request(Flaky(TypeError("a mistake")), "bucket/file")
    assert pauses == []


def test_many_are_under_way_at_once_but_no_more_than_that():
    lock, now, most = threading.Lock(), [0], [0]
    together = threading.Barrier(AT_ONCE)

    def call(number):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        together.wait(30)
        with lock:
            now[0] -= 1
        return number * 2

    assert at_once(call, range(3 * AT_ONCE)) == [2 * n for n in range(3 * AT_ONCE)]
    assert most[0] == AT_ONCE


def test_the_first_error_is_raised_when_all_have_ended():
    done = []

    def call(number):
        done.append(number)
        if number % 2:
            raise StoreReadError(f"number {number}", "bucket/file")

    with pytest.raises(StoreReadError, match="number 1"):
        at_once(call, range(6))
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


def test_calls_that_make_calls_do_not_wait_for_each_other():
    def outer(number):
        return sum(at_once(lambda n: n + number, range(4)))

    assert at_once(outer, range(3 * AT_ONCE)) == [6 + 4 * n for n in range(3 * AT_ONCE)]
    inner = start(lambda: start(lambda: 7).result())
    assert inner.result(30) == 7
