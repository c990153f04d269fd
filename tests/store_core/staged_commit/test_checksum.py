from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.staged_commit import staged_part as module
from store_core.staged_commit.staged_part import checksum, file_checksum


def plain(data):
    words = [data[at : at + 8].ljust(8, b"\0") for at in range(0, len(data), 8)]
    return sum(int.from_bytes(word, "little") for word in words) % 2**64


@given(st.binary(max_size=40), st.integers(0, 7))
def test_it_is_a_sum_of_words_wherever_they_lie(data, shift):
    moved = np.frombuffer(bytes(shift) + data, np.uint8)[shift:]
    assert checksum(moved) == plain(data)


@pytest.mark.parametrize("length", [0, 1, 8, 63, 64, 65, 1000])
def test_that_of_a_file_is_that_of_its_bytes(tmp_path, monkeypatch, length):
    monkeypatch.setattr(module, "_READ_BYTES", 64)
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
    (tmp_path / "file").write_bytes(data)
    assert file_checksum(str(tmp_path / "file")) == plain(data)
