# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine that belong next to a figure."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from typing import Any


def machine_facts() -> dict[str, Any]:
    """Return cores, load, memory and versions."""
    return {
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java_version(),
        **{name: metadata.version(name) for name in ("pyspark", "pyarrow", "numpy")},
    }


def _java_version() -> str | None:
    java = shutil.which("java")
    if java is None:
        return None
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0] if done.stderr else None
