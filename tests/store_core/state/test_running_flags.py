from __future__ import annotations

import pytest

from store_core.state.running_flags import RunningFlag, RunningFlags


@pytest.mark.parametrize(
    ("flag", "bit", "allowed"),
    [
        (RunningFlag.NOT_READABLE, 1, (False, True, True)),
        (RunningFlag.NOT_WRITEABLE, 2, (True, False, False)),
        (RunningFlag.WRITE_LOGICS_QUEUE_ERROR, 4, (True, False, False)),
        (RunningFlag.WRITE_INDEX_FILE_ERROR, 8, (True, False, False)),
        (RunningFlag.DISK_FULL, 16, (True, False, True)),
        (RunningFlag.FENCED, 32, (True, False, True)),
        (RunningFlag.LOGIC_DISK_FULL, 64, (True, False, False)),
    ],
)
def test_what_a_flag_forbids(flag, bit, allowed):
    flags = RunningFlags()
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == (True, True, True)
    assert flags.set(flag)
    assert not flags.set(flag)
    assert flags.flags == bit
    assert (flags.is_readable, flags.is_writeable, flags.is_cq_writeable) == allowed
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_do_not_clear_each_other():
    flags = RunningFlags()
    flags.set(RunningFlag.DISK_FULL)
    flags.set(RunningFlag.FENCED)
    flags.clear(RunningFlag.DISK_FULL)
    assert flags.flags == RunningFlag.FENCED
    assert not flags.is_writeable
