# SPDX-License-Identifier: Apache-2.0
"""Import packages of the extras on demand, with advice if one is missing."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the text says what to install."""


def install_hint(extra: str) -> str:
    """Return how to install an extra from a clone or a wheel, as no index has the package."""
    return (
        f"pip install '.[{extra}]' in a clone, or pip install 'rmqsource-VERSION-py3-none-any.whl"
        f"[{extra}]' with the path of the wheel"
    )


def missing_package(package: str, extra: str) -> str:
    """Return the message for a missing package."""
    return f"this needs the Python package {package!r}: {install_hint(extra)}"


def notebook_package(name: str) -> Any:
    """Import ``pandas``, ``matplotlib`` or a module of theirs.

    Raises
    ------
    MissingExtraError
        The package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        package = name.partition(".")[0]
        if (err.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(missing_package(package, "notebook"), name=package) from err
