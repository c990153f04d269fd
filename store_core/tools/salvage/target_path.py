"""Where a salvaged store may be made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from store_core.errors import StoreConfigError
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.log.commit_log import commit_log_directories

if TYPE_CHECKING:
    from store_core.store_snapshot import StoreSnapshot


def checked_target(snapshot: StoreSnapshot, target: str) -> Path:
    """Return the absolute path of a new store, if one may be made there.

    Parameters
    ----------
    snapshot
        The store that is salvaged.
    target
        A path at which there should be nothing, or an empty directory.

    Raises
    ------
    StoreConfigError
        It is no local path, something is there, or one of the two lies inside the other.
    """
    directory = StoreDirectory(target)
    if not directory.is_local:
        raise StoreConfigError(f"{directory.uri}: a store can be written on this machine only")
    path = Path(os.path.abspath(local_path(target)))  # noqa: PTH100 (links stay as they are)
    if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
        raise StoreConfigError(f"{path} is there already; give a new directory")
    if snapshot.directory.is_local:
        sources = [
            snapshot.directory.resolve(),
            *commit_log_directories(snapshot.directory, snapshot.config),
        ]
        real = os.path.realpath(path)
        for source in map(os.path.realpath, sources):
            if os.path.commonpath([source, real]) in {source, real}:
                raise StoreConfigError(
                    f"{path} and {source} lie one inside the other; give another directory"
                )
    return path
