"""A log that is not there, or not to its end: a new store, an unmounted disk, lost files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store_core.config.config_files import load_consumer_offsets, load_delay_offsets
from store_core.errors import StoreError
from store_core.layout.store_paths import CHECKPOINT_FILE, LOCK_FILE
from store_core.log.commit_log import commit_log_directories
from store_core.tools.check.finding_kinds import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

_MADE_BY_A_BROKER = (LOCK_FILE, CHECKPOINT_FILE)


def check_log_is_there(snapshot: StoreSnapshot, counts: CheckCounts, findings: Findings) -> None:
    """Note a log without records, unless it is that of a broker that never got a message.

    Such a broker leaves ``commitlog/``, ``lock`` and a ``checkpoint`` of zeros; whatever knows of a
    message says that there was one.
    """
    if counts.records:
        return
    if len(snapshot.log.segments):
        if counts.stale_bytes and not counts.blank_bytes:
            text = f"{counts.stale_bytes} bytes in {len(snapshot.log.segments)} files"
            findings.add(
                FindingKind.NO_RECORD, snapshot.log.segments.segments[0].path, examples=[text]
            )
        return
    places = commit_log_directories(snapshot.directory, snapshot.config)
    places += snapshot.dledger_directories
    place = places[0] if places else ""
    evidence = list(_traces_of_messages(snapshot))
    if evidence:
        findings.add(FindingKind.LOG_MISSING, place, examples=evidence)
        return
    made = [snapshot.directory.stat(snapshot.directory.resolve(name)) for name in _MADE_BY_A_BROKER]
    present = [entry for path in places if (entry := snapshot.directory.stat(path)) is not None]
    if not present or not all(made):
        found = "the directory is empty" if present else "there is no such directory"
        findings.add(FindingKind.LOG_UNKNOWN, place, examples=[found])


def check_log_end(snapshot: StoreSnapshot, findings: Findings) -> None:
    """Note messages that the rest of the store names after the end of the log."""
    lost = snapshot.lost_end
    if lost is None:
        return
    units = [
        f"{topic}/{queue_id}: queue offsets {found.queue_offset} to {found.stop - 1}"
        for (topic, queue_id), found in lost.queues.items()
    ]
    findings.add(
        FindingKind.LOG_END_LOST,
        snapshot.log.segments.segments[-1].path,
        commit_log_offset=lost.end_offset,
        count=max(lost.messages, 1),
        byte_count=lost.reach - lost.end_offset,
        examples=[*lost.proofs, *units],
    )


def _traces_of_messages(snapshot: StoreSnapshot) -> Iterator[str]:
    """Yield, in words, what of the rest of the store knows of messages; one of each sort."""
    with suppress(StoreError):
        for topic, queue_id in (*snapshot.queue_paths, *snapshot.batch_queue_paths):
            if _has_units(snapshot, topic, queue_id):
                yield f"consume queue {topic}/{queue_id} has units"
                break
    with suppress(StoreError):
        if any(entry.header.entry_count > 0 for entry in snapshot.index.files):
            yield "the index has entries"
    point = snapshot.checkpoint
    if point is not None and any((point.physic_msg_timestamp, point.confirm_phy_offset)):
        yield "the checkpoint speaks of a record"
    with suppress(StoreError):
        for (group, topic), offsets in load_consumer_offsets(snapshot.directory).items():
            if any(offset > 0 for offset in offsets.values()):
                yield f"group {group} consumed messages of topic {topic}"
                break
    with suppress(StoreError):
        if any(offset > 0 for offset in (load_delay_offsets(snapshot.directory) or {}).values()):
            yield "delayed messages were delivered"


def _has_units(snapshot: StoreSnapshot, topic: str, queue_id: int) -> bool:
    simple = snapshot.consume_queue(topic, queue_id)
    if simple is not None and simple.end_of_units() > 0:
        return True
    batch = snapshot.batch_consume_queue(topic, queue_id)
    return batch is not None and len(batch.read_units()) > 0
