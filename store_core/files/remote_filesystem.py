"""Which library opens a remote filesystem: pyarrow, or for what it does not know, fsspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from store_core.errors import StoreReadError

if TYPE_CHECKING:
    from store_core.files.store_uri import StoreUri

_HDFS = ("hdfs", "viewfs")


def open_filesystem(uri: StoreUri) -> tuple[Any, str]:
    """Return a ``pyarrow.fs`` filesystem and the path of the store in it.

    ``hdfs:`` needs a Hadoop client (``libhdfs``), or else the package hdfs-native. What pyarrow
    does not know (``webhdfs:``) is opened with fsspec, if that is there.

    Raises
    ------
    StoreReadError
        Nothing opens this URI; the text says what would.
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
        text = f"{text}; without pyarrow it would need package {missing} ({uri.hide_in(str(err))})"
    except Exception as err:
        text = f"{text}; fsspec: {uri.hide_in(str(err))}"
    raise StoreReadError(f"no filesystem opens this URI: {text}", uri)


def _open_with_fsspec(scheme: str, location: str) -> tuple[Any, str]:
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415 (needed for remote stores only)

    from store_core.files.fsspec_handler import ExactHandler  # noqa: PLC0415

    if scheme in _HDFS:
        from hdfs_native import fsspec as hdfs  # noqa: PLC0415 (an extra)

        kind = hdfs.HdfsFileSystem if scheme == "hdfs" else hdfs.ViewfsFileSystem
        place = urlsplit(location)
        opened = kind(place.hostname, place.port, skip_instance_cache=True)
        return PyFileSystem(ExactHandler(opened)), place.path or "/"
    from fsspec.core import url_to_fs  # noqa: PLC0415 (an extra)

    opened, root = url_to_fs(location, use_listings_cache=False, skip_instance_cache=True)
    return PyFileSystem(ExactHandler(opened)), root
