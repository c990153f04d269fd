"""What master and slave send each other: reports of offsets, frames of the commit log.

There is no handshake. Source: RocketMQ ``DefaultHAClient``, ``DefaultHAConnection`` (release
5.3.3; the same in 4.9.7).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

REPORT = RecordLayout(
    "report",
    [
        ("max_offset", "i8"),  # 0  end of the slave's commit log
    ],
)
"""Slave to master. The first one on a connection also says where the transfer begins; 0: at the
beginning of the master's last segment."""

TRANSFER_HEADER = RecordLayout(
    "transfer_header",
    [
        ("offset", "i8"),  # 0  physical offset of the first byte of the body
        ("body_size", "i4"),  # 8  bytes of the commit log that follow; 0: a heartbeat
    ],
)
"""Master to slave."""

MAX_BODY_BYTES = (4 << 20) - TRANSFER_HEADER.size
"""A slave of RocketMQ reads into a buffer of 4 MiB, and takes whole frames only."""
