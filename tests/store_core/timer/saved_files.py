"""The timer's files as they are at one moment, to be put back: what a crash leaves."""

from __future__ import annotations

import os
from pathlib import Path

from store_core.files.file_writing import create_file, data_extents

_NAMES = ("timerwheel", "config/timercheck")


class SavedFiles:
    """A copy of the timer's files below a root; holes of the wheel stay holes.

    Attributes
    ----------
    parts
        "log", "wheel", "check": path below the root -> its size and its data by position.
    """

    def __init__(self, root):
        self.root = Path(root)
        log = sorted(p.relative_to(root).as_posix() for p in Path(root, "timerlog").glob("*"))
        self.parts = {
            "log": {name: _content(self.root / name) for name in log},
            "wheel": _existing(self.root, "timerwheel"),
            "check": _existing(self.root, "config/timercheck"),
        }

    def restore(self, *names):
        """Put parts back as they were: files that came later are gone."""
        for name in names:
            for path in self._paths_of(name):
                path.unlink(missing_ok=True)
            for path, (size, extents) in self.parts[name].items():
                _write(self.root / path, size, extents)

    def _paths_of(self, name):
        if name == "log":
            return sorted(self.root.glob("timerlog/*"))
        return [self.root / (_NAMES[0] if name == "wheel" else _NAMES[1])]


def _existing(root, name):
    return {name: _content(root / name)} if (root / name).exists() else {}


def _content(path):
    size = path.stat().st_size
    with path.open("rb") as file:
        extents = []
        for start, stop in data_extents(file.fileno(), size):
            file.seek(start)
            extents.append((start, file.read(stop - start)))
        return size, extents


def _write(path, size, extents):
    path.parent.mkdir(exist_ok=True)
    os.close(create_file(str(path), size))
    with path.open("r+b") as file:
        for start, data in extents:
            file.seek(start)
            file.write(data)
