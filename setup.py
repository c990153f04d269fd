# SPDX-License-Identifier: Apache-2.0
"""The native kernel, which setup.cfg cannot declare: optional, for CPython 3.11 and newer."""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

ROOM = Path("store_core/native")


class WheelOfWhatWasBuilt(bdist_wheel):
    """Makes a pure wheel if no compiler built the kernel."""

    def run(self):
        """Build first, to see what comes of it."""
        self.run_command("build")
        library = self.get_finalized_command("build_ext").get_ext_fullpath(kernel.name)
        if self.distribution.has_ext_modules() and not Path(library).exists():
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


is_wanted = (
    os.environ.get("ROCKETMQ_STORE_NATIVE") != "0"
    and sys.implementation.name == "cpython"
    and sys.version_info >= (3, 11)
    and sys.byteorder == "little"
    and not sysconfig.get_config_var("Py_GIL_DISABLED")
)
kernel = Extension(
    "store_core.native._kernel",
    sorted(str(path) for path in ROOM.glob("*.c")),
    depends=sorted(str(path) for path in ROOM.glob("*.h")),
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-g0"],
    py_limited_api=True,
    optional=True,
)
setup(
    cmdclass={"bdist_wheel": WheelOfWhatWasBuilt},
    ext_modules=[kernel] if is_wanted else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if is_wanted else {},
)
