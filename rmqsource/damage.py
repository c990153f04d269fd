# SPDX-License-Identifier: Apache-2.0
"""How a read reports the damage that it skips: to its caller, or by default to the log."""

from __future__ import annotations

import logging
from typing import Callable

logger = logging.getLogger(__name__)
OnDamage = Callable[[str], None]
"""Called with a sentence that says what is damaged and what the read did about it."""


def log_damage(text: str) -> None:
    """Log damage as a warning; the default."""
    logger.warning("%s", text)
