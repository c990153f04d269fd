"""Packages of the extra ``notebook``, imported when they are needed, with advice where missing."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the text says what to install."""


def notebook_package(name: str) -> Any:
    """Import ``pandas``, ``matplotlib`` or a module of theirs.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        package = name.partition(".")[0]
        if (err.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(
            f"this needs the Python package {package!r}: pip install 'rmqsource[notebook]'",
            name=package,
        ) from err
