# SPDX-License-Identifier: Apache-2.0
"""The stores that the benchmarks read; each is written once and kept in the work directory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.make_store import make_store

_FORMAT = 1
"""Part of the directory name; raise it when what ``make_store`` writes changes."""


@dataclass(frozen=True)
class StoreSpec:
    """A number of messages with one body size."""

    messages: int
    body_bytes: int

    @property
    def label(self) -> str:
        """Name in the table of figures."""
        return f"{self.messages:,} x {self.body_bytes} B"

    @property
    def name(self) -> str:
        """Directory name."""
        return f"store-{_FORMAT}-{self.messages}x{self.body_bytes}"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the stores of a run; ``written`` (10 GB) is written to measure the memory it takes.

    The replicated store has 2 GiB.
    """

    short: StoreSpec
    long: StoreSpec
    followed: StoreSpec
    ten_times: StoreSpec
    written: StoreSpec
    replicated: StoreSpec


FULL = Sizes(
    StoreSpec(1_000_000, 100),
    StoreSpec(600_000, 1024),
    StoreSpec(1_000_000, 1024),
    StoreSpec(10_000_000, 100),
    StoreSpec(8_500_000, 1024),
    StoreSpec(1_790_000, 1024),
)
QUICK = Sizes(
    StoreSpec(20_000, 100),
    StoreSpec(12_000, 1024),
    StoreSpec(12_000, 1024),
    StoreSpec(200_000, 100),
    StoreSpec(20_000, 1024),
    StoreSpec(12_000, 1024),
)


def ensure_store(work: Path, spec: StoreSpec) -> Path:
    """Return the store; write it if it does not exist."""
    root = work / "stores" / spec.name
    if not root.exists():
        unfinished = root.with_name(f"{spec.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_store(unfinished, messages=spec.messages, body_bytes=spec.body_bytes)
        unfinished.rename(root)
    return root
