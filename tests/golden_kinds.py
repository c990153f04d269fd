# SPDX-License-Identifier: Apache-2.0
"""Stores that are not plain files, written by real brokers (golden/kinds/README.md)."""

from __future__ import annotations

from pathlib import Path

from tests.golden_store import GOLDEN_DIR, unpack

KINDS = tuple(sorted(path.parent.name for path in GOLDEN_DIR.glob("kinds/*/store.tar.gz")))
IN_DATABASE = tuple(name for name in KINDS if name.startswith("rocksdb"))
OPTIONS = {"maxHashSlotNum": "100", "maxIndexNum": "400"}
MESSAGES = {"orders": 60, "stock": 30}


def unpack_kind(name: str, directory: Path) -> Path:
    """Unpack a store below a directory; return its root."""
    unpack(GOLDEN_DIR / "kinds" / name / "store.tar.gz", directory)
    return directory / "store"


def unpack_option(name: str, directory: Path) -> Path:
    """Unpack a 5.5.1 store with an option set (golden/options-551/README.md); return its root."""
    unpack(GOLDEN_DIR / "options-551" / name / "store.tar.gz", directory)
    return directory / "store"
