# SPDX-License-Identifier: Apache-2.0
"""Make a new valid store of everything that is readable in a damaged one."""

from __future__ import annotations

from store_core.tools.salvage.salvage import (
    SalvageOptions,
    checked_target,
    report_path,
    salvage_store,
)
from store_core.tools.salvage.salvage_report import SalvageReport

__all__ = ["SalvageOptions", "SalvageReport", "checked_target", "report_path", "salvage_store"]
