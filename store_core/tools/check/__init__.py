# SPDX-License-Identifier: Apache-2.0
"""Verification of a whole store."""

from store_core.tools.check.finding_kinds import FindingKind, Severity
from store_core.tools.check.findings import CheckCounts, CheckReport, Finding, Verdict
from store_core.tools.check.store_check import check_store

__all__ = [
    "CheckCounts",
    "CheckReport",
    "Finding",
    "FindingKind",
    "Severity",
    "Verdict",
    "check_store",
]
