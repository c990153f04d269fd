"""What the tasks work out for queues and index is what decoding the log would give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store_core.layout.message import SCHEDULE_TOPIC
from store_core.staged_commit import staged_part_writer
from store_core.staged_commit.job import StagedJob
from tests.store_core.staged_commit import support
from tests.store_core.staged_commit.support import commit, problems, stage

BODIES = [b"%d" % i * (1 + i % 9) for i in range(70)]


def files_of(root):
    """Return queues and index; index files are named by the time they were made at."""
    found = {}
    for name in ("consumequeue", "index", "checkpoint"):
        for path in sorted([root / name, *(root / name).rglob("*")]):
            if path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


def properties(number):
    """Return properties with none, one or several keys, tags or none, and a delay level."""
    keys = b" ".join(b"k%d" % (number + i) for i in range(number % 4))
    parts = {
        b"KEYS": keys + (b" k1" if number % 5 == 0 else b""),
        b"TAGS": b"tag%d" % (number % 3) if number % 2 else b"",
        b"UNIQ_KEY": b"U%04d" % number if number % 3 else b"",
        b"DELAY": b"%d" % (number % 20) if number % 7 else b"no number",
    }
    return b"".join(name + b"\1" + value + b"\2" for name, value in parts.items() if value)


@pytest.mark.parametrize("topic", ["TopicA", SCHEDULE_TOPIC])
def test_queues_and_index_are_those_of_a_decoded_log(tmp_path, monkeypatch, topic):
    monkeypatch.setattr(staged_part_writer, "_ROWS_AT_ONCE", 20)
    roots = {}
    for decodes in (False, True):
        root = roots[decodes] = tmp_path / str(decodes)
        for number in range(2):
            name = support.job_name(f"j{number}")
            directory = root / "_staging" / name
            directory.mkdir(parents=True)
            given = {"topic": topic, "queues": 3, "blocks": 4, "properties": properties}
            parts = [stage(directory, n, BODIES[n:], **given) for n in range(2)]
            assert not any(part.is_multi_dispatch for part in parts)
            job = StagedJob(name, tuple(replace(p, is_multi_dispatch=decodes) for p in parts))
            commit(root, job, directory)
        assert problems(root) == []
    assert files_of(roots[False]) == files_of(roots[True])


def test_records_that_name_further_queues_are_decoded(tmp_path, monkeypatch):
    config = replace(support.CONFIG, enable_multi_dispatch=True, enable_lmq=True)
    monkeypatch.setattr(support, "CONFIG", config)
    name = support.job_name("j")
    directory = tmp_path / "_staging" / name
    directory.mkdir(parents=True)

    def multi(number):
        return b"INNER_MULTI_DISPATCH\1%%LMQ%%a\2INNER_MULTI_QUEUE_OFFSET\1%d\2" % number

    part = stage(directory, 0, BODIES[:9], properties=multi)
    assert part.is_multi_dispatch
    commit(tmp_path, StagedJob(name, (part,)), directory)
    assert problems(tmp_path) == []
    assert (tmp_path / "consumequeue" / "%LMQ%a" / "0").exists()
