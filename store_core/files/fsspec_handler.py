"""Filesystems of fsspec for ``pyarrow.fs``, asked for what is needed and no more."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileType, FSSpecHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMES = ("mtime", "modification_time", "modificationTime", "LastModified", "last_modified")
_LEAST_MS = 10**11  # a time in seconds is less for three thousand years


class ExactHandler(FSSpecHandler):  # type: ignore[misc]
    """Lists a directory with one request, and reads ranges as they are asked for.

    pyarrow's own handler asks four times for a listing, and files of fsspec read megabytes ahead.
    """

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Return what lies in a directory; that below it too where the selector says so."""
        try:
            found = self.fs.ls(selector.base_dir, detail=True)
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        infos = [self._create_file_info(info["name"], info) for info in found]
        base = selector.base_dir.strip("/")
        infos = [info for info in infos if info.path.strip("/") != base]
        if selector.recursive:
            for info in list(infos):
                if info.type == FileType.Directory:
                    below = FileSelector(info.path, allow_not_found=True, recursive=True)
                    infos += self.get_file_info_selector(below)
        return infos

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> FileInfo:
        kinds = {"file": FileType.File, "directory": FileType.Directory}
        kind = kinds.get(info["type"].lower(), FileType.Unknown)
        size = info["size"] if kind == FileType.File else None
        time = next((info[name] for name in _TIMES if info.get(name)), None)
        return FileInfo(path, kind, size=size, mtime=None if time is None else _seconds(time))

    def open_input_file(self, path: str) -> PythonFile:
        """Open a file whose reads are requests of just those bytes."""
        return PythonFile(self.fs.open(path, "rb", cache_type="none"), mode="r")


def _seconds(time: Any) -> float:
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time) / 1000 if float(time) >= _LEAST_MS else float(time)
