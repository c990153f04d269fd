# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from store_core.errors import StoreConfigError, StoreWriteError
from store_core.services.reput_message import BuildIndexService, IndexDispatch
from store_core.state.running_flags import RunningFlag, RunningFlags


class Index:
    """Answers as an index dispatcher that lacks three parts of the log."""

    def __init__(self):
        self.calls, self.error = [], None
        self.is_behind, self.from_offset, self.flushed_end_timestamp = True, 0, 70

    def append(self, frames):
        if self.error:
            raise self.error
        self.calls.append(frames)

    def publish(self):
        self.append("published")

    def begin_anew(self, from_offset):
        self.calls.append("anew")
        self.is_behind, self.from_offset, self.flushed_end_timestamp = True, from_offset, 0

    def catch_up(self, log, end_offset, limit_bytes):
        self.from_offset = min(self.from_offset + 1024, end_offset)
        self.is_behind = self.from_offset < end_offset
        return self.is_behind

    def flush_full(self):
        self.calls.append("full")


class Checkpoint:
    index_msg_timestamp = 5

    def __init__(self):
        self.written = []

    def flush(self):
        self.written.append(self.index_msg_timestamp)


def service_of(log, index, checkpoint, **options):
    return BuildIndexService(index, log.queue, "root", lambda: 3000, checkpoint, **options)


def test_flag_is_set_while_the_index_cannot_be_written():
    index, flags = Index(), RunningFlags()
    dispatch = IndexDispatch(index, flags)
    index.error = StoreWriteError("full", "index")
    for call in (lambda: dispatch("frames"), dispatch.publish):
        with pytest.raises(StoreWriteError):
            call()
        assert flags.flags == RunningFlag.WRITE_INDEX_FILE_ERROR
        assert flags.write_error is index.error, "known to every reader of the flag"
    index.error = None
    dispatch("frames")
    assert flags.is_writeable
    dispatch.publish()
    assert index.calls == ["frames", "published"]


def test_index_is_built_a_stretch_at_a_time(log):
    log.add(*[600] * 4)
    index, checkpoint = Index(), Checkpoint()
    service = service_of(log, index, checkpoint)
    assert service.behind_bytes == 3000
    assert [service.run_once() for _ in range(4)] == [True, True, False, False]
    assert service.behind_bytes == 0
    assert checkpoint.index_msg_timestamp == 70


def test_rebuild_says_in_the_checkpoint_at_first_that_no_file_is_whole(log):
    log.add(*[600] * 4)
    index, checkpoint, seen, deleted = Index(), Checkpoint(), [], []
    service = service_of(log, index, checkpoint)
    service.rebuild(lambda: deleted.append(index.from_offset), lambda *done: seen.append(done))
    assert index.calls[0] == "anew"
    assert (deleted, checkpoint.written) == ([0], [0])
    assert seen == [(1024, 3000), (2048, 3000), (3000, 3000)]
    service.finish()
    assert not index.is_behind


def test_a_rebuild_ends_with_all_of_it_whatever_is_put_meanwhile(log):
    log.add(*[600] * 4)
    index, seen = Index(), []
    ends = iter(range(2000, 9000, 10))
    service = BuildIndexService(index, log.queue, "root", lambda: next(ends), Checkpoint())
    service.rebuild(progress=lambda *done: seen.append(done))
    assert all(done <= total for done, total in seen)
    assert seen[0] == (1024, 2010)
    assert seen[-1] == (2020, 2020)


def test_there_is_no_index_to_rebuild(log):
    index = Index()
    with pytest.raises(StoreConfigError, match="messageIndexEnable"):
        service_of(log, index, Checkpoint(), is_enabled=False).rebuild()
    assert not index.calls
