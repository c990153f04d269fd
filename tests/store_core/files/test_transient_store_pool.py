from __future__ import annotations

from pathlib import Path

import pytest

from store_core.errors import StoreWriteError
from store_core.files.mapped_file import MappedFile
from store_core.services.allocate_mapped_file import TransientStorePool


def test_buffers_are_borrowed_until_none_is_left(caplog):
    pool = TransientStorePool(2, 4096)
    first, second = pool.borrow(), pool.borrow()
    assert len(first) == len(second) == 4096
    assert (pool.borrow(), pool.available) == (None, 0)
    assert "in use" in caplog.text
    first[:3] = b"abc"
    pool.give_back(first)
    assert pool.borrow()[:3].tobytes() == b"abc"
    pool.close()
    pool.give_back(second)
    assert (pool.available, pool.borrow()) == (0, None)


def test_a_file_gives_its_buffer_back_when_it_is_written_or_closed(tmp_path):
    pool = TransientStorePool(1, 16)

    def file(offset):
        return MappedFile(
            str(tmp_path / f"{offset:020d}"),
            16,
            create=True,
            write_buffer=pool.borrow(),
            give_back=pool.give_back,
        )

    full = file(0)
    full.append(b"0123456789abcdef")
    assert pool.available == 0
    assert full.commit() == 16
    assert pool.available == 1
    assert Path(full.path).read_bytes() == b"0123456789abcdef"
    full.close()
    short = file(16)
    short.append(b"xyz")  # the rest of the buffer is that of the file before
    short.append_last(b"-")
    short.commit()
    assert Path(short.path).read_bytes() == b"xyz-" + bytes(12)
    short.close()
    held = file(32)
    held.append(b"a")
    assert held.hold()
    held.close()
    assert pool.available == 0
    held.release()
    assert pool.available == 1
    with pytest.raises(StoreWriteError, match="was closed"):
        held.append(b"b")
