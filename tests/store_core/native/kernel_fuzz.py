# SPDX-License-Identifier: Apache-2.0
"""Feed mutated logs to every function of a kernel built with sanitizers.

``python -m tests.store_core.native.kernel_fuzz KERNEL RECORDS SEED LOG...`` exits with 0 if no
access was out of bounds. Each input is a ``bytes`` object of its exact size, which, with
``PYTHONMALLOC=malloc``, the sanitizer guards at both ends.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from store_core.codec.message_codec import encode_message

MOST_BYTES = 1 << 14
RACED_BYTES, RACE_EVERY = 1 << 19, 500
ODD = (0, 1, 2, 0x20, 0x7F, 0x80, 0xC3, 0xDA, 0xED, 0xFF)
HEADER = (
    b'{"code":310,"extFields":{"a":"g\\u0001","b":"\\"\\\\"},"flag":0,"language":"JAVA",'
    b'"opaque":-7,"remark":"why","other":"x","version":479}'
)
JSON_PARTS = (
    *(b'"', b"\\", b",", b"{", b"}", b":", b"null", b"{}", b"-", b"9", b"2147483648", b"\xff"),
    *(b"\\u0041", b"\\u00e9", b"\\u00", b'"code":1,', b'"a":"b",'),
)


class Log(NamedTuple):
    """Bytes of a log, and the offset of the first."""

    offset: int
    data: bytes | bytearray


def load(path: str) -> Any:
    """Return the module of a shared library."""
    loader = ExtensionFileLoader("_kernel", path)
    spec = importlib.util.spec_from_loader("_kernel", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def dense_log() -> bytes:
    """Return records with as many properties, and as many words, as their bytes allow."""
    texts = [b"".join(b"%c\1v\2" % i for i in range(3, 128))[:-1]]
    texts += [b"KEYS\1" + b"k " * count for count in range(0, 300, 17)]
    texts += [b"".join(b"%c\1v\2" % (97 + i % 26) for i in range(n)) for n in range(0, 300, 17)]
    log = b""
    for number, text in enumerate(texts):
        host = bytes(20 if number % 2 else 8)
        log += encode_message(
            topic=b"T", body=b"", properties_raw=text, queue_offset=0, queue_id=0,
            born_timestamp=0, born_host=host, store_timestamp=0, store_host=host,
            commit_log_offset=len(log),
        )  # fmt: skip
    return log


def mutated(log: Log, chance: random.Random) -> Log:
    """Return a piece of a log with some bytes changed, moved or cut off."""
    begin = chance.randrange(len(log.data)) if chance.random() < 0.3 else 0
    piece = bytearray(log.data[begin:][:MOST_BYTES])
    for _ in range(chance.choice([0, 1, 1, 2, 5, 40])):
        at = chance.randrange(len(piece))
        piece[at] = chance.choice(ODD) if chance.random() < 0.7 else chance.randrange(256)
    if chance.random() < 0.2:
        one, other = sorted(chance.randrange(len(piece)) for _ in range(2))
        piece[one:other] = b""
    cut = chance.randrange(len(piece) + 1) if chance.random() < 0.5 else len(piece)
    return Log(log.offset + begin, bytes(piece[:cut]))


def feed(kernel: Any, log: Log, chance: random.Random) -> int:
    """Call every function on a log; return how many records were decoded."""
    data, size = log.data, len(log.data)
    starts = np.empty(size // 91 + 1, np.int64)
    begin = chance.choice([0, 0, 0, chance.randrange(size + 9)])
    count, *_ = kernel.walk_records(data, begin, size, chance.choice([3, 1 << 40]), 1 << 40, starts)
    anywhere = [chance.randrange(-9, size + 9) for _ in range(4)]
    positions = np.append(starts[:count], np.array([*anywhere, 2**63 - 1, -(2**63)], np.int64))
    parts, ok = np.empty((6, len(positions)), np.int64), np.empty(len(positions), np.bool_)
    base = log.offset if chance.random() < 0.9 else chance.randrange(-(2**63), 2**63)
    bases = chance.choice([base, np.full(len(ok), base, np.int64)])
    kernel.place_records(data, bases, positions, parts, ok, *np.empty((2, len(ok)), np.int32))
    for field in range(len(kernel.HEADER_FIELDS)):
        found = np.empty(2 * len(positions), np.int32)
        for width in (1, 2):
            try:
                kernel.header_field(data, positions, field, found[: width * len(positions)])
            except ValueError:
                continue
    rows = np.flatnonzero(ok)
    whole, places = positions[rows], parts.take(rows, axis=1)
    crcs = np.empty(len(rows), np.uint32)
    kernel.crc32_ranges(data, places[0].copy(), places[0] + places[1], crcs)
    kernel.plain_records(data, min(begin, size), chance.choice([0, 0xB1]))
    decode(kernel, data, whole, places, chance)
    if len(rows):
        places = places.copy()
        places[chance.randrange(6), chance.randrange(len(rows))] += chance.choice([-1, 1, 9, 2**40])
        decode(kernel, data, whole, places, chance)
    return len(rows)


def decode(
    kernel: Any, data: bytes | bytearray, positions: Any, parts: Any, chance: random.Random
) -> None:
    """Decode some columns, or be refused."""
    every = (1 << kernel.COLUMNS.index("names")) - 1 | 1 << kernel.COLUMNS.index("keys")
    wanted = chance.choice([every, chance.randrange(every + 1) & every])
    names = tuple(chance.sample([b"TAGS", b"UNIQ_KEY", b"a", b"", b"KEYS"], chance.randrange(4)))
    rows = len(positions)
    room = len(data) + 2 * rows if chance.random() < 0.9 else chance.randrange(9)
    entries = [np.empty(room, kind) for kind in (np.int32, np.int32, np.bool_)]
    codes, kinds = np.empty(rows, np.int32), np.empty(rows, np.uint8)
    numbering = *np.empty((2, rows), np.int32), np.empty(1 << rows.bit_length(), np.int32)
    bounds = np.cumsum([chance.randrange(200) for _ in range(rows + 1)]).astype(np.int32)
    hashes, flags = np.zeros(rows, np.uint32), np.zeros(rows, np.int32)
    hashed, found = np.empty(rows, np.int64), np.empty(rows, np.bool_)
    ranges = [(field, -(2**63), 2**62) for field in range(len(kernel.HEADER_FIELDS))]
    records, texts = (data, positions, parts), (data, parts[4].copy(), parts[5].copy())
    topics = chance.choice([(), names, (b"T", *names)])
    accepted_or_refused(
        (kernel.values, (*texts, names, bytearray)),
        (kernel.have_value, (*texts, (b"TAGS",), names, found)),
        (kernel.select, (*records, 12, np.array(ranges, np.int64), topics, found)),
        (kernel.number_topics, (*records, *numbering)),
        (kernel.dispatch, (*records, codes, kinds, *entries, *numbering, hashed)),
        (kernel.dispatch_properties, (bounds, data, hashes, flags, codes, kinds, *entries)),
        (kernel.columns, (*records, wanted, names, bytearray)),
    )


def accepted_or_refused(*calls: tuple[Any, tuple[Any, ...]]) -> None:
    """Call functions, each of which may refuse its arguments."""
    for function, arguments in calls:
        try:
            function(*arguments)
        except ValueError:
            continue


def encode(kernel: Any, data: bytes, chance: random.Random) -> None:
    """Encode records of pieces of the data, or be refused."""
    rows = chance.randrange(1, 9)
    hosts = np.arange(rows + 1, dtype=np.int32) * chance.choice([8, 8, 20, 9])
    texts: list[Any] = []
    for number in range(6):
        offsets = np.sort(np.array([chance.randrange(len(data) + 1) for _ in range(rows + 1)]))
        offsets = hosts if number > 3 else offsets // chance.choice([1, 9])
        if chance.random() < 0.05:
            offsets[chance.randrange(rows + 1)] = chance.choice([-1, 2**31 - 1, len(data) + 1])
        texts += [offsets.astype(np.int32), data]
    sizes = [int(offsets[-1]) - int(offsets[0]) for offsets in texts[::2]]
    size = 75 * rows + sum(sizes) + chance.choice([0, 0, rows, 1, -1])
    size = size if 0 <= size < 1 << 20 else 9
    out = [np.empty(rows, kind) for kind in (np.int64, np.int64, np.int32)]
    kinds = (np.int32, np.int32, np.int32, np.int64, np.int32, np.int64)
    numbers = [chance.choice([None, np.zeros(rows, kind)]) for kind in kinds]
    accepted_or_refused((kernel.encode, (bytearray(size), *out, *texts, *numbers)))


def known(kernel: Any, data: bytes, chance: random.Random) -> None:
    """Dispatch, join and patch records of columns of the data, or be refused."""
    rows = chance.randrange(1, 9)
    texts: list[Any] = []
    for _ in range(3):
        offsets = np.sort(np.array([chance.randrange(len(data) + 1) for _ in range(rows + 1)]))
        if chance.random() < 0.05:
            offsets[chance.randrange(rows + 1)] = chance.choice([-1, 2**31 - 1, len(data) + 1])
        valid = bytes(chance.randrange(2) for _ in range(rows))
        given = (offsets.astype(np.int32), data, chance.choice([None, valid]))
        texts += chance.choice([given, given, (None, None, None)])
    room = chance.choice([3 * len(data) + 2 * rows, chance.randrange(99)])
    codes, kinds = np.empty((3, rows), np.int32), np.empty(rows, np.uint8)
    entries = [np.empty(room, kind) for kind in (np.int32, np.int32, np.bool_)]
    starts, times = ([chance.randrange(-9, len(data) + 9) for _ in range(rows)] for _ in range(2))
    values = [np.array(column, np.int64) for column in (starts, times, starts, times)]
    joined = (
        np.empty(rows + 1, np.int32),
        bytearray(3 * len(data) + 21 * rows - chance.randrange(9)),
    )
    accepted_or_refused(
        (kernel.dispatch_values, (codes[0], codes[1], *texts, codes[2], kinds, *entries)),
        (kernel.join_properties, ((b"KEYS", b"", b"TAGS"), *joined, *texts)),
        (kernel.patch, (bytearray(len(data)), *values, chance.choice([5, values[0]]))),
    )


def link(kernel: Any, chance: random.Random) -> None:
    """Link entries into slots of any content."""
    rows, number = chance.randrange(1, 40), chance.choice([1, 7, 2**31 - 41])
    slots = np.array([chance.randrange(-9, 60) for _ in range(chance.randrange(1, 20))], ">i4")
    hashes = np.array([chance.choice([0, 5, 2**31 - 1, chance.randrange(99)]) for _ in range(rows)])
    longs, ints = np.empty((2, rows), np.int64), np.empty((2, rows), np.int32)
    entries = bytearray(20 * rows)
    kernel.link(
        slots, hashes.astype(np.int32), longs[0], ints[0], number, entries, longs[1], ints[1]
    )


def put(kernel: Any, data: bytes, chance: random.Random) -> None:
    """Encode and complete one record of pieces of the data."""
    cuts = [chance.randrange(min(len(data), 300) + 1) for _ in range(8)]
    pieces = [data[min(a, b) : max(a, b)] for a, b in zip(cuts, cuts[1:])]
    texts = {str(piece): piece.decode("latin-1") for piece in pieces}
    properties: Any = chance.choice([texts, pieces[0], data])
    hosts = [data[: chance.choice([8, 8, 8, 20, 20, 7])] for _ in range(2)]
    marks = (pieces[1], pieces[2][:3], b"TAGS")[: chance.randrange(4)]
    numbers = [chance.choice([*([0, 1, 2**31 - 1, -1] * 9), 2**63]) for _ in range(6)]
    record = kernel.encode_put(
        pieces[3], 0, pieces[4], 250, properties, marks, *numbers[:4], *hosts, *numbers[4:]
    )
    record = record or bytearray(chance.randrange(120))
    kernel.patch_put(record, *numbers[:3])


def remote(kernel: Any, data: bytes, chance: random.Random) -> None:
    """Encode a header of pieces of the data, and decode it with some bytes changed."""
    cuts = sorted(chance.randrange(min(len(data), 600) + 1) for _ in range(8))
    pieces = [data[a:b].decode("latin-1") for a, b in zip(cuts, cuts[1:])]
    if chance.random() < 0.8:  # otherwise few of them are ASCII
        pieces = [piece.encode("ascii", "ignore").decode() for piece in pieces]
    most = chance.choice([0, 3, 3, 63, 64, 65])
    fields = {f"{number}{pieces[number % 7]}": pieces[number % 5] for number in range(most)}
    numbers = [chance.choice([*([0, -1, 2**31 - 1] * 4), 2**31]) for _ in range(4)]
    remark = chance.choice([None, pieces[5], pieces[5], "\udfff"])
    frame = kernel.json_frame(
        numbers[0], fields, numbers[1], pieces[6], numbers[2], remark, numbers[3], data[:99]
    )
    header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")] if frame else HEADER
    kernel.json_header(header, 0, len(header))
    for piece in (damaged(header, chance), damaged(HEADER, chance)):
        begin, end = sorted(chance.randrange(len(piece) + 1) for _ in range(2))
        kernel.json_header(piece, 0, len(piece))
        kernel.json_header(piece, begin, end)


def damaged(header: bytes, chance: random.Random) -> bytes:
    """Return a header with a few bytes replaced by parts of JSON."""
    piece = bytearray(header)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(piece) + 1)
        piece[at : at + chance.randrange(3)] = chance.choice(JSON_PARTS)
    return bytes(piece[: chance.randrange(len(piece) + 1)] if chance.random() < 0.3 else piece)


def race(kernel: Any, log: Log, chance: random.Random) -> None:
    """Call the functions in two threads while this one changes the data, as a broker's map may."""
    data = bytearray(log.data[:RACED_BYTES])
    seeds = [chance.randrange(2**32) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        raced = Log(log.offset, data)
        rounds = [pool.submit(feed, kernel, raced, random.Random(seed)) for seed in seeds]
        while not all(each.done() for each in rounds):
            at = chance.randrange(len(data))
            data[at] = chance.choice(ODD)
        for each in rounds:
            each.result()


def main(path: str, most: str, seed: str, *logs: str) -> None:
    """Feed until so many records were decoded."""
    kernel, chance = load(path), random.Random(int(seed))
    files = [(Path(log).name, Path(log).read_bytes()) for log in logs]
    sources = [Log(0, dense_log())] + [Log(int(name), data) for name, data in files if data]
    records = pieces = 0
    while records < int(most):
        log = mutated(chance.choice(sources), chance)
        records += feed(kernel, log, chance)
        data = bytes(log.data)
        encode(kernel, data, chance)
        known(kernel, data, chance)
        link(kernel, chance)
        put(kernel, data, chance)
        remote(kernel, data, chance)
        if pieces % RACE_EVERY == 0:
            race(kernel, chance.choice(sources), chance)
        pieces += 1
    print(f"{records} records of {pieces} pieces, seed {seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
