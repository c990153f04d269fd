"""How a slave follows its master."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SILENCE_S = 1.2
"""Under flow control a master of RocketMQ sends nothing for up to a second."""


@dataclass(frozen=True)
class FollowSettings:
    """How a master is followed; times in seconds.

    Attributes
    ----------
    address
        ``HOST:PORT`` of the master.
    ack
        ``flushed``, ``appended`` or ``never``.
    heartbeat_s, housekeeping_s
        ``haSendHeartbeatInterval``, ``haHousekeepingInterval``.
    """

    address: str
    ack: str
    heartbeat_s: float
    housekeeping_s: float

    @property
    def answer_s(self) -> float:
        """A master sends something within this time."""
        return self.heartbeat_s + 2 * LEAST_SILENCE_S
