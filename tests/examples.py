# SPDX-License-Identifier: Apache-2.0
"""Number of examples of a property test: few in the fast tier, all in the full one."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return ``max_examples`` for the profile of this run."""
    if settings.get_current_profile_name() != "quick":
        return count
    return min(count, settings.get_profile("quick").max_examples)
