# SPDX-License-Identifier: Apache-2.0
"""The native kernel, which setup.cfg cannot declare: optional, of CPython 3.11 and newer."""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

_ROOM = Path("store_core/native")

is_wanted = (
    os.environ.get("ROCKETMQ_STORE_NATIVE") != "0"
    and sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)
kernel = Extension(
    "store_core.native._kernel",
    sorted(str(path) for path in _ROOM.glob("*.c")),
    depends=sorted(str(path) for path in _ROOM.glob("*.h")),
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden"],
    py_limited_api=True,
    optional=True,
)
setup(
    ext_modules=[kernel] if is_wanted else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if is_wanted else {},
)
