"""One field list, from which the scalar and the columnar codec of a structure both derive."""

from __future__ import annotations

import struct
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_SIGNED = {"i1": "b", "i2": "h", "i4": "i", "i8": "q"}
_STRUCT_CODE = {**_SIGNED, **{f"u{code[1]}": char.upper() for code, char in _SIGNED.items()}}


def _struct_code(code: str) -> str:
    return _STRUCT_CODE.get(code) or f"{int(code[1:])}s"


class RecordLayout:
    """Fields of a big-endian structure as a numpy dtype and as the equal ``struct.Struct``.

    Parameters
    ----------
    fields
        ``(name, code)`` pairs; codes are ``i1 i2 i4 i8 u1 u2 u4 u8`` or ``V<n>`` for n raw bytes
        (never ``S<n>``: numpy drops trailing NULs of those).
    """

    def __init__(self, name: str, fields: Sequence[tuple[str, str]]) -> None:
        self.name = name
        self.dtype = np.dtype([(f, c if c[0] == "V" else ">" + c) for f, c in fields])
        self.struct = struct.Struct(">" + "".join(_struct_code(c) for _, c in fields))
        self.size = self.struct.size
        row_type: Any = namedtuple  # mypy wants literal fields; these are data
        self.row: Any = row_type(name, [f for f, _ in fields])
        self._at = {f: int(self.dtype.fields[f][1]) for f, _ in fields} if self.dtype.fields else {}

    def at(self, field: str) -> int:
        """Byte position of a field inside the structure."""
        return self._at[field]

    def unpack(self, buf: Any, at: int = 0) -> Any:
        """Return the structure at byte ``at`` as a named tuple; ``struct.error`` past the end."""
        return self.row._make(self.struct.unpack_from(buf, at))

    def pack(self, **values: Any) -> bytes:
        """Return the bytes of a structure; every field must be given."""
        return self.struct.pack(*self.row(**values))

    def table(self, buf: Any, at: int = 0, count: int = -1) -> npt.NDArray[np.void]:
        """View ``count`` structures that lie densely from byte ``at`` on (zero copy)."""
        return np.frombuffer(buf, self.dtype, count, at)

    def gather(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.void]:
        """Copy scattered structures out of ``data`` (contiguous bytes).

        The caller has checked ``0 <= starts`` and ``starts + size <= len(data)``.
        An array of overlapping structures, one at every byte, is indexed: 6 ns a header, where an
        index array of bytes takes 150 ns and ``struct`` 300 ns.
        """
        if len(starts) == 0:
            return np.empty(0, self.dtype)
        raw = np.dtype(f"V{self.size}")
        everywhere = np.ndarray((len(data) - self.size + 1,), raw, data, strides=(1,))
        rows: npt.NDArray[np.void] = everywhere[starts].view(self.dtype)
        return rows


def native(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a big-endian column in native byte order, contiguous (pyarrow refuses others)."""
    return np.ascontiguousarray(column.astype(column.dtype.newbyteorder("=")))
