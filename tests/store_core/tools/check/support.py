# SPDX-License-Identifier: Apache-2.0
"""Check stores of tests and name the findings."""

from __future__ import annotations

from pathlib import Path

from store_core.config.message_store_config import MessageStoreConfig
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import CheckReport, check_store


def checked(root: Path, properties: dict[str, str] | None = None) -> CheckReport:
    config = MessageStoreConfig.from_properties(properties or {})
    with StoreSnapshot(root, config) as view:
        return check_store(view)


def kinds(report: CheckReport) -> dict[str, int]:
    """Return the number of findings of each kind, without those for information."""
    found: dict[str, int] = {}
    for finding in report.findings:
        if finding.severity.value != "information":
            found[finding.kind.name] = found.get(finding.kind.name, 0) + finding.count
    return found


def all_kinds(report: CheckReport) -> set[str]:
    return {finding.kind.name for finding in report.findings}
