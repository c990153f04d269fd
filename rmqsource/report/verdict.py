# SPDX-License-Identifier: Apache-2.0
"""The verdict at the top of a report: the state of each subject, and what to do about it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqsource.metadata.transactions import CHECK_EXCEEDED, PENDING, UNKNOWN
from rmqsource.plots.style import bytes_text, count_text, duration_text, percent_text, plural
from rmqsource.safe_text import printable
from store_core.state.store_state import StoreState
from store_core.topics import SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from rmqsource.explore.store_health import StoreHealth
    from rmqsource.report.report_data import ReportData

GOOD, LOOK, ACT = "good", "look", "act"
"""Nothing to do; worth checking; something to do now."""

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
LAG_ACT_MS = _HOUR_MS
"""A group with a larger lag usually does not catch up by itself."""
LAG_GOOD_MS = 10_000
"""Consumers of a running broker commit their offsets every five seconds."""
FRESH_DEAD_MS = _DAY_MS
FORECAST_SPAN_MS = _DAY_MS
"""A shorter span does not predict a day: traffic varies by the hour."""
DISK_ACT_DAYS = 3
_DELETED_EVERY_HOURS = 24
"""Expired files are deleted once a day, at the hour ``deleteWhen``."""


@dataclass(frozen=True)
class Judgement:
    """One line of the verdict.

    Attributes
    ----------
    todo
        What to do; empty if there is nothing to do.
    """

    subject: str
    state: str
    text: str
    todo: str = ""
    commands: tuple[str, ...] = ()


def verdict(findings: ReportData, made_at_ms: int) -> list[Judgement]:
    """Return the lines of the verdict on the stores."""
    several = len(findings.standings) > 1
    return [
        *(_state(one, findings, several) for one in findings.standings),
        *(_not_read(one, several) for one in findings.standings if one.not_read),
        _damage(findings),
        _lag(findings),
        *_offsets_outside(findings),
        _dead_letters(findings),
        _transactions(findings),
        *(
            found
            for one in findings.standings
            for found in _disk(one, findings, made_at_ms, several)
        ),
    ]


def _state(one: StoreHealth, findings: ReportData, several: bool) -> Judgement:
    subject = _subject("State", one, several)
    if one.state == StoreState.STOPPED.value:
        return Judgement(subject, GOOD, "Stopped cleanly.")
    if one.state == StoreState.LIVE.value:
        text = "Open in a broker. The figures are those at the time of the report."
        return Judgement(subject, GOOD, text)
    if one.state == StoreState.CRASHED.value:
        return Judgement(
            subject,
            ACT,
            "Not stopped cleanly: the file abort exists, and no broker here has the store open.",
            "Nothing, if it is a copy of a running broker's files. After a crash, a broker "
            "repairs the store when it starts; recover does so without a broker, and its "
            "--dry-run shows what it would cut.",
            (
                _command("recover", one.store, findings, "--dry-run"),
                _command("recover", one.store, findings),
            ),
        )
    return Judgement(
        subject,
        ACT,
        f"Not known. {one.problem}.",
        "Make sure that the disk is mounted and the path is right, then check the store.",
        (_command("info", one.store, findings), _command("check", one.store, findings)),
    )


def _not_read(one: StoreHealth, several: bool) -> Judgement:
    parts = " ".join(f"{text[:1].upper()}{text[1:]}." for text in one.not_read)
    return Judgement(_subject("Not read", one, several), LOOK, parts)


def _damage(findings: ReportData) -> Judgement:
    checks = tuple(_command("check", one.store, findings) for one in findings.standings)
    counts = findings.counts
    parts = []
    if counts.gaps:
        places = plural(counts.gaps, "damaged place")
        parts.append(f"{places} in the log, {bytes_text(counts.gap_bytes)} that cannot be read.")
    if findings.told:
        parts.append(f"{plural(len(findings.told), 'other finding')}, listed below.")
    bodies = (
        "Every body was checked against its CRC."
        if findings.bodies_checked
        else "Bodies were not checked, so damage inside a body is not seen here. check does "
        "check them."
    )
    if parts:
        return Judgement(
            "Damage",
            ACT,
            f"{' '.join(parts)} All figures are of what can be read. {bodies}",
            "Keep the files as they are. check shows what is damaged and where; salvage "
            "copies everything readable to a new store.",
            (
                *checks,
                *(_command("salvage", s.store, findings, "NEW-STORE") for s in findings.standings),
            ),
        )
    if not findings.bodies_checked:
        return Judgement("Damage", LOOK, f"None seen. {bodies}", "", checks)
    return Judgement("Damage", GOOD, f"None seen in what the report reads. {bodies}")


def _lag(findings: ReportData) -> Judgement:
    if not findings.lag_is_known:
        return Judgement(
            "Consumer lag",
            LOOK,
            "Not known: queues or consumer offsets are in a database, which is not read.",
            "Ask the running broker: mqadmin consumerProgress.",
        )
    frame = findings.lag
    frame = frame[~frame["group"].str.startswith(SYSTEM_GROUP_PREFIX)] if len(frame) else frame
    if not len(frame):
        return Judgement("Consumer lag", GOOD, "No consumer group has committed an offset here.")
    ages = frame["lag_ms"].astype("float64")
    behind = frame.assign(age=ages.where(frame["lag"] > 0, 0), is_unknown=ages.isna())
    behind = behind[behind["lag"] > 0]
    if not len(behind):
        return Judgement("Consumer lag", GOOD, "All groups have consumed everything.")
    by = behind.groupby(["group", "topic"], as_index=False)
    sums = by.agg({"lag": "sum", "age": "max", "is_unknown": "any"})
    worst = sums.sort_values(["age", "lag"], ascending=False, kind="stable").iloc[0]
    age = 0.0 if worst["age"] != worst["age"] else float(worst["age"])
    is_old = sums["is_unknown"].any() or age > LAG_GOOD_MS
    is_live = all(one.state == StoreState.LIVE.value for one in findings.standings)
    state = ACT if age > LAG_ACT_MS else LOOK if is_old or not is_live else GOOD
    others = len(sums) - 1
    more = f" {plural(others, 'other pair')} of group and topic behind." if others else ""
    by_time = f", by {duration_text(age)}" if age else ""
    text = (
        f"Group {worst['group']} is furthest behind: {plural(int(worst['lag']), 'message')} of "
        f"topic {worst['topic']}{by_time}.{more}"
    )
    todo = (
        ""
        if state == GOOD
        else "Check whether its consumers are running, and what they are waiting for."
    )
    return Judgement("Consumer lag", state, text, todo, _commands("lag", findings))


def _offsets_outside(findings: ReportData) -> Iterator[Judgement]:
    """Yield the judgement on groups whose offsets are outside their queues, if there are any."""
    if not findings.lag_is_known or not len(findings.lag):
        return
    frame = findings.lag
    beyond, expired = frame[frame["lag"] < 0], frame[frame["expired"] > 0]
    parts = []
    if len(beyond):
        worst = beyond.sort_values("lag", kind="stable").iloc[0]
        parts.append(
            f"{plural(len(beyond), 'offset')} past the end of the queue: that of group "
            f"{worst['group']} for queue {worst['queue_id']} of topic {worst['topic']} by "
            f"{plural(-int(worst['lag']), 'message')}."
        )
    if len(expired):
        sums = expired.groupby("group")["expired"].sum().sort_values(ascending=False, kind="stable")
        parts.append(
            f"{plural(int(sums.sum()), 'message')} deleted before they were consumed, most of "
            f"them unread by group {sums.index[0]}."
        )
    if parts:
        yield Judgement(
            "Consumer offsets",
            ACT if len(beyond) else LOOK,
            " ".join(parts),
            "A group past the end gets no new message until its offset is reset."
            if len(beyond)
            else "Check whether its consumers are running.",
            _commands("lag", findings),
        )


def _dead_letters(findings: ReportData) -> Judgement:
    by_group, newest = findings.dead_letter_groups, findings.newest_dead_letter_ms
    total = findings.dead_letter_count
    if not total:
        return Judgement("Dead letters", GOOD, "None.")
    largest = max(by_group.items(), key=lambda item: item[1])
    last_ms = findings.counts.last_ms or 0
    is_fresh = newest is not None and last_ms - newest <= FRESH_DEAD_MS
    fresh = " The newest is from the last day of the store." if is_fresh else ""
    are = "is" if total == 1 else "are"
    of = f"group {largest[0]}"
    if len(by_group) > 1:
        of = f"{len(by_group):,} groups"
        fresh = f" Most are of {largest[0]}: {count_text(largest[1])}.{fresh}"
    return Judgement(
        "Dead letters",
        ACT if is_fresh else LOOK,
        f"{plural(total, 'message')} of {of} {are} dead.{fresh}",
        "No consumer gets them any more, and they expire with the log. Find the reason in "
        "the consumer's own log, then send again what is needed.",
        _commands("dlq", findings),
    )


def _transactions(findings: ReportData) -> Judgement:
    if not findings.transactions_are_known:
        return Judgement(
            "Transactions",
            LOOK,
            "There are some. It is not known which are pending: consumer offsets are in a "
            "database, which is not read.",
        )
    frame = findings.transactions
    counted = dict(zip(frame["state"], (int(n) for n in frame["messages"])))
    given_up, pending = counted.get(CHECK_EXCEEDED, 0), counted.get(PENDING, 0)
    unknown = counted.get(UNKNOWN, 0)
    if not given_up + pending + unknown:
        text = "All are committed or rolled back." if counted else "None."
        return Judgement("Transactions", GOOD, text)
    parts = [
        f"{count_text(number)} {what}"
        for number, what in (
            (given_up, "given up by the broker after too many checks"),
            (pending, "pending"),
            (unknown, "with an unknown outcome"),
        )
        if number
    ]
    todo = "The broker asks their producers again: check whether those are running."
    if given_up:
        todo = "No consumer gets a message that was given up: ask its producers to send it again."
    text = f"{', '.join(parts)}."
    state = ACT if given_up else LOOK
    return Judgement("Transactions", state, text, todo, _commands("transactions", findings))


def _disk(
    one: StoreHealth, findings: ReportData, made_at_ms: int, several: bool
) -> Iterator[Judgement]:
    """Yield how full the log's disk is and will be; nothing if it is not on this machine."""
    if one.disk is None or one.disk.entire <= 0:
        return
    subject, topics = _subject("Disk", one, several), (_command("topics", one.store, findings),)
    used = one.disk.used / one.disk.entire
    now = f"The disk that has the log is {percent_text(used)} full."
    todo = "Free space or keep messages for less time (fileReservedTime)."
    if used > one.forced_share:
        what = "refuses messages" if used > one.refused_share else "deletes files of any age"
        most = one.refused_share if used > one.refused_share else one.forced_share
        text = f"{now} Above {percent_text(most)} a broker {what}."
        yield Judgement(subject, ACT, text, todo, topics)
        return
    rate = _bytes_per_day(one, made_at_ms)
    if isinstance(rate, str):
        yield Judgement(subject, GOOD, f"{now} No forecast: {rate}.")
        return
    kept_days = (one.kept_hours + _DELETED_EVERY_HOURS) / 24
    settles = max(rate * kept_days, one.log_bytes)
    room = one.forced_share * one.disk.entire - one.disk.used
    grows = f"{now} The log grows by about {bytes_text(rate)} a day."
    kept = f"files that are kept for {one.kept_hours} h"
    if settles - one.log_bytes <= room:
        yield Judgement(
            subject,
            GOOD,
            f"{grows} With {kept} it settles at about {bytes_text(settles)}: there is room.",
        )
        return
    days = room / rate
    yield Judgement(
        subject,
        ACT if days < DISK_ACT_DAYS else LOOK,
        f"{grows} In about {duration_text(days * _DAY_MS)}, {percent_text(one.forced_share)} "
        f"of the disk will be used, and a broker then deletes files of any age. With {kept} "
        f"the log would settle at about {bytes_text(settles)}.",
        todo,
        topics,
    )


def _bytes_per_day(one: StoreHealth, made_at_ms: int) -> float | str:
    """Return the bytes by which the log grows a day, or why that is unknown."""
    if one.first_ms is None:
        return "the store has no message"
    if one.last_ms is None:
        return "it is not known when the last message was stored"
    span = one.last_ms - one.first_ms
    if span < FORECAST_SPAN_MS:
        return f"it needs messages of a whole day, and these cover {duration_text(max(span, 0))}"
    if made_at_ms - one.last_ms > _DAY_MS:
        return f"the newest message is {duration_text(made_at_ms - one.last_ms)} old"
    return one.log_bytes * _DAY_MS / span


def _subject(text: str, one: StoreHealth, several: bool) -> str:
    return f"{text} of {one.store}" if several else text


def _commands(name: str, findings: ReportData) -> tuple[str, ...]:
    return tuple(_command(name, one.store, findings) for one in findings.standings)


def _command(name: str, store: str, findings: ReportData, *more: Any) -> str:
    """Return a command line for a shell, with each word quoted."""
    words = ["rocketmq-store", name, store, *more]
    words += ["--config", findings.config] if findings.config else []
    return " ".join(shlex.quote(printable(word)) for word in words)
