"""The stores that the benchmarks read, written once and kept below the work directory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.make_store import make_store

_FORMAT = 1
"""Part of the directory name; raise it when what ``make_store`` writes changes."""


@dataclass(frozen=True)
class StoreSpec:
    """Messages of one body size."""

    messages: int
    body_bytes: int

    @property
    def label(self) -> str:
        """What the table of figures calls it."""
        return f"{self.messages:,} x {self.body_bytes} B"

    @property
    def name(self) -> str:
        """Directory name."""
        return f"store-{_FORMAT}-{self.messages}x{self.body_bytes}"


@dataclass(frozen=True)
class Sizes:
    """The stores of a run, and the 10 GB that are written to tell the memory it takes.

    The one that is replicated has 2 GiB.
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
    """Return the store, writing it if it is not there."""
    root = work / "stores" / spec.name
    if not root.exists():
        unfinished = root.with_name(f"{spec.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_store(unfinished, messages=spec.messages, body_bytes=spec.body_bytes)
        unfinished.rename(root)
    return root
