# SPDX-License-Identifier: Apache-2.0
"""Staged jobs, and a store opened for a commit from the parts of a running store."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

from store_core.codec.message_codec import decode_message
from store_core.codec.message_id import parse_host
from store_core.codec.record_encoder import encode_records
from store_core.commit_job import close_committed, commit_job, open_for_commit
from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import BLANK_MAGIC_CODE, RECORD_PREFIX
from store_core.recovery.store_files import StoreFiles
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.staged_commit.job import StagedJob
from store_core.staged_commit.staged_part import StagedPart
from store_core.staged_commit.staged_part_writer import StagedPartWriter
from store_core.staged_commit.staging import CrashPoints
from store_core.tools.check.store_check import check_store

SEGMENT_BYTES = 4096
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=SEGMENT_BYTES,
    mapped_file_size_consume_queue=16 * 20,
    max_hash_slot_num=8,
    max_index_num=64,
)
STORE_HOST = parse_host("10.0.0.9:10911")
NOW_MS = 1_700_000_500_000


class KilledError(BaseException):
    """Simulates the death of the process."""


def opened(root: Path) -> StoreFiles:
    """Open a store for a commit."""
    return open_for_commit(str(root), CONFIG, lambda: NOW_MS, CrashPoints())


def job_name(name: str) -> str:
    """Return a valid job name for a test's name of it."""
    return hashlib.md5(name.encode()).hexdigest()


def numbered_properties(number: int) -> bytes:
    """Return those of a message with a key."""
    return b"KEYS\1k%d\2TAGS\1t\2" % number


def stage(
    directory: Path,
    partition_id: int,
    bodies,
    *,
    topic="TopicA",
    queues=2,
    blocks=1,
    properties=numbered_properties,
):
    """Stage a part whose messages have these bodies, spread over queues."""
    name = f"part-{partition_id:06d}-{job_name(str(partition_id))}"
    writer = StagedPartWriter(str(directory), name, CONFIG.delay_levels_ms)
    size = -(-len(bodies) // blocks)
    with closing(writer):
        for first in range(0, len(bodies), size):
            part = bodies[first : first + size]
            queue_id = (np.arange(first, first + len(part)) % queues).astype(np.int32)
            batch = pa.record_batch(
                {
                    "topic": pa.array([topic.encode()] * len(part)),
                    "body": pa.array(part, pa.binary()),
                    "properties_raw": pa.array([properties(first + i) for i in range(len(part))]),
                    "queue_id": pa.array(queue_id),
                    "born_timestamp": pa.array([NOW_MS - 1] * len(part)),
                }
            )
            encoded = encode_records(batch, store_host=STORE_HOST)
            writer.append(encoded, [topic], np.zeros(len(part), np.int32), queue_id)
        staged = writer.finish()
    return StagedPart(partition_id, str(directory), name, **staged._asdict())


def staged_job(root: Path, name: str, parts, **once) -> tuple[StagedJob, Path]:
    """Stage a job of parts: each a list of bodies."""
    name = job_name(name)
    directory = root / "_staging" / name
    directory.mkdir(parents=True)
    staged = tuple(stage(directory, number, bodies) for number, bodies in enumerate(parts))
    return StagedJob(name, staged, **once), directory


def commit(root: Path, job: StagedJob, directory: Path, hook=None, *, clean=False):
    """Open the store, commit, close; a hook that raises leaves it as a killed process would."""
    store = opened(root)
    steps = CrashPoints(hook) if hook else CrashPoints()
    done = clean
    try:
        committed = commit_job(store, job, str(directory), steps=steps)
        done = True
    finally:
        close_committed(store, clean=done)
    return committed


def messages(root: Path) -> list[tuple[str, int, int, bytes]]:
    """Return (topic, queue id, queue offset, body) of every message, in log order."""
    found, end = [], end_offset(root)
    for path in sorted((root / "commitlog").iterdir()):
        data, base, at = path.read_bytes(), int(path.name), 0
        while base + at < end and at < len(data):
            prefix = RECORD_PREFIX.unpack(data, at)
            if prefix.magic_code == BLANK_MAGIC_CODE:
                break
            record = decode_message(data, at, base + at, path.name)
            assert record.commit_log_offset == base + at
            topic = record.topic_bytes.decode()
            found.append((topic, record.queue_id, record.queue_offset, record.body))
            at += prefix.total_size
    return found


def end_offset(root: Path) -> int:
    """Return the end of the log for a reader."""
    with StoreSnapshot(root, CONFIG) as snapshot:
        return snapshot.max_phy_offset


def problems(root: Path) -> list[str]:
    """Return the findings about a store that was closed."""
    with StoreSnapshot(root, CONFIG) as snapshot:
        report = check_store(snapshot)
    return [str(finding) for finding in report.findings]
