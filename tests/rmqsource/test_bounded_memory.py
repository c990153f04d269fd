# SPDX-License-Identifier: Apache-2.0
"""Small logs that expand to gigabytes: all rows come, and no task exceeds its share of memory."""

from __future__ import annotations

import resource
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from rmqsource.errors import DamagedStoreError
from store_core.codec.compression import deflate
from store_core.layout import (
    COMPRESSED_FLAG,
    COMPRESSION_LEGACY_ZLIB,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
)
from tests.reused_process import ReusedProcess
from tests.rmqsource.reading import read_batches, read_rows
from tests.store_factory import StoreFactory

MIB = 1 << 20
SEGMENT = 8 * MIB
KINDS = {
    "legacy": COMPRESSION_LEGACY_ZLIB,
    "zlib": COMPRESSION_ZLIB,
    "lz4": COMPRESSION_LZ4,
    "zstd": COMPRESSION_ZSTD,
}
BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
EMPTY_ITEM = struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)
LIMIT_BYTES = 400 * MIB
"""Memory that a read may use: batches of 6 MiB, bodies of 16 MiB, a few copies of both."""


def count_rows(root, columns, options, limit_bytes):
    """Read all batches; return the rows, the largest batch, the damage, and the memory (MiB)."""
    # Memory that Python and Arrow take once.
    list(read_batches(options.pop("warm"), columns, table=options.get("table", "messages")))
    before = _resident()
    bound = _mapped() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))
    try:
        rows = largest = damaged = 0
        for batch in read_batches(root, columns, **options):
            table = pa.table(batch)
            rows += table.num_rows
            largest = max(largest, table.nbytes)
            if "_corrupt_record" in batch:
                damaged += table.num_rows - table["_corrupt_record"].null_count
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return [rows, largest, damaged, peak - before // MIB]


def _mapped():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    factory = StoreFactory(tmp_path_factory.mktemp("warm") / "store", segment_bytes=1 << 16)
    for kind in KINDS.values():
        factory.add(body=deflate(b"warm", kind), sys_flag=COMPRESSED_FLAG | kind)
    body = deflate(EMPTY_ITEM, COMPRESSION_ZLIB)
    factory.add(body=body, sys_flag=COMPRESSED_FLAG | COMPRESSION_ZLIB | BATCH)
    return str(factory.write())


@pytest.fixture
def child():
    with ReusedProcess() as process:
        yield process


def measured(child, root, columns, warm, **options):
    given = {**options, "warm": warm}
    return child.call(count_rows, str(root), columns, given, LIMIT_BYTES, seconds=300)


def store_of(path, bodies, flags=0, kind=COMPRESSION_ZLIB, **more):
    factory = StoreFactory(path, segment_bytes=SEGMENT)
    for body in bodies:
        factory.add(body=body, sys_flag=COMPRESSED_FLAG | kind | flags, **more)
    return factory.write()


def bomb(kind, mib):
    """Return a body that inflates to so many MiB."""
    if kind not in {COMPRESSION_LEGACY_ZLIB, COMPRESSION_ZLIB}:
        return deflate(bytes(mib * MIB), kind)
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(MIB)) for _ in range(mib)]
    return b"".join([*parts, packer.flush()])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux about memory")
class TestMemory:
    def test_all_rows_come_of_a_log_that_inflates_a_thousandfold(self, tmp_path, warm, child):
        count = 1700
        root = store_of(tmp_path / "store", [deflate(bytes(MIB // 4), COMPRESSION_ZLIB)] * count)
        rows, largest, _, _ = measured(child, root, ["body"], warm, batchBytes="300k")
        assert rows == count
        assert largest <= 400 << 10

    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_a_body_over_the_limit_stops_there(self, kind, tmp_path, warm, child):
        bodies = [deflate(b"before", kind), bomb(kind, 300), deflate(b"after", kind)]
        root = store_of(tmp_path / "store", bodies, kind=kind)
        columns = ["body", "_corrupt_record"]
        found = measured(child, root, columns, warm, mode="PERMISSIVE")
        assert found[0] == 3
        assert found[2] == 1

    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_an_inner_batch_of_tiny_messages(self, kind, tmp_path, warm, child):
        most = deflate(EMPTY_ITEM * 32767, kind)
        more = deflate(EMPTY_ITEM * 700_000, kind)
        bodies = [most, more, most]
        root = store_of(tmp_path / "store", bodies, BATCH, kind)
        columns = ["body", "topic", "queue_offset", "properties", "_corrupt_record"]
        found = measured(child, root, columns, warm, mode="PERMISSIVE")
        assert found[0] == 2 * 32767 + 1
        assert found[2] == 1

    def test_a_long_topic_is_not_repeated_without_a_bound(self, tmp_path, warm, child):
        body = deflate(EMPTY_ITEM * 32767, COMPRESSION_ZLIB)
        root = store_of(
            tmp_path / "store", [body], BATCH, topic_bytes=b"t" * 20_000, dispatched=False
        )
        rows, largest, _, _ = measured(child, root, ["topic"], warm, access="commitlog")
        assert rows == 32767
        assert largest <= 7 * MIB

    def test_many_keys_do_not_repeat_a_large_body(self, tmp_path, warm, child):
        factory = StoreFactory(tmp_path / "store", segment_bytes=SEGMENT)
        factory.add(body=bytes(3 * MIB), properties={"KEYS": " ".join(map(str, range(400)))})
        options = {"table": "keys", "access": "commitlog"}
        rows, largest, _, _ = measured(child, factory.write(), ["key", "body"], warm, **options)
        assert rows == 400
        assert largest <= 7 * MIB


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_limit_is_an_option_that_the_error_names(kind, tmp_path):
    at_limit, over = deflate(bytes(1000), kind), deflate(bytes(1001), kind)
    root = store_of(tmp_path / "store", [at_limit, over], kind=kind)
    with pytest.raises(DamagedStoreError, match=r"more than 1000 bytes \(maxDecodedBytes\)"):
        read_rows(root, ["body"], maxDecodedBytes="1000")
    rows = read_rows(root, ["body"], maxDecodedBytes="1000", mode="DROPMALFORMED")
    assert [len(row["body"]) for row in rows] == [1000]
    rows = read_rows(root, ["body"], maxDecodedBytes="1000", body="raw")
    assert [row["body"] for row in rows] == [at_limit, over]
    assert len(read_rows(root, ["body"], maxDecodedBytes="1001")) == 2
    assert len(read_rows(root, ["topic"], maxDecodedBytes="1000")) == 2
