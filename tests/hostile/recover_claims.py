# SPDX-License-Identifier: Apache-2.0
"""The damage ``recover`` does not check for, as the docs say; ``check`` may find it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from store_core import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_file import read_index_header
from store_core.index.index_file_set import flushed_files, names_and_sizes
from store_core.state.checkpoint import StoreCheckpoint, load_checkpoint
from tests.hostile.cases import OWN_ERRORS, Case

_UNITS = frozenset(
    {
        *("record without unit", "queue missing", "queue order", "ext unit", "ext missing"),
        *("unit empty", "unit wrong", "unit moved"),
    }
)
_ENTRIES = frozenset(("index chain", "index entry", "index time", "index behind end"))
"""Findings that need whole files of the queues or of the index to be read."""
_TAGS = frozenset(("unit tags", "unit delivery", "ext unit", "ext missing"))


def flushed_index(case: Case) -> dict[str, int]:
    """Return the index files known to be flushed, and where in the log each of them ends."""
    config = MessageStoreConfig.from_properties(case.base.properties if case.config else {})
    directory = StoreDirectory(str(case.root))
    ends = {}
    try:
        checkpoint = load_checkpoint(directory) or StoreCheckpoint()
        names, sizes = names_and_sizes(directory, config, last_exit_ok=False)
        flushed_ms = checkpoint.index_msg_timestamp or 0
        for name in flushed_files(directory, names, sizes, flushed_ms) if sizes else ():
            path = directory.resolve("index", name)
            with directory.open(path) as source:
                ends[path] = read_index_header(source).end_phy_offset
    except (*OWN_ERRORS, OSError):
        return {}
    return ends


def may_be_left(
    finding: Mapping[str, Any], row: Mapping[str, Any], flushed: Mapping[str, int]
) -> bool:
    """Return whether README says that ``recover`` does not check for such a finding.

    Parameters
    ----------
    row
        A row of ``recover``'s output.
    flushed
        See `flushed_index`.
    """
    kind, place = finding["kind"], finding["commit_log_offset"] or 0
    is_clean = row["was_stopped_cleanly"]
    if kind.startswith(("settings ", "timer ")):  # files below config, and the timer's files
        return True
    if kind in _TAGS:  # in a tags code it sees only that a crash took its last bytes
        return True
    if kind == "index header":  # it compares the first and the last entry, and does not count slots
        return all(text.startswith("fewer than") for text in finding["examples"])
    if kind in _ENTRIES and finding["position"]:  # otherwise the finding is about the header
        # It does not compare keys: a record's damaged properties may give another hash.
        is_of_record = kind == "index entry" and place in row["records"] | row["no_messages"]
        is_before = place < row["checked_from"]  # of an entry it sees only what a crash leaves
        return is_clean or finding["place"] in flushed or is_of_record or is_before
    if kind == "not found by key":  # of a key that is not compared, or a flushed file
        is_flushed = place <= max(flushed.values(), default=-1)
        return is_clean or is_flushed or row["index_has_other_keys"]
    if kind == "unit behind end":  # a unit that begins in the log and has a wrong size
        return place < (row["log_end"] if is_clean else row["checked_from"])
    return kind in _UNITS and (is_clean or place < row["checked_from"])
