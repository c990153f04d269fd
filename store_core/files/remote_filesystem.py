# SPDX-License-Identifier: Apache-2.0
"""Open a remote filesystem with pyarrow, or with fsspec if pyarrow does not know it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import PythonFile
from pyarrow.fs import FileInfo, FileSelector, FileType, FSSpecHandler

from store_core.errors import StoreReadError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.files.store_uri import StoreUri

_HDFS = ("hdfs", "viewfs")
_TIMES = ("mtime", "modification_time", "modificationTime", "LastModified", "last_modified")
_LEAST_MS = 10**11  # a time in seconds stays below this for three thousand years


def open_filesystem(uri: StoreUri) -> tuple[Any, str]:
    """Return a ``pyarrow.fs`` filesystem and the path of the store in it.

    ``hdfs:`` needs a Hadoop client (``libhdfs``), or else the package hdfs-native. Schemes that
    pyarrow does not know (``webhdfs:``) are opened with fsspec, if it is installed.

    Raises
    ------
    StoreReadError
        No library opens this URI; the text says what is missing.
    """
    import pyarrow as pa  # noqa: PLC0415 (needed for remote stores only)
    from pyarrow.fs import FileSystem  # noqa: PLC0415

    location = uri.location
    try:
        filesystem, root = FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ImportError, ValueError) as err:
        text = uri.hide_in(str(err))
    else:
        return filesystem, root
    scheme = urlsplit(location).scheme.lower()
    try:
        return _open_with_fsspec(scheme, location)
    except ImportError as err:
        missing = "hdfs-native" if scheme in _HDFS else "fsspec"
        text = f"{text}; without pyarrow, package {missing} is required ({uri.hide_in(str(err))})"
    except Exception as err:
        text = f"{text}; fsspec: {uri.hide_in(str(err))}"
    raise StoreReadError(f"no filesystem can open this URI: {text}", uri)


def _open_with_fsspec(scheme: str, location: str) -> tuple[Any, str]:
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415 (needed for remote stores only)

    if scheme in _HDFS:
        from hdfs_native import fsspec as hdfs  # noqa: PLC0415 (an extra)

        kind = hdfs.HdfsFileSystem if scheme == "hdfs" else hdfs.ViewfsFileSystem
        place = urlsplit(location)
        opened = kind(place.hostname, place.port, skip_instance_cache=True)
        return PyFileSystem(ExactHandler(opened)), place.path or "/"
    from fsspec.core import url_to_fs  # noqa: PLC0415 (an extra)

    opened, root = url_to_fs(location, use_listings_cache=False, skip_instance_cache=True)
    return PyFileSystem(ExactHandler(opened)), root


class ExactHandler(FSSpecHandler):  # type: ignore[misc]
    """Lists a directory with one request, and reads exactly the requested ranges.

    pyarrow's own handler makes four requests per listing, and fsspec's files read megabytes ahead.
    """

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Return the entries of a directory, and of those below it if the selector is recursive."""
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
        """Open a file whose reads request exactly their bytes."""
        return PythonFile(self.fs.open(path, "rb", cache_type="none"), mode="r")


def _seconds(time: Any) -> float:
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time) / 1000 if float(time) >= _LEAST_MS else float(time)
