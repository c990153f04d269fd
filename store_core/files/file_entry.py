"""What a listing knows of a file or directory."""

from __future__ import annotations

from typing import NamedTuple


class FileEntry(NamedTuple):
    """What a listing knows of a file or directory; ``size`` in bytes, 0 for directories."""

    name: str
    path: str
    size: int
    is_dir: bool
    modified_ms: int
    not_a_file: str = ""
    """What it is instead of a regular file or a directory: "a FIFO", "a link to …"."""
