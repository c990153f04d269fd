"""The ``checkpoint`` file.

Source: RocketMQ ``StoreCheckpoint`` (release 5.5.1; 5.3.3 leaves the last field as it is,
4.x writes the first three only).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

CHECKPOINT = RecordLayout(
    "checkpoint",
    [
        ("physic_msg_timestamp", "i8"),  # 0   store time up to which the log is flushed, ms
        ("logics_msg_timestamp", "i8"),  # 8   store time of the last dispatched record
        ("index_msg_timestamp", "i8"),  # 16  end time of the last full index file
        ("master_flushed_offset", "i8"),  # 24  5.x
        ("confirm_phy_offset", "i8"),  # 32  5.x: start of the last record found by recovery
        (
            "logics_physical_offset",
            "i8",
        ),  # 40  5.5.0 on: ... whose queues are flushed
    ],
)
CHECKPOINT_FILE_BYTES = 4096
