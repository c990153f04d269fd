# SPDX-License-Identifier: Apache-2.0
"""DLedger logs made of given records, for tests to damage, cut and compare."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from store_core.layout import (
    COMMIT_LOG_OFFSET_AT,
    DLEDGER_BLANK,
    DLEDGER_BLANK_MAGIC,
    DLEDGER_ENTRY,
    DLEDGER_MAGIC,
)

HEADER = DLEDGER_ENTRY.size


class DLedgerFactory:
    """Appends records as entries, in memory, as a leader does.

    ``data`` is the log from ``first_offset`` on, without its unwritten rest; ``spans`` are the
    offsets and sizes of its records.
    """

    def __init__(self, segment_bytes: int = 4096, first_offset: int = 0) -> None:
        self.segment_bytes, self.first_offset = segment_bytes, first_offset
        self.data = bytearray()
        self.spans: list[tuple[int, int]] = []
        self.index = 0

    @property
    def end_offset(self) -> int:
        """Where the next entry goes if it fits the segment."""
        return self.first_offset + len(self.data)

    def add(self, record: bytes, term: int = 0, **header: Any) -> int:
        """Append a record after setting its own offset to fit; return that offset."""
        size = HEADER + len(record)
        left = self.segment_bytes - self.end_offset % self.segment_bytes
        if size + DLEDGER_BLANK.size > left:
            blank = DLEDGER_BLANK.pack(magic=DLEDGER_BLANK_MAGIC, size=left)
            self.data += blank + bytes(left - len(blank))
        pos = self.end_offset
        values = {
            "magic": DLEDGER_MAGIC,
            "size": size,
            "index": self.index,
            "term": term,
            "pos": pos,
            "channel": 0,
            "chain_crc": 0,
            "body_crc": 0,
            "body_size": len(record),
        }
        own = (pos + HEADER).to_bytes(8, "big")
        placed = record[:COMMIT_LOG_OFFSET_AT] + own + record[COMMIT_LOG_OFFSET_AT + 8 :]
        self.data += DLEDGER_ENTRY.pack(**{**values, **header}) + placed
        self.spans.append((pos + HEADER, len(record)))
        self.index += 1
        return pos + HEADER

    def add_all(self, records: Iterable[bytes], term: int = 0) -> DLedgerFactory:
        """Append records."""
        for record in records:
            self.add(record, term)
        return self

    def write(self, root: Path, node: str = "n0", committed: int | None = None) -> Path:
        """Write a node's files below a store root; by default all entries are committed."""
        data = root / f"dledger-{node}" / "data"
        data.mkdir(parents=True, exist_ok=True)
        for at in range(0, len(self.data), self.segment_bytes):
            part = bytes(self.data[at : at + self.segment_bytes])
            path = data / f"{self.first_offset + at:020d}"
            path.write_bytes(part + bytes(self.segment_bytes - len(part)))
        last = self.index - 1 if committed is None else committed
        text = f"committedIndex={last}\nendIndex={self.index - 1}\n"
        (data.parent / "checkpoint").write_text(text)
        return data
