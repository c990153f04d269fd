# SPDX-License-Identifier: Apache-2.0
"""Types of the callbacks to which long work reports its progress."""

from __future__ import annotations

from typing import Callable

Progress = Callable[[int, int], None]
"""Called with the amount done and the total, in a unit that the work chooses."""
StageProgress = Callable[[str, int, int], None]
"""Called with the stage of the work, the amount of it done, and its total."""
