# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import threading
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.commit_job import close_committed
from store_core.errors import StoreError, StoreFormatError, StoreWriteError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import SCHEDULE_TOPIC
from store_core.staged_commit import log_tail, staged_part_writer
from store_core.staged_commit.job import Ledger, StagedJob
from store_core.staged_commit.log_tail import EarlySync
from store_core.staged_commit.resolve_open_jobs import remove_staging
from store_core.staged_commit.staging import (
    Commit,
    CrashPoints,
    JobQueueRange,
    commit_from_json,
    commit_to_json,
    job_directories,
    make_staging,
    open_intents,
    read_intent,
    remove_job,
    staged_files,
)
from tests.store_core.staged_commit import support
from tests.store_core.staged_commit.support import (
    commit,
    job_name,
    opened,
    problems,
    stage,
    staged_job,
)

NOW_MS = 10**15  # later than any file
JOB = job_name("j")
MUCH = log_tail._EARLY_BYTES
BODIES = [b"%d" % i * (1 + i % 9) for i in range(70)]


def tree(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


@pytest.fixture
def foreign(tmp_path):
    """Return a directory of another owner that looks like staging as far as possible."""
    path = tmp_path / "foreign"
    for name in (JOB, "photos"):
        (path / name).mkdir(parents=True)
        (path / name / f"part-000000-{JOB}.rows").write_bytes(b"precious")
    return path


def test_a_link_in_place_of_the_staging_directory_is_not_followed(tmp_path, foreign):
    root = tmp_path / "store"
    root.mkdir()
    (root / "_staging").symlink_to(foreign)
    before = tree(foreign)
    with pytest.raises(StoreWriteError, match="symbolic link"):
        remove_staging(str(root), 0, lambda: NOW_MS)
    with pytest.raises(StoreWriteError, match="symbolic link"):
        make_staging(str(root))
    with pytest.raises(StoreWriteError):
        remove_job(str(root / "_staging" / JOB))
    assert job_directories(StoreDirectory(str(root))) == []
    assert open_intents(StoreDirectory(str(root))) == {}
    assert tree(foreign) == before


def test_links_below_staging_and_other_directories_are_left_alone(tmp_path, foreign):
    staging = tmp_path / "_staging"
    staging.mkdir()
    (staging / JOB).symlink_to(foreign / JOB)
    (staging / "photos").mkdir()
    (staging / "photos" / "a.jpg").write_bytes(b"")
    linked = staging / job_name("linked")
    linked.mkdir()
    (linked / "intent.json.tmp").symlink_to(foreign / "photos")
    odd = staging / job_name("odd")
    odd.mkdir()
    (odd / f"part-000000-{JOB}.records").mkdir()
    before = tree(tmp_path)
    with pytest.raises(StoreWriteError, match="which no write creates"):
        remove_staging(str(tmp_path), 0, lambda: NOW_MS)
    assert tree(tmp_path) == before
    with pytest.raises(StoreWriteError):
        remove_job(str(staging / JOB))
    assert tree(tmp_path) == before


def test_one_directory_that_stays_keeps_no_other(tmp_path):
    staging = tmp_path / "_staging"
    names = [job_name(str(number)) for number in range(6)]
    for name in names:
        (staging / name).mkdir(parents=True)
        (staging / name / f"part-000000-{name}.records").write_bytes(b"123")
    (staging / names[2] / "letter.txt").write_bytes(b"")
    with pytest.raises(StoreWriteError, match=r"letter\.txt"):
        remove_staging(str(tmp_path), 0, lambda: NOW_MS)
    assert [path.name for path in staging.iterdir()] == [names[2]]
    assert sorted(staged_files_of(staging / names[2])) == sorted(
        ["letter.txt", f"part-000000-{names[2]}.records"]
    )


def staged_files_of(path):
    (path / "letter.txt").rename(path.parent / "letter.txt")
    found = [*staged_files(str(path)), "letter.txt"]
    (path.parent / "letter.txt").unlink()
    return found


def test_a_job_that_is_gone_is_no_error(tmp_path):
    remove_job(str(tmp_path / "_staging" / JOB))


def test_small_files_replace_links_and_are_not_written_through_them(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    for name in ("a.json", "b.json.tmp"):
        (tmp_path / name).symlink_to(outside)
    CrashPoints().replace_file("x", str(tmp_path / "a.json"), b"new")
    with pytest.raises(StoreWriteError):
        CrashPoints().replace_file("x", str(tmp_path / "b.json"), b"new")
    assert outside.read_bytes() == b"precious"
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert not (tmp_path / "a.json").is_symlink()


COMMIT = Commit(
    job=JOB,
    application="app",
    version=3,
    start_offset=0,
    end_offset=100,
    first_bytes="00" * 8,
    proof_offset=0,
    proof_bytes=100,
    proof_crc=5,
    store_timestamp=1,
    messages=1,
    record_bytes=100,
    queues=(JobQueueRange("A", 0, 0, 1),),
    dropped={"body": 2},
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["00" * 8, "٠" * 16, "0" * 400])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@st.composite
def damaged_commits(draw):
    """One or more places of a commit have something else, or are gone."""
    found = commit_to_json(COMMIT)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from([found, found, *found.get("queues", [])][:3]))
        if not isinstance(place, dict) or not place:
            continue
        name = draw(st.sampled_from(sorted(place)))
        if draw(st.booleans()):
            place[name] = draw(values)
        else:
            del place[name]
        if not isinstance(found.get("queues"), list):
            break
    return found


@given(damaged_commits() | values)
def test_values_of_json_are_a_commit_or_an_error_of_ours(given_values):
    try:
        found = commit_from_json(given_values, "p")
    except StoreFormatError:
        return
    assert commit_from_json(json.loads(json.dumps(commit_to_json(found))), "p") == found
    bytes.fromhex(found.first_bytes)
    assert max(found.start_offset, found.end_offset, found.proof_offset) < 2**63


def test_a_commit_survives_its_journal():
    assert commit_from_json(json.loads(json.dumps(commit_to_json(COMMIT))), "p") == COMMIT


raw_files = (
    st.binary(max_size=40)
    | st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"9" * 5000, b"null"])
    | values.map(lambda found: json.dumps(found).encode())
    | damaged_commits().map(lambda found: json.dumps({"format": 1, **found}).encode())
    | st.builds(
        lambda applications, last: json.dumps(
            {"format": 1, "applications": applications, "last": last}
        ).encode(),
        values,
        damaged_commits() | values,
    )
)


@given(raw_files)
def test_damaged_files_of_ours_are_errors_of_ours(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("damaged")
    directory = root / "_staging" / JOB
    directory.mkdir(parents=True)
    (root / "config").mkdir()
    (directory / "intent.json").write_bytes(data)
    (root / "config" / "sinkCommits.json").write_bytes(data)
    ledger = Ledger(str(root))
    for read in (
        lambda: read_intent(str(directory)),
        ledger.last_commit,
        lambda: ledger.is_committed("app", 3),
        lambda: ledger.is_committed(None, None),
        lambda: ledger.record(COMMIT, CrashPoints(sync=False)),
        lambda: remove_staging(str(root), 0, lambda: NOW_MS),
        lambda: close_committed(opened(root), clean=True),
    ):
        try:
            read()
        except StoreError:
            continue


def test_a_damaged_ledger_stops_a_job_before_it_is_in_the_log(tmp_path):
    commit(tmp_path, *staged_job(tmp_path, "a", [[b"1"]]))
    (tmp_path / "config" / "sinkCommits.json").write_text('{"applications": {"app": "3"}}')
    with pytest.raises(StoreFormatError, match="applications"):
        Ledger(str(tmp_path)).is_committed(None, None)
    assert list((tmp_path / "_staging").iterdir()) == []


class Disk:
    """Replaces the call that forces a file; it takes until a test releases it."""

    def __init__(self):
        self.forced = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.failure = None

    def force(self, fd):
        self.forced.append(fd)
        self.begun.set()
        assert self.may_end.wait(30)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk(monkeypatch):
    made = Disk()
    monkeypatch.setattr(log_tail, "sync_data", made.force)
    yield made
    made.may_end.set()


def test_a_little_is_left_to_the_writer(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH - 1)
        early.wait()
    assert disk.forced == []


def test_the_writer_goes_on_while_much_is_forced(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        assert disk.begun.wait(30)
        early.wrote(7, 3 * MUCH)  # returns though the first is in progress: no second one beside it
        assert disk.forced == [7]
        disk.may_end.set()
        early.wait()
        early.wrote(8, MUCH)
    assert disk.forced == [7, 8]


def test_what_came_while_one_was_under_way_counts_for_the_next(disk):
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        assert disk.begun.wait(30)
        early.wrote(7, MUCH)
        disk.may_end.set()
        early._under_way.result()
        early.wrote(7, 1)
        early.wait()
    assert disk.forced == [7, 7]


@pytest.mark.parametrize("tell", [lambda early: early.wait(), lambda early: early.wrote(7, MUCH)])
def test_a_failure_is_told_once_it_is_known(disk, tell):
    disk.failure = OSError(5, "Input/output error")
    disk.may_end.set()
    with closing(EarlySync()) as early:
        early.wrote(7, MUCH)
        with pytest.raises(OSError, match="Input/output"):
            _until_known(early, tell)
        early.wait()  # reported once, as by the system
    assert disk.forced == [7]


def _until_known(early, tell):
    early._under_way.exception()
    tell(early)


def test_closing_waits_and_says_nothing(disk):
    early = EarlySync()
    early.wrote(7, MUCH)
    assert disk.begun.wait(30)
    disk.failure = OSError(5, "")
    closing = threading.Thread(target=early.close)
    closing.start()
    assert closing.is_alive()  # otherwise its file could be closed under the thread
    disk.may_end.set()
    closing.join(30)
    assert not closing.is_alive()


def test_real_bytes_are_forced(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with closing(EarlySync()) as early:
        os.write(fd, b"x")
        early.wrote(fd, MUCH)
        early.wait()
        os.close(fd)
        early.wrote(fd, MUCH)  # closing it too early is reported
        with pytest.raises(OSError, match="Bad file"):
            early.wait()


# Queues and index computed by the tasks equal those from decoding the log.


def files_of(root):
    """Return queues and index; index files are named by their creation times."""
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
