"""Verification of a whole store."""

from store_core.tools.check.finding_kinds import FindingKind, Severity
from store_core.tools.check.findings import CheckCounts, CheckReport, Finding, Verdict
from store_core.tools.check.store_check import Progress, check_store

__all__ = [
    "CheckCounts",
    "CheckReport",
    "Finding",
    "FindingKind",
    "Progress",
    "Severity",
    "Verdict",
    "check_store",
]
