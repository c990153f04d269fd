# SPDX-License-Identifier: Apache-2.0
"""An entry of a directory listing."""

from __future__ import annotations

from typing import NamedTuple


class FileEntry(NamedTuple):
    """A listed file or directory; ``size`` in bytes, 0 for directories."""

    name: str
    path: str
    size: int
    is_dir: bool
    modified_ms: int
    not_a_file: str = ""
    """Its kind, if neither a regular file nor a directory: "a FIFO", "a link to …"."""
