"""Option ``keysFrom``: keys in files, too many for a plan, which every process reads for itself."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.errors import SourceOptionError
from store_core.arrow import pa, pc
from store_core.errors import StoreError
from store_core.files.store_directory import StoreDirectory
from store_core.read.key_match import KeySet

if TYPE_CHECKING:
    from store_core.arrow_types import Array
    from store_core.files.file_entry import FileEntry

_OPTION = "keysFrom"
_KEY = "key"
_PARQUET_MAGIC = b"PAR1"
_NO_DATA = ("_", ".")  # as Spark's file sources: _SUCCESS, .part-0.crc
_NO_DELIMITER = "\x01"  # no key can hold it: it separates properties


class KeyFiles(NamedTuple):
    """Files of keys as they were when a read was planned.

    Attributes
    ----------
    base
        The directory that it starts at if it is relative.
    files
        (path, bytes, time of change in ms) of each.
    """

    place: str
    base: str
    files: tuple[tuple[str, int, int], ...]


def find_key_files(place: str | None, base: str) -> KeyFiles | None:
    """List the files that an option names; None without one.

    Raises
    ------
    SourceOptionError
        There are none.
    """
    if place is None:
        return None
    directory = StoreDirectory(place, base)
    try:
        root = directory.stat(directory.resolve())
        is_dir = root is not None and root.is_dir
        found = directory.list(directory.resolve()) if is_dir else [root] if root else []
    except StoreError as err:
        raise SourceOptionError(_OPTION, str(err)) from err
    files = [entry for entry in found if not (is_dir and entry.name.startswith(_NO_DATA))]
    for entry in files:
        if entry.is_dir or entry.not_a_file:
            kind = entry.not_a_file or "a directory; give one that holds files alone"
            raise SourceOptionError(_OPTION, f"{entry.path} is {kind}")
    if not files:
        what = "holds no file" if is_dir else "does not exist"
        raise SourceOptionError(_OPTION, f"{place} {what}; give a file of keys, or a directory")
    return KeyFiles(place, base, tuple(_as_it_is(entry) for entry in files))


@lru_cache(maxsize=1)
def load_keys(key_files: KeyFiles) -> KeySet:
    """Read the keys; the last set is kept, for the next task of this process.

    Raises
    ------
    SourceOptionError
        A file is another one than was planned, or holds no keys.
    """
    directory = StoreDirectory(key_files.place, key_files.base)
    parts = []
    for path, size, modified_ms in key_files.files:
        entry = directory.stat(path)
        if entry is None or _as_it_is(entry) != (path, size, modified_ms):
            what = "is not there" if entry is None else "was changed since the read was planned"
            raise SourceOptionError(_OPTION, f"{path} {what}; load again")
        with directory.open(path) as source:
            parts.append(_keys_in(path, source.read_at(0, source.size)))
    return KeySet(pa.concat_arrays(parts))


def _as_it_is(entry: FileEntry) -> tuple[str, int, int]:
    return entry.path, entry.size, entry.modified_ms


def _keys_in(path: str, data: bytes) -> Array:
    """Return the keys of one file as an array of large strings."""
    try:
        column = _parquet_keys(data) if data.startswith(_PARQUET_MAGIC) else _text_keys(data)
    except (pa.ArrowException, OSError, ValueError) as err:
        raise SourceOptionError(
            _OPTION,
            f"{path}: expected Parquet with column {_KEY!r} or one column, of strings, or UTF-8 "
            f"text with a key a line; {err}",
        ) from err
    keys = column.cast(pa.string()).cast(pa.large_string()).combine_chunks()
    return keys.filter(pc.not_equal(keys, ""))


def _parquet_keys(data: bytes) -> pa.ChunkedArray:
    from pyarrow import parquet  # noqa: PLC0415 (needed for this option only)

    file = parquet.ParquetFile(pa.BufferReader(data))
    names = file.schema_arrow.names
    name = _KEY if _KEY in names else names[0]
    if len(names) > 1 and name != _KEY:
        raise ValueError(f"found columns {', '.join(names)}")
    kind = file.schema_arrow.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ValueError(f"column {name!r} is of {kind}")
    return file.read(columns=[name]).column(0)


def _text_keys(data: bytes) -> pa.ChunkedArray:
    from pyarrow import csv  # noqa: PLC0415 (see above)

    if not data.strip():
        return pa.chunked_array([], pa.string())
    lines = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=[_KEY]),
        csv.ParseOptions(delimiter=_NO_DELIMITER, quote_char=False),
        csv.ConvertOptions(column_types={_KEY: pa.string()}, strings_can_be_null=False),
    )
    return pc.utf8_trim_whitespace(lines.column(0))
