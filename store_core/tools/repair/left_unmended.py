"""What recovery leaves as it is, though ``check`` reports it: told from names, sizes, headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.files.store_directory import StoreDirectory
from store_core.index.index_file import IndexFile
from store_core.store_snapshot import StoreSnapshot
from store_core.tools.check.file_check import check_checkpoint, check_files
from store_core.tools.check.finding_kinds import FindingKind, Severity
from store_core.tools.check.findings import Findings
from store_core.tools.check.index_structure import misplaced_ends

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.recovery.recovery import LogRecovery

_LOST = (Severity.DAMAGE, Severity.REPAIRABLE)


@dataclass(frozen=True)
class Unmended:
    """A file that is not as it has to be, what is wrong, and what to do."""

    path: str
    found: str
    advice: str


def left_unmended(
    root: str, config: MessageStoreConfig, found: LogRecovery, dropped: Collection[str] = ()
) -> tuple[Unmended, ...]:
    """Return what ``check`` will say of files that need not be read for it.

    Parameters
    ----------
    root, config
        The store, recovered, or as `plan_log` found it.
    found
        What was done to its log, or would be.
    dropped
        Names of index files that would be made anew.
    """
    findings = Findings()
    with StoreSnapshot(StoreDirectory(root), config, found.log_end) as view:
        check_files(view, findings)
        check_checkpoint(view, found.last_timestamp, findings)
        if config.message_index_enable and view.index.sizes is not None:
            for path, reason in view.index.unusable:
                if path.rpartition("/")[2] not in dropped:
                    findings.add(FindingKind.INDEX_UNUSABLE, path, examples=[reason])
            _check_index_headers(view, findings, dropped)
    return tuple(
        Unmended(one.place, f"{one.kind.label}: {'; '.join(one.examples)}", one.advice)
        for one in findings.sorted()
        if one.severity in _LOST
    )


def _check_index_headers(view: StoreSnapshot, findings: Findings, dropped: Collection[str]) -> None:
    """Note files whose first or last entry is not the one that the header names."""
    for path, _ in view.index.files:
        if view.index.sizes is None or path.rpartition("/")[2] in dropped:
            continue
        with view.directory.open(path) as source:
            wrong = misplaced_ends(IndexFile(source, *view.index.sizes))
        if wrong:
            findings.add(FindingKind.INDEX_HEADER, path, position=0, examples=wrong)
