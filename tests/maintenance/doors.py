# SPDX-License-Identifier: Apache-2.0
"""All ways to read the messages of a store ("doors"), and a check that they agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from store_core import StoreSnapshot
from tests.hostile.cases import run_cli
from tests.maintenance.ledger import Ledger, Record
from tests.maintenance.operations import OWN_ERRORS
from tests.maintenance.stores import Store
from tests.rmqsource.reading import read_rows

_MOST_KEYS = 12
_PLACE = ("commit_log_offset",)


class Answer(NamedTuple):
    """The answer of a door: places in the log, or an error instead."""

    places: set[int]
    error: str = ""


Door = Callable[[Store], Answer]


def scan(store: Store, **options: str) -> Answer:
    """Return the answer of a FAILFAST read that checks every byte of the log."""
    told = {"mode": "FAILFAST", "checkCRC": "true", "config": str(store.config_file), **options}
    try:
        rows = read_rows(store.root, _PLACE, **told)
    except OWN_ERRORS as err:
        return Answer(set(), repr(err))
    return Answer({row["commit_log_offset"] for row in rows})


def command_line(store: Store) -> Answer:
    """Return the messages listed by command ``messages``."""
    answer = run_cli(
        *("messages", store.root, "--limit", 0, "--format", "json", "--option", "checkCRC=true"),
        *("--columns", "commit_log_offset", *store.flags),
    )
    assert "Traceback" not in answer.err, answer.err
    places = {json.loads(line)["commit_log_offset"] for line in answer.out.splitlines()}
    is_error = answer.code > 1 or (answer.code == 1 and (places or "no message" not in answer.err))
    return Answer(places, f"code {answer.code}: {answer.err[-300:]}" if is_error else "")


def check(store: Store) -> tuple[int, str]:
    """Return the exit code of ``check``, and its findings."""
    answer = run_cli("check", store.root, "--format", "json", *store.flags)
    assert "Traceback" not in answer.err, answer.err
    findings = json.loads(answer.out).get("findings", ()) if answer.out.strip() else ()
    told = [
        (f["severity"], f["kind"], f["count"]) for f in findings if f["severity"] != "information"
    ]
    return answer.code, f"{told} {answer.err[-200:]}"


def get_message(store: Store, queues: set[tuple[str, int]]) -> Answer:
    """Return the messages that consumers get from all queues, least to greatest offset."""
    places: set[int] = set()
    try:
        with StoreSnapshot(store.root, store.config()) as snapshot:
            for queue in sorted(queues | set(snapshot.queue_paths)):
                places |= _of_queue(snapshot, *queue)
    except OWN_ERRORS as err:
        return Answer(places, repr(err))
    return Answer(places)


def _of_queue(snapshot: StoreSnapshot, topic: str, queue_id: int) -> set[int]:
    places: set[int] = set()
    at = snapshot.get_min_offset_in_queue(topic, queue_id)
    stop = snapshot.get_max_offset_in_queue(topic, queue_id)
    while at < stop:
        result = snapshot.get_message("g", topic, queue_id, at, 32)
        places |= {message.commit_log_offset for message in result.messages}
        assert result.next_begin_offset > at, (topic, queue_id, at, result.status)
        at = result.next_begin_offset
    return places


def by_key(store: Store, wanted: list[Record]) -> Answer:
    """Return those of some records that a query finds by a word of their keys."""
    places: set[int] = set()
    try:
        with StoreSnapshot(store.root, store.config()) as snapshot:
            for record in wanted:
                found = snapshot.find_messages(record.topic, [record.key or ""])
                places |= {message.commit_log_offset for message in found}
    except OWN_ERRORS as err:
        return Answer(places, repr(err))
    return Answer(places)


def disagreement(store: Store, ledger: Ledger, scans: Mapping[str, Door]) -> str:
    """Return a contradiction between doors that none of them reports; empty if there is none.

    Doors that read the whole log give every readable message or an error, whatever ``check`` says;
    ``scans`` are more doors of that kind. Doors that use queues and index may lack some messages if
    ``check`` reports something to repair.
    """
    records = ledger.records.values()
    everything = {record.start for record in records}
    queued = {record.start for record in records if record.is_queued}
    code, findings = check(store)
    for name, found, wanted in (
        ("a scan", scan(store, access="commitlog"), everything),
        ("messages", command_line(store), queued),
        *((name, door(store), everything) for name, door in scans.items()),
    ):
        if not found.error and (wanted - found.places or (not code and found.places - wanted)):
            return _told(name, found, wanted, code, findings)
    if code:
        return ""
    due = {record.start for record in records if record.is_queued}
    due -= _not_dispatched(ledger) | _earlier_lives(ledger)
    queues = {(record.topic, record.queue_id) for record in records if record.is_queued}
    keyed = [record for record in records if record.start in due and record.key]
    keyed = store.chance.sample(keyed, min(len(keyed), _MOST_KEYS))
    for name, found, wanted in (
        ("get_message", get_message(store, queues), due),
        ("keys", by_key(store, keyed), {record.start for record in keyed}),
    ):
        if _says_body(found):
            continue
        if found.error or wanted - found.places or found.places - everything:
            return _told(name, found, wanted, code, findings)
    for topic in sorted({topic for topic, _ in queues}):
        wanted = {r.start for r in records if r.topic == topic and r.is_queued}
        found = scan(store, topic=json.dumps([topic]))
        if not _says_body(found) and (found.error or wanted != found.places):
            return _told(f"topic {topic}", found, wanted, code, findings)
    return ""


def _says_body(found: Answer) -> bool:
    """Return whether a door says that a body cannot be inflated.

    No CRC covers the flag that says a body is compressed: only readers of the body notice.
    """
    return "CorruptBodyError" in found.error


def _not_dispatched(ledger: Ledger) -> set[int]:
    """Return the records after a crash that no queue has yet: the last ones of each queue."""
    if not ledger.is_crashed:
        return set()
    found: set[int] = set()
    closed: set[tuple[str, int]] = set()
    for record in sorted(ledger.records.values(), reverse=True):
        queue = (record.topic, record.queue_id)
        if ledger.is_referred_to(record):
            closed.add(queue)
        elif queue not in closed:
            found.add(record.start)
    return found


def _earlier_lives(ledger: Ledger) -> set[int]:
    """Return the records that look as if their topic had been deleted after them.

    Then all its queues were deleted: no queue refers to an earlier record of the topic.
    """
    begins: dict[str, int] = {}
    for record in ledger.records.values():
        if ledger.is_referred_to(record):
            begins[record.topic] = min(record.start, begins.get(record.topic, record.start))
    return {r.start for r in ledger.records.values() if r.start < begins.get(r.topic, r.start)}


def _told(name: str, found: Answer, wanted: set[int], code: int, findings: str) -> str:
    return (
        f"{name} lacks {sorted(wanted - found.places)[:5]} of {len(wanted)}, has besides "
        f"{sorted(found.places - wanted)[:5]}, says {found.error or 'nothing'}; "
        f"check says {code}: {findings}"
    )
