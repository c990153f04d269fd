# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading

import pytest

from store_core.services.service_thread import ServicesInTurn, ServiceThread

FOREVER = 3_600_000
TIMEOUT_S = 10


class Counting(ServiceThread):
    def __init__(self, interval_ms=FOREVER, **options):
        super().__init__(interval_ms, **options)
        self.runs, self.finished, self.failures = 0, 0, []
        self.busy_runs = 0
        self.ran = threading.Semaphore(0)

    def run_once(self):
        self.runs += 1
        self.ran.release()
        if self.failures:
            raise self.failures.pop(0)
        return self.runs <= self.busy_runs

    def finish(self):
        self.finished += 1

    def wait_for_runs(self, count):
        for _ in range(count):
            assert self.ran.acquire(timeout=TIMEOUT_S)


def test_runs_at_once_and_when_woken():
    service = Counting()
    service.start()
    service.start()
    service.wait_for_runs(1)
    service.wakeup()
    service.wait_for_runs(1)
    assert service.is_running
    assert [t.name for t in threading.enumerate()].count("Counting") == 1
    service.shutdown()
    assert (service.runs, service.finished, service.is_running) == (2, 1, False)


def test_runs_again_after_its_interval():
    service = Counting(interval_ms=1)
    service.start()
    service.wait_for_runs(3)
    service.shutdown()


def test_a_busy_service_does_not_rest():
    service = Counting()
    service.busy_runs, service.repeats_while_busy = 3, True
    service.start()
    service.wait_for_runs(4)
    service.shutdown()
    assert service.runs == 4


def test_shutdown_ends_every_rest():
    for options in ({"first_delay_ms": FOREVER}, {"wakeable": False}):
        service = Counting(**options)
        service.start()
        service.wakeup()
        service.shutdown()
        assert service.runs <= 1
        assert service.finished == 1


def test_a_service_that_was_not_started_finishes_nothing():
    service = Counting()
    service.shutdown()
    assert service.finished == 0


def test_starts_again_after_a_shutdown():
    service = Counting()
    for _ in range(2):
        service.start()
        service.wait_for_runs(1)
        service.shutdown()
    assert (service.runs, service.finished) == (2, 2)


def test_an_exception_is_logged_kept_and_survived(caplog, monkeypatch):
    monkeypatch.setattr("store_core.services.service_thread._REST_AFTER_ERROR_S", 0.001)
    caplog.set_level(logging.DEBUG)
    service = Counting(interval_ms=1)
    service.failures = [OSError("full"), OSError("full"), ValueError("other")]
    service.start()
    service.wait_for_runs(5)
    service.shutdown()
    assert isinstance(service.last_error, ValueError)
    found = [(r.levelname, r.message) for r in caplog.records]
    assert found == [
        ("ERROR", "Counting failed and continues: full"),
        ("DEBUG", "Counting failed and continues: full"),
        ("ERROR", "Counting failed and continues: other"),
    ]
    assert caplog.records[0].exc_info


def test_an_exception_at_the_end_is_logged(caplog):
    service = Counting()
    service.finish = lambda: {}["missing"]
    service.start()
    service.shutdown()
    assert isinstance(service.last_error, KeyError)
    assert "failed" in caplog.text


def test_services_in_turn(caplog):
    first, second = Counting(), Counting()
    both = ServicesInTurn([first, second], FOREVER)
    first.failures = [OSError("full")]
    assert not both.run_once()
    second.busy_runs = 2
    assert both.run_once()
    assert (first.runs, second.runs) == (2, 2)
    assert "full" in caplog.text


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_pause_is_cut_short_by_the_shutdown(in_turn):
    paused = threading.Event()

    class Pausing(Counting):
        def run_once(self):
            paused.set()
            self.pause(FOREVER)
            return super().run_once()

    inner = Pausing()
    inner.pause(FOREVER)  # without a thread it does not rest
    service = ServicesInTurn([inner], FOREVER) if in_turn else inner
    service.start()
    assert paused.wait(TIMEOUT_S)
    assert inner.runs == 0
    service.shutdown()
    assert inner.runs == 1


@pytest.mark.parametrize("end", ["wakeup", "shutdown"])
def test_a_wakeable_pause_is_cut_short(end):
    paused = threading.Event()

    class Pausing(Counting):
        def run_once(self):
            paused.set()
            self.pause(FOREVER, wakeable=True)
            return super().run_once()

    service = Pausing()
    service.pause(FOREVER, wakeable=True)  # without a thread it does not rest
    service.start()
    assert paused.wait(TIMEOUT_S)
    getattr(service, end)()
    service.wait_for_runs(1)
    service.shutdown()
