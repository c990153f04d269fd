"""How many examples a property test takes: few in the fast tier, all in the full one."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return what ``max_examples`` is under the profile that the run was given."""
    if settings.get_current_profile_name() != "quick":
        return count
    return min(count, settings.get_profile("quick").max_examples)
