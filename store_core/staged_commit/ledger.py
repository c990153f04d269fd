"""Which jobs are in the store: the last one, and the last one of each application.

``config/sinkCommits.json`` lies beside the broker's own files, so that a copy of the store's
configuration takes it along; a broker does not look at it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, write_error
from store_core.files.store_directory import StoreDirectory
from store_core.layout.store_paths import CONFIG_DIR
from store_core.staged_commit.intent import Commit, commit_from_json, commit_to_json, read_json

if TYPE_CHECKING:
    from store_core.staged_commit.crash_points import CrashPoints

LEDGER_FILE = "sinkCommits.json"
_APPLICATIONS, _LAST, _FORMAT_KEY, _FORMAT = "applications", "last", "format", 1


class Ledger:
    """The ledger of one store; read anew with every question. Nothing is ever pruned."""

    def __init__(self, root: str) -> None:
        self.path = os.path.join(root, CONFIG_DIR, LEDGER_FILE)
        self._directory = StoreDirectory(root)

    def last_commit(self) -> Commit | None:
        """Return the newest job; None before the first."""
        last: Commit | None = self._load()[_LAST]
        return last

    def last_version(self, application: str) -> int | None:
        """Return the newest version that an application committed; None before its first."""
        version: int | None = self._load()[_APPLICATIONS].get(application)
        return version

    def is_committed(self, application: str | None, version: int | None) -> bool:
        """Return whether a version, or a later one, is in the store.

        The ledger is read in any case: one that is damaged must be found before a commit, not
        when it is to be noted.
        """
        applications = self._load()[_APPLICATIONS]
        if application is None or version is None:
            return False
        last = applications.get(application)
        return last is not None and version <= last

    def record(self, commit: Commit, steps: CrashPoints) -> None:
        """Note a job; one that is noted already changes nothing."""
        values = self._load()
        applications = values[_APPLICATIONS]
        if commit.application is not None:
            known = applications.get(commit.application, -1)
            applications[commit.application] = max(known, commit.version or 0)
        last = values[_LAST]
        newest = commit if last is None or last.end_offset <= commit.end_offset else last
        values[_LAST] = commit_to_json(newest)
        try:
            make_directory(os.path.dirname(self.path))
        except OSError as err:
            raise write_error(err, self.path) from err
        steps.replace_file("ledger", self.path, json.dumps(values, indent=1).encode())

    def _load(self) -> dict[str, Any]:
        values = read_json(self.path, self._directory) or {}
        applications, last = values.get(_APPLICATIONS) or {}, values.get(_LAST)
        if not isinstance(applications, dict) or not all(
            type(version) is int for version in applications.values()
        ):
            raise StoreFormatError(
                f"not what a commit writes: {_APPLICATIONS} is no object of numbers", self.path
            )
        return {
            _FORMAT_KEY: _FORMAT,
            _APPLICATIONS: applications,
            _LAST: None if last is None else commit_from_json(last, self.path),
        }
