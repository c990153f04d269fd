# SPDX-License-Identifier: Apache-2.0
"""The directories of a DLedger node's log, and which of its entries are committed."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.codec.dledger_entries import entry_headers, headers_ok
from store_core.errors import StoreKindError
from store_core.layout import DLEDGER_CHECKPOINT_FILE, DLEDGER_DATA_DIR
from store_core.log.commit_log import scan_frames
from store_core.log.log_end import LogEnd
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from typing import Callable

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.segment_list import Segment
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog

_NODE = re.compile(r"dledger-.+")
_COMMITTED = re.compile(rb"^committedIndex\s*=\s*(-?[0-9]{1,19})\s*$", re.MULTILINE)
_SPLITTER = ","
UNCOMMITTED = "the entries after it are not known to be committed by the DLedger group"


def dledger_node(directory: StoreDirectory, config: MessageStoreConfig) -> str | None:
    """Return the name of the directory of the node's files; None if there is none.

    Source: DLedger ``DLedgerConfig.getDefaultPath`` (0.3.1.2).

    Raises
    ------
    StoreKindError
        There are several, and ``dLegerSelfId`` does not say which is the broker's.
    """
    listed = directory.list(directory.resolve())
    names = [e.name for e in listed if e.is_dir and _NODE.fullmatch(e.name)]
    if config.d_leger_self_id and names:
        return f"dledger-{config.d_leger_self_id.strip()}"
    if len(names) > 1:
        raise StoreKindError(
            f"there are logs of several nodes of a DLedger group ({', '.join(names)}), but a "
            "broker has only one: choose it with option dLegerSelfId, such as "
            f"dLegerSelfId={names[0].partition('-')[2]}",
            directory.resolve(),
        )
    return names[0] if names else None


def dledger_directories(directory: StoreDirectory, config: MessageStoreConfig) -> list[str]:
    """Return the directories of entries: ``storePathDLedgerCommitLog``, or the node's ``data``."""
    if config.store_path_d_ledger_commit_log:
        names = [n.strip() for n in config.store_path_d_ledger_commit_log.split(_SPLITTER)]
        return list(dict.fromkeys(directory.resolve(name) for name in names if name))
    node = dledger_node(directory, config)
    return [directory.resolve(node, DLEDGER_DATA_DIR)] if node else []


def committed_end(
    log: ReadableLog,
    end: LogEnd,
    directory: StoreDirectory,
    config: MessageStoreConfig,
    last_dispatched: Callable[[], int],
) -> LogEnd:
    """Return the end of the entries that are known to be committed.

    An entry that most nodes do not have yet may be replaced by one of the next leader, so a broker
    does not show it. Known to be committed are entries up to the index in the node's checkpoint
    (written every few seconds and at a stop), dispatched ones, all if ``dLegerPeers`` is one node.

    Parameters
    ----------
    last_dispatched
        Returns the start of the last record that is in a queue; -1 if none is.
    """
    last = _header_at(log, end.proven_start, end.end_offset)
    if last is None or _is_alone(config):
        return end
    committed = _committed_index(directory, config)
    if 0 <= int(last["index"]) <= committed:
        return end
    dispatched = last_dispatched()
    if dispatched >= end.proven_start:
        return end
    stop = max(_end_of_entries(log, committed, dispatched, end.end_offset), _first_entry(log))
    proven = dispatched if stop > dispatched else -1
    return LogEnd(stop, UNCOMMITTED, proven, stop)


def _is_alone(config: MessageStoreConfig) -> bool:
    return len([peer for peer in (config.d_leger_peers or "").split(";") if peer.strip()]) == 1


def _committed_index(directory: StoreDirectory, config: MessageStoreConfig) -> int:
    node = dledger_node(directory, config)
    text = directory.read_bytes(directory.resolve(node, DLEDGER_CHECKPOINT_FILE)) if node else None
    found = _COMMITTED.search(text or b"")
    return int(found[1]) if found else -1


def _header_at(log: ReadableLog, offset: int, end_offset: int) -> Any:
    """Return the header before a record; None if there is none, or it does not fit the record."""
    segment = log.segments.find(offset) if offset >= 0 else None
    if segment is None or not segment.header_bytes:
        return None
    for frames in scan_frames(log, offset, offset + 1, end_offset, on_gap=skip_gap):
        headers = entry_headers(frames)
        return headers[0] if headers_ok(headers, frames)[0] else None
    return None


def _end_of_entries(log: ReadableLog, index: int, dispatched: int, end_offset: int) -> int:
    """Return the end of the last record that is dispatched, or whose entry is up to ``index``."""
    segments = [s for s in log.segments if s.header_bytes and s.from_offset < end_offset]
    found = 0
    for segment in segments[_first_to_read(log, segments, index, dispatched, end_offset) :]:
        start = max(segment.from_offset, dispatched)
        stop = segment.from_offset + log.segments.file_size
        for frames in scan_frames(log, start, stop, end_offset, on_gap=skip_gap):
            headers, own = entry_headers(frames), frames.column("commit_log_offset")
            good = headers_ok(headers, frames)
            known = (good & (headers["index"] <= index)) | (own <= dispatched)
            if known.any():
                last = int(np.flatnonzero(known)[-1])
                found = int(own[last]) + int(frames.column("total_size")[last])
            if (good & ~known).any():
                return found
    return found


def _first_to_read(
    log: ReadableLog, segments: list[Segment], index: int, dispatched: int, end_offset: int
) -> int:
    """Return the number of the segment that contains the entry, or of one before it."""
    low = max(bisect_right([s.from_offset for s in segments], dispatched) - 1, 0)
    high = len(segments)
    while low + 1 < high:
        middle = (low + high) // 2
        first = segments[middle].from_offset + segments[middle].header_bytes
        header = _header_at(log, first, end_offset)
        if header is None or int(header["index"]) > index:
            high = middle
        else:
            low = middle
    return low


def _first_entry(log: ReadableLog) -> int:
    return min((s.from_offset for s in log.segments if s.header_bytes), default=0)
