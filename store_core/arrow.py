"""pyarrow, loaded when something of it is first used.

Loading it takes a quarter of a second and more memory than all the rest of a broker, and a broker
that puts and hands out messages one by one never needs it. Much of this package works with both
single messages and columns, often in one module; instead of an import in each function that
works with columns, those modules take ``pa`` and ``pc`` from here (setup.cfg holds them to it)
and may use neither while they are imported themselves.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc"]


class _LoadedOnUse(ModuleType):
    """A module whose attributes come from the one of the same name.

    Any thread may be the first: the lock of the import system lets one load and the others wait.
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # from now on found without this call
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = _LoadedOnUse("pyarrow")
    pc = _LoadedOnUse("pyarrow.compute")
