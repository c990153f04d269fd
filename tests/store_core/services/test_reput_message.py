# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import queue
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import store_core.services.reput_message as module
from store_core.errors import StoreFormatError
from store_core.layout import BLANK_MAGIC_CODE, MIN_RECORD_BYTES
from store_core.services.reput_message import ReputMessageService
from tests.examples import examples
from tests.golden_store import golden
from tests.store_core.services.growing_log import GrowingLog

FAR = 1 << 40
FOREVER_MS = 3_600_000
TIMEOUT_S = 10


class Collector:
    def __init__(self):
        self.batches = []

    def __call__(self, frames):
        assert frames.ok.all()
        self.batches.append(frames.column("commit_log_offset").tolist())

    @property
    def offsets(self):
        return [offset for batch in self.batches for offset in batch]


@pytest.fixture
def seen():
    return Collector()


@pytest.fixture
def reput(log, seen):
    return ReputMessageService(log.queue, [seen], lambda: log.queue.max_offset)


def run_all(reput):
    for _ in range(1000):
        if not reput.run_once():
            return
    raise AssertionError("no end")


def damage(log, offset, data):
    file = log.queue.find(offset)
    with Path(file.path).open("r+b") as opened:
        opened.seek(offset - file.file_from_offset)
        opened.write(data)


def test_nothing_to_do(log, reput, seen):
    assert not reput.run_once()
    log.add(10)
    assert reput.run_once()
    assert not reput.run_once()
    assert (seen.batches, reput.last_dispatched) == ([[0]], (0, log.clock.now))


def test_goes_over_segments_and_follows_the_log(log, reput, seen):
    for _ in range(3):
        end = log.add(100, 300, 7, 200, 500)
        assert reput.behind_bytes > 0
        run_all(reput)
        assert seen.offsets == log.offsets
        assert (reput.reput_from_offset, reput.behind_bytes) == (end, 0)
    assert len(log.queue.mapped_files) > 3


def test_every_record_of_a_golden_store(tmp_path, seen):
    store = golden("classic-5x")
    queue = module_queue(store)
    end = store.meta["max_phy_offset"]
    reput = ReputMessageService(queue, [seen], lambda: end)
    run_all(reput)
    assert reput.reput_from_offset == end
    assert seen.offsets == [line["commit_log_offset"] for line in store.dump("messages")]
    queue.close()


def module_queue(store):
    size = store.config["store"]["mappedFileSizeCommitLog"]
    queue = GrowingLog(store.root / "commitlog", size).queue
    queue.load()
    return queue


@pytest.mark.parametrize("name", ["_MAX_ROWS", "ROUND_BYTES"])
def test_rounds_are_bounded(log, reput, seen, monkeypatch, name):
    monkeypatch.setattr(module, name, 2)
    log.add(*[10] * 7)
    run_all(reput)
    assert seen.offsets == log.offsets
    assert len(seen.batches) == (4 if name == "_MAX_ROWS" else 7)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_what_was_dispatched_is_published_some_rounds_at_once(log, seen, monkeypatch, most):
    monkeypatch.setattr(module, "_MAX_ROWS", 2)
    monkeypatch.setattr(module, "_MOST_UNPUBLISHED", most)
    found = []
    reput = ReputMessageService(
        log.queue,
        [seen],
        lambda: log.queue.max_offset,
        publish=lambda: found.append(len(seen.offsets)),
    )
    for sizes in ([10] * 7, [300] * 9, [10], [900, 10]):  # across the ends of segments, too
        log.add(*sizes)
        before = len(seen.offsets)
        while reput.run_once():
            if not reput.behind_bytes:
                assert found[-1] == len(seen.offsets), "everything dispatched is published"
        assert seen.offsets == log.offsets
        at_least = [n for n in found if n > before]
        assert max(b - a for a, b in zip([before, *at_least], at_least)) <= 2 * most
    assert found[0] == min(2 * most, 7), "of the first seven records"


def test_what_cannot_be_published_is_dispatched_again(log, seen):
    failures = [OSError("disk full"), None]

    def publish():
        if (failure := failures.pop(0)) is not None:
            raise failure

    reput = ReputMessageService(log.queue, [seen], lambda: log.queue.max_offset, publish=publish)
    log.add(1, 2)
    with pytest.raises(OSError, match="disk full"):
        reput.run_once()
    assert (reput.reput_from_offset, reput.last_dispatched) == (0, (-1, 0))
    assert reput.run_once()
    assert (seen.batches, reput.behind_bytes) == ([log.offsets] * 2, 0)


def test_never_goes_past_the_end(log, seen):
    log.add(*[50] * 8)
    end = 0
    reput = ReputMessageService(log.queue, [seen], lambda: end)
    size = log.offsets[1]
    for end in range(0, log.queue.max_offset, 13):
        run_all(reput)
        whole = [offset for offset in log.offsets if offset + size <= end]
        assert seen.offsets[: len(whole)] == whole
        assert all(offset + size <= end for offset in seen.offsets)


def test_all_dispatchers_get_the_same_in_order_or_again(log, seen):
    calls = []

    def fails_once(frames):
        calls.append(len(frames))
        if len(calls) == 1:
            raise OSError("disk full")

    reput = ReputMessageService(log.queue, [seen, fails_once], lambda: log.queue.max_offset)
    log.add(1, 2, 3)
    with pytest.raises(OSError, match="disk full"):
        reput.run_once()
    assert reput.reput_from_offset == 0
    assert reput.run_once()
    assert calls == [3, 3]
    assert seen.batches == [log.offsets] * 2


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\x7f\xff\xff\xff"),  # size
        (0, b"\0\0\0\0"),
        (0, b"\0\0\0\x80"),
        (4, b"none"),  # magic code
        (4, BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)),
        (28, b"\1"),  # own offset
        (84, b"\0\0\3\0"),  # body length
    ],
)
@pytest.mark.parametrize("number", [0, 2, 4, 5, 9])
def test_dispatch_goes_on_behind_damage(log, reput, seen, caplog, at, data, number):
    log.add(*[150] * 10)
    damage(log, log.offsets[number] + at, data)
    run_all(reput)
    assert seen.offsets == [o for n, o in enumerate(log.offsets) if n != number]
    assert reput.behind_bytes == 0
    (warning,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert f"from offset {log.offsets[number]} on are not dispatched" in warning.message


def test_a_segment_without_its_blank_record(log, reput, seen, caplog):
    log.add(600, 600)
    damage(log, 600 + 92, bytes(8))
    run_all(reput)
    assert seen.offsets == log.offsets == [0, 1024]
    assert "there is no valid record" in caplog.text


@pytest.mark.parametrize("stretch", [1, 7, 8, 9, 10])
def test_damage_is_searched_over_stretches(log, reput, seen, monkeypatch, stretch):
    monkeypatch.setattr(module, "_SEARCH_BYTES", stretch)
    log.add(100, 150, 150)
    damage(log, 4, b"none")
    run_all(reput)
    assert seen.offsets == log.offsets[1:]


def test_jumps_to_the_least_offset(log, reput, seen, caplog):
    log.add(*[600] * 4)
    log.queue.delete_files_before(2048)
    run_all(reput)
    assert seen.offsets == [2048, 3072]
    assert "2048 bytes of the log from offset 0 on are not dispatched" in caplog.text


def test_jumps_over_a_missing_segment(log, reput, seen):
    log.add(*[600] * 4)
    Path(log.queue.mapped_files[1].path).unlink()
    log.queue.close()
    log.queue.load()
    run_all(reput)
    assert seen.offsets == [0, 2048, 3072]


def test_a_position_behind_the_log_waits(log, reput, seen):
    log.add(1)
    reput.reput_from_offset = FAR
    assert not reput.run_once()
    assert (reput.behind_bytes, seen.batches) == (0, [])


def test_the_thread_catches_up_at_its_end(log, reput, seen):
    reput.start()
    log.add(*[10] * 50)
    reput.shutdown()
    assert seen.offsets == log.offsets
    assert reput.last_error is None


def test_the_rest_after_few_records_ends_when_it_is_woken(log, monkeypatch):
    monkeypatch.setattr(module, "_REST_SHARE", 1e9)
    monkeypatch.setattr(module, "_MAX_REST_MS", FOREVER_MS)
    came = queue.Queue()
    dispatchers = [lambda frames: came.put(len(frames))]
    reput = ReputMessageService(log.queue, dispatchers, lambda: log.queue.max_offset)
    reput._interval_s = FOREVER_MS
    reput.start()
    for number in range(1, 4):
        log.add(*[10] * number)
        reput.wakeup()
        assert came.get(timeout=TIMEOUT_S) == number
    reput.shutdown()


steps = st.lists(
    st.one_of(
        st.lists(st.integers(0, 900), max_size=8),
        st.sampled_from(["run", "expire", "fail"]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=examples(50))
@given(steps, st.integers(1, 5), st.data())
def test_everything_is_dispatched_once_whatever_happens(actions, max_rows, data):
    with tempfile.TemporaryDirectory() as directory:
        log, seen, end = GrowingLog(directory), Collector(), 0
        fail = []

        def dispatch(frames):
            if fail:
                raise OSError(fail.pop())
            seen(frames)

        reput = ReputMessageService(log.queue, [dispatch], lambda: end)
        with mock.patch.object(module, "_MAX_ROWS", max_rows):
            for action in actions:
                if action == "run":
                    end = data.draw(st.integers(end, max(log.queue.max_offset, end)))
                    reput.run_once()
                elif action == "expire":
                    log.queue.delete_files_before(reput.reput_from_offset)
                elif action == "fail":
                    fail.append("disk full")
                    with contextlib.suppress(OSError):
                        reput.run_once()
                    fail.clear()
                else:
                    log.add(*action)
            end = log.queue.max_offset
            run_all(reput)
        assert seen.offsets == log.offsets
        assert reput.reput_from_offset == end
        log.queue.destroy()


def test_rests_after_few_records_only(log, reput, monkeypatch):
    rests = []

    def pause(milliseconds, *, wakeable=False):
        rests.append((milliseconds, wakeable))

    monkeypatch.setattr(reput, "pause", pause)
    log.add(*[10] * 3)
    assert reput.run_once()
    (own, _), (rest, _) = rests
    assert rest == pytest.approx(8 * own)
    assert [wakeable for _, wakeable in rests] == [False, True]
    assert not reput.run_once()
    monkeypatch.setattr(module, "_FEW_ROWS", 3)
    log.add(*[10] * 3)
    assert reput.run_once()
    assert len(rests) == 2


@pytest.fixture
def slave(tmp_path, seen):
    """Return an empty log that takes bytes of another one, and its dispatch service."""
    copy = GrowingLog(tmp_path / "copy")
    return copy, ReputMessageService(
        copy.queue, [seen], lambda: copy.queue.max_offset, is_slave=True
    )


def replicate(log, copy, stop, *, most=1 << 20):
    """Append bytes of a log to its copy, up to an offset; each piece is within one segment."""
    at = copy.queue.max_wrote_offset if copy.queue.mapped_files else log.queue.min_offset
    while at < stop:
        file = log.queue.find(at)
        upto = min(stop, file.end_offset, at + most)
        with file.select(at - file.file_from_offset, upto - at) as data:
            copy.appender.append_data(at, data.tobytes())
        at = upto


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=12),
    st.lists(st.integers(1, 1100), max_size=60),
    st.integers(1, 5),
)
def test_a_slave_dispatches_what_comes_in_pieces(lengths, pieces, max_rows):
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(module, "_MAX_ROWS", max_rows),
    ):
        log, copy, seen = GrowingLog(directory + "/a"), GrowingLog(directory + "/b"), Collector()
        reput = ReputMessageService(
            copy.queue, [seen], lambda: copy.queue.max_offset, is_slave=True
        )
        end, at = log.add(*lengths), 0
        for piece in pieces:
            at = min(at + piece, end)
            replicate(log, copy, at)
            run_all(reput)
            whole = [
                o
                for o, n in zip(log.offsets, lengths)
                if o + MIN_RECORD_BYTES + len(b"T") + n <= at
            ]
            assert seen.offsets == whole
        replicate(log, copy, end)
        run_all(reput)
        assert seen.offsets == log.offsets
        assert reput.reput_from_offset == end
        copy.queue.destroy()
        log.queue.destroy()


@pytest.mark.parametrize(("at", "data"), [(4, b"none"), (28, b"\1"), (0, b"\0\0\0\x80")])
@pytest.mark.parametrize("piece", [1, 5, 64, 1000])
def test_a_slave_passes_damage_of_its_master(log, slave, seen, at, data, piece):
    copy, reput = slave
    end = log.add(*[100] * 9)
    damage(log, log.offsets[3] + at, data)
    for stop in range(0, end + piece, piece):
        replicate(log, copy, min(stop, end))
        run_all(reput)
    assert seen.offsets == [o for n, o in enumerate(log.offsets) if n != 3]
    assert reput.behind_bytes == 0


def test_a_slave_with_longer_segments_stops(log, tmp_path, seen):
    log.add(*[600] * 3)
    copy = GrowingLog(tmp_path / "copy", 2048)
    reput = ReputMessageService(copy.queue, [seen], lambda: copy.queue.max_offset, is_slave=True)
    replicate(log, copy, 2000)
    with pytest.raises(StoreFormatError, match=r"segment ends at 1024.*mappedFileSizeCommitLog"):
        run_all(reput)
    assert seen.offsets == log.offsets[:1]


def test_a_slave_with_shorter_segments_stops(tmp_path, seen):
    log = GrowingLog(tmp_path / "long", 2048)
    log.add(*[600] * 3)
    copy = GrowingLog(tmp_path / "copy", 1024)
    reput = ReputMessageService(copy.queue, [seen], lambda: copy.queue.max_offset, is_slave=True)
    replicate(log, copy, 1024, most=1024)
    with pytest.raises(StoreFormatError, match="another mappedFileSizeCommitLog"):
        run_all(reput)


def test_a_slave_notes_up_to_which_store_time_it_has_the_log(log, slave):
    copy, reput = slave
    end = log.add(10, 20)
    replicate(log, copy, end - 1)
    run_all(reput)
    assert copy.queue.last.store_timestamp == log.clock.now - 1
