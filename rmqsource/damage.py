"""What a read says of damage that it passes over: to whoever asks for it, or to the log."""

from __future__ import annotations

import logging
from typing import Callable

logger = logging.getLogger(__name__)
OnDamage = Callable[[str], None]
"""Called with what is damaged, and what became of it."""


def log_damage(text: str) -> None:
    """Warn of damage, where nobody asks for it."""
    logger.warning("%s", text)
