# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import os
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.compression import CorruptBodyError, deflate, inflate
from store_core.codec.message_codec import decode_message
from store_core.errors import StoreError
from store_core.layout import (
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)

RECORDS = json.loads((Path(__file__).parent / "records_5x.json").read_text())["records"]
KINDS = [COMPRESSION_LEGACY_ZLIB, COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD]
PRODUCERS = ["legacy_zlib", "zlib", "lz4", "zstd"]


def producer_body(name):
    """Stored and inflated body of a record that a Java producer compressed."""
    fields = RECORDS[name]
    raw = bytes.fromhex(fields["record"])
    record = decode_message(raw, 0, fields["commit_log_offset"], name)
    return record.body, record.sys_flag, base64.b64decode(fields["body_b64"])


@pytest.mark.parametrize("name", PRODUCERS)
def test_inflates_what_producers_compress(name):
    stored, sys_flag, body = producer_body(name)
    assert inflate(stored, sys_flag) == body


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_body_cut_off_anywhere_is_an_error(name):
    stored, sys_flag, _ = producer_body(name)
    # Without the closing bytes (zlib's checksum, LZ4's end mark) the content may be complete.
    for length in range(1, len(stored)):
        with pytest.raises(CorruptBodyError):
            inflate(stored[:length], sys_flag)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [b"\x00", b"junk that is no stream", bytes(100)])
def test_junk_is_an_error(kind, junk):
    with pytest.raises(CorruptBodyError):
        inflate(junk, kind)


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_unknown_type_bits_are_an_error(kind):
    with pytest.raises(CorruptBodyError, match="unknown compression type"):
        inflate(b"x", kind | 1)
    with pytest.raises(ValueError, match="unknown compression type"):
        deflate(b"x", kind)


def test_an_error_belongs_to_the_store_and_is_a_value_error():
    assert issubclass(CorruptBodyError, StoreError)
    assert issubclass(CorruptBodyError, ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_stored_body_stays_empty(kind):
    assert inflate(b"", kind | 1) == b""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1023, 1024, 1025, 5000, 100_000])
def test_the_limit_is_exact(kind, size):
    stored = deflate(b"a" * size, kind)
    assert inflate(stored, kind, limit=size) == b"a" * size
    with pytest.raises(CorruptBodyError, match=f"more than {size - 1} bytes"):
        inflate(stored, kind, limit=size - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_not_unpacked(kind):
    stored = deflate(bytes(16 << 20), kind)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptBodyError, match="more than 1048576 bytes"):
        inflate(stored, kind, limit=1 << 20)
    assert pa.total_allocated_bytes() - before < 1 << 20


@given(st.sampled_from(KINDS), st.binary(max_size=3000))
def test_inflates_what_it_deflates(kind, body):
    assert inflate(deflate(body, kind), kind) == body


def test_lz4_frames_are_of_independent_blocks_as_java_needs_them():
    body = os.urandom(100) * 50_000 + os.urandom(5 << 20)  # packed and stored blocks
    stored = deflate(body, COMPRESSION_LZ4)
    assert stored.startswith(producer_body("lz4")[0][:7])
    assert inflate(stored, COMPRESSION_LZ4) == body


@pytest.mark.parametrize(("kind", "codec"), [(COMPRESSION_LZ4, "lz4"), (COMPRESSION_ZSTD, "zstd")])
def test_inflates_streams_of_unknown_length(kind, codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        for _ in range(5):
            stream.write(b"piece " * 500)
            stream.flush()
    assert inflate(sink.getvalue().to_pybytes(), kind) == b"piece " * 2500


def test_a_trailing_empty_zstd_block_is_no_content():
    # One raw block "hi" that is not the last, then an empty last one.
    frame = bytes.fromhex("28b52ffd 0058 100000 6869 010000")
    assert inflate(frame, COMPRESSION_ZSTD) == b"hi"


def test_level_counts_for_zlib():
    body = b"".join(b"%d," % number for number in range(3000))
    assert deflate(body, COMPRESSION_ZLIB, level=5)[:2] == b"\x78\x5e"  # as a Java producer's
    assert deflate(body, COMPRESSION_ZLIB, level=1) == zlib.compress(body, 1)
