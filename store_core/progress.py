"""Types of the callbacks to which long work reports its progress."""

from __future__ import annotations

from typing import Callable

Progress = Callable[[int, int], None]
"""Called with what is done and the total; the unit is that of whoever calls it."""
StageProgress = Callable[[str, int, int], None]
"""Called with the stage of the work, what of it is done, and the total."""
