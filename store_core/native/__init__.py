# SPDX-License-Identifier: Apache-2.0
"""The native kernel, where it was built; the NumPy code beside it gives the same results.

``ROCKETMQ_STORE_NATIVE=0`` switches it off.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

SWITCH = "ROCKETMQ_STORE_NATIVE"
_INTERFACE = 2
"""Raised with `INTERFACE` of module.c at each change of a function's arguments or results."""


def built() -> Any:
    """Return the kernel's module, even if it is switched off."""
    try:
        kernel = import_module("store_core.native._kernel")
    except ImportError:  # no compiler when this was installed, or a Python older than 3.11
        return None
    # A clone that was updated may hold the library of its former sources.
    return kernel if getattr(kernel, "INTERFACE", None) == _INTERFACE else None


kernel: Any = None if os.environ.get(SWITCH) == "0" else built()
"""The kernel's functions; None: use NumPy. Looked up at each use, so that tests can switch it."""


def path_name() -> str:
    """Return which code runs, as ``rocketmq-store --version`` says it."""
    return "NumPy" if kernel is None else "native kernel"
