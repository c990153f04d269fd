# SPDX-License-Identifier: Apache-2.0
"""Times on the command line: their meaning, and the zone in which they are shown."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.cli.read import WrongUseError
from rmqsource.cli.times import Clock, clock_of, now_ms, span_ms
from tests.golden_store import golden
from tests.rmqsource.cli.command_line import Run

pytest.importorskip("typer")

STORE = golden("cluster-5x")
SIZES = ("--config", STORE.config_file)
NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("90s", 90_000), ("5m", 300_000), ("1h", 3_600_000), ("2d", 172_800_000)),
        *(("1h30m", 5_400_000), ("250ms", 250), ("1w", 604_800_000), ("1.5h", 5_400_000)),
        *(("1", None), ("1x", None), ("", None), ("h", None), ("-1h", None), ("1h ago", None)),
    ],
)
def test_spans(text: str, expected: int | None) -> None:
    assert span_ms(text) == expected


def test_a_span_is_before_now() -> None:
    clock = Clock(NOON_MS)
    assert clock.instant_ms("--since", "1h") == NOON_MS - 3_600_000
    assert clock.instant_ms("--since", "now") == NOON_MS
    assert clock.instant_ms("--since", "2026-11-21T12:00:00Z") == NOON_MS
    assert clock.instant_ms("--since", str(NOON_MS)) == NOON_MS
    assert abs(clock_of(None).now - now_ms()) < 60_000


def test_without_a_zone_a_time_without_offset_is_an_error() -> None:
    with pytest.raises(WrongUseError, match=r"has no offset from UTC.*or give its zone with --tz"):
        Clock(NOON_MS).instant_ms("--since", "2026-11-21T12:00:00")


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("UTC", "2026-11-21 12:00", NOON_MS),
        ("+08:00", "2026-11-21T20:00:00", NOON_MS),
        ("-03:30", "2026-11-21T08:30:00", NOON_MS),
        ("Asia/Shanghai", "2026-11-21T20:00:00", NOON_MS),
        ("Europe/Berlin", "2026-11-21T13:00:00", NOON_MS),
        ("Europe/Berlin", "2026-07-01", 1_782_856_800_000),  # 2026-06-30T22:00:00Z, summer time
        ("Asia/Shanghai", "2026-11-21T12:00:00Z", NOON_MS),
    ],
)
def test_with_a_zone_it_is_a_time_there(zone: str, text: str, expected: int) -> None:
    assert clock_of(zone).instant_ms("--since", text) == expected


@given(st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1)), st.sampled_from(["+08:00", "UTC"]))
def test_zones_and_offsets_agree(moment: datetime, zone: str) -> None:
    text = moment.isoformat(timespec="milliseconds")
    written = text + ("+08:00" if zone == "+08:00" else "Z")
    assert clock_of(zone).instant_ms("x", text) == clock_of(None).instant_ms("x", written)


def test_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        clock = clock_of("local")
        assert clock.instant_ms("--since", "2026-11-21T20:00:00") == NOON_MS
        noon = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
        assert noon.astimezone(clock.zone).hour == 20
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["Nowhere/City", "8", "+19:00", "", "../etc/passwd"])
def test_zones_that_are_none(run: Run, zone: str) -> None:
    answer = run("messages", STORE.root, "--tz", zone)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("rocketmq-store: --tz: expected a zone such as Asia/Shanghai")


def test_the_zone_of_what_is_shown(run: Run) -> None:
    utc = run("messages", STORE.root, *SIZES, "--limit", "1")
    there = run("messages", STORE.root, *SIZES, "--limit", "1", "--tz", "Asia/Shanghai")
    assert "2026-11-21 12:26:29.413" in utc.out
    assert there.out == utc.out.replace("2026-11-21 12:26", "2026-11-21 20:26")
    rows: list[dict[str, Any]] = run(
        *("messages", STORE.root, *SIZES, "--limit", "1", "--format", "json", "--tz", "+08:00")
    ).rows
    assert rows[0]["store_timestamp"] == "2026-11-21T20:26:29.413+08:00"


def test_a_window_there_selects_the_same(run: Run) -> None:
    given_ = ("messages", STORE.root, *SIZES, "--format", "json")
    window = ("--since", "2026-11-21T20:26:33", "--until", "2026-11-21T20:26:34", "--tz", "+08:00")
    plain = ("--since", "2026-11-21T12:26:33Z", "--until", "2026-11-21T12:26:34Z")
    ids = [row["message_id"] for row in run(*given_, *plain).rows]
    assert ids
    assert [row["message_id"] for row in run(*given_, *window).rows] == ids
    since = datetime(2026, 11, 21, 12, 26, 33, tzinfo=timezone.utc)
    ago = (datetime.now(timezone.utc) - since) // timedelta(seconds=1)
    recent = run(*given_, "--since", f"{ago + 3600}s", "--until", f"{max(ago - 86400, 0)}s")
    assert set(ids) <= {row["message_id"] for row in recent.rows}


def test_a_window_that_ends_before_it_begins(run: Run) -> None:
    answer = run("messages", STORE.root, "--since", "2026-11-21T12:00:01Z", "--until", str(NOON_MS))
    assert answer.code == 2
    assert answer.err == (
        f"rocketmq-store: --since 2026-11-21T12:00:01Z is 1 s after --until {NOON_MS}, which is "
        "exclusive; are the two swapped?\n"
    )


def test_a_text_that_is_no_time_is_told_every_form_that_is() -> None:
    with pytest.raises(WrongUseError, match=r"found 'yesterday'; or a time before now such as 1h"):
        Clock(0).instant_ms("--since", "yesterday")
