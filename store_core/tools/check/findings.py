# SPDX-License-Identifier: Apache-2.0
"""Findings of a check, and counts of what it checked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING

from store_core.errors import StorePermissionError
from store_core.tools.check.finding_kinds import (
    HINDER_RECOVERY,
    QUEUE_FIX,
    RECOVER,
    FindingKind,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.errors import StoreError

MAX_EXAMPLES = 5
MAX_PLACES = 100
"""Places of one kind that are listed separately; one last finding sums up all others."""


@dataclass(frozen=True)
class Finding:
    """Everything of one kind that a check found in one place.

    Attributes
    ----------
    place
        File, or ``topic/queue id``; empty for the whole store.
    position
        Byte position in the file, or queue offset in the queue, of the first; -1 if it has none.
    commit_log_offset
        Position of the first in the log; -1 if it has none.
    count
        Number of records, units or entries; 1 for parts of the log.
    """

    kind: FindingKind
    place: str
    position: int = -1
    commit_log_offset: int = -1
    count: int = 1
    byte_count: int = 0
    examples: tuple[str, ...] = ()
    advice: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.kind.severity

    @property
    def meaning(self) -> str:
        """What it means for a user."""
        return self.kind.meaning


def _advice(kind: FindingKind, flags: tuple[str, ...], *, is_hindered: bool) -> str:
    """Return the advice for a kind; recovery is not advised if other findings hinder it."""
    if kind.advice == QUEUE_FIX and flags:
        text = f"{' '.join(flags)}; with --dry-run it shows what consumers would lose"
        return f"{QUEUE_FIX}, if it is given {text}"
    if kind.advice == RECOVER and is_hindered:
        return (
            "deal with the other findings first: a recovery would be refused, or would lose "
            "messages"
        )
    return kind.advice


def unread(err: StoreError, kind: FindingKind = FindingKind.UNREADABLE) -> FindingKind:
    """Return the kind of a failed read; missing permission is not damage."""
    return FindingKind.NO_PERMISSION if isinstance(err, StorePermissionError) else kind


@dataclass
class CheckCounts:
    """Counts of what was checked; byte counts are of the log's files."""

    segments: int = 0
    records: int = 0
    record_bytes: int = 0
    blank_bytes: int = 0
    lost_bytes: int = 0
    stale_bytes: int = 0
    zero_bytes: int = 0
    body_crcs: int = 0
    property_crcs: int = 0
    queues: int = 0
    units: int = 0
    expired_units: int = 0
    ext_units: int = 0
    index_files: int = 0
    index_entries: int = 0
    expired_index_entries: int = 0
    compacted_queues: int = 0
    compacted_records: int = 0
    timer_units: int = 0
    timer_slots: int = 0
    entry_index_units: int = 0

    @property
    def log_bytes(self) -> int:
        """All bytes of the log's files: each is counted in exactly one of these fields."""
        parts = (self.record_bytes, self.blank_bytes, self.lost_bytes, self.stale_bytes)
        return sum(parts) + self.zero_bytes

    def as_dict(self) -> dict[str, int]:
        """Return all counts by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass
class Findings:
    """Collects findings, one for each kind and place, so that memory stays bounded.

    ``rebuild_flags`` are the flags without which a rebuild of the queues would be refused.
    """

    found: dict[tuple[FindingKind, str], Finding] = field(default_factory=dict)
    rebuild_flags: set[str] = field(default_factory=set)
    _places: dict[FindingKind, int] = field(default_factory=dict)

    def add(
        self,
        kind: FindingKind,
        place: str = "",
        *,
        position: int = -1,
        commit_log_offset: int = -1,
        count: int = 1,
        byte_count: int = 0,
        examples: Iterable[str] = (),
    ) -> None:
        """Add a finding, or enlarge the one of the same kind and place."""
        if count <= 0:
            return
        key = (kind, place)
        if key not in self.found:
            if self._places.get(kind, 0) >= MAX_PLACES:
                key, place = (kind, "more places"), "more places"
            else:
                self._places[kind] = self._places.get(kind, 0) + 1
        before = self.found.get(key)
        shown = tuple(examples)[:MAX_EXAMPLES]
        if before is None:
            self.found[key] = Finding(
                kind=kind,
                place=place,
                position=position,
                commit_log_offset=commit_log_offset,
                count=count,
                byte_count=byte_count,
                examples=shown,
            )
            return
        self.found[key] = replace(
            before,
            count=before.count + count,
            byte_count=before.byte_count + byte_count,
            examples=(*before.examples, *shown)[:MAX_EXAMPLES],
        )

    def sorted(self) -> tuple[Finding, ...]:
        """Return all findings, worst first."""
        order = list(Severity)
        kinds = list(FindingKind)
        flags = tuple(sorted(self.rebuild_flags))
        is_hindered = any(kind in HINDER_RECOVERY for kind, _ in self.found)
        return tuple(
            sorted(
                (
                    replace(one, advice=_advice(one.kind, flags, is_hindered=is_hindered))
                    for one in self.found.values()
                ),
                key=lambda f: (order.index(f.severity), kinds.index(f.kind), f.place),
            )
        )


class Verdict(Enum):
    """Conclusion of a check."""

    GOOD = "good"
    """No damage, nothing to repair, all parts checked except those of `FindingKind.NOT_READ`."""
    NOT_CHECKED = "not checked"
    """Nothing wrong was found, but a part could not be checked."""
    NEEDS_REPAIR = "needs repair"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class CheckReport:
    """Result of a check of a store: its findings, and counts of what it checked."""

    store: str
    state: str
    log_begin: int
    log_end: int
    log_ends_because: str
    counts: CheckCounts
    findings: tuple[Finding, ...]

    def with_severity(self, severity: Severity) -> tuple[Finding, ...]:
        """Return the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def verdict(self) -> Verdict:
        """The verdict that follows from the worst finding."""
        verdicts = (
            (Severity.DAMAGE, Verdict.DAMAGED),
            (Severity.REPAIRABLE, Verdict.NEEDS_REPAIR),
            (Severity.NOT_CHECKED, Verdict.NOT_CHECKED),
        )
        return next((verdict for bad, verdict in verdicts if self.with_severity(bad)), Verdict.GOOD)

    @property
    def verdict_text(self) -> str:
        """The verdict, and the number of findings it is based on."""
        damage, repairable, unchecked = (
            len(self.with_severity(s))
            for s in (Severity.DAMAGE, Severity.REPAIRABLE, Severity.NOT_CHECKED)
        )
        left = f"; {unchecked} parts were not checked" if unchecked else ""
        if damage:
            text = f"damaged: {damage} findings of damage, {repairable} that can be repaired"
            return text + self._losses() + left
        if repairable:
            return f"needs repair: {repairable} findings{left}"
        if unchecked:
            kinds = {f.kind for f in self.with_severity(Severity.NOT_CHECKED)}
            because = ", ".join(sorted(kind.label for kind in kinds))
            return f"not checked: {because}"
        return "good"

    def _losses(self) -> str:
        """Return how many messages are affected, according to queues and CRCs."""
        lost = self._count(FindingKind.UNIT_OF_LOST_RECORD)
        wrong = self._count(FindingKind.BODY_CRC)
        told = f"; messages lost, by their queues: {lost}" if lost else ""
        return told + (f"; messages with a wrong body: {wrong}" if wrong else "")

    def _count(self, kind: FindingKind) -> int:
        return sum(finding.count for finding in self.findings if finding.kind is kind)

    @property
    def is_good(self) -> bool:
        """Whether nothing is damaged, nothing needs repair, and everything was checked."""
        return self.verdict is Verdict.GOOD
