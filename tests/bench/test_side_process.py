from __future__ import annotations

import sys

import pytest

from bench.side_process import SideError, SideProcess

TALKER = """
import sys
from bench.side_process import tell, until_input_ends
print("a line of a log")
tell("first", seconds=1.5)
tell("second", count=2)
until_input_ends()
tell("last", count=3)
"""


def started(program: str) -> SideProcess:
    return SideProcess([sys.executable, "-c", program])


def test_figures_come_while_the_process_lives_and_it_ends_with_its_input():
    with started(TALKER) as side:
        assert side.figure("second", 30) == {"figure": "second", "count": 2}
    assert side.figure("last", 30)["count"] == 3


def test_a_process_that_ended_is_told_with_what_it_said():
    expected = "ended without figure 'put'.*no room"
    with started("raise SystemExit('no room')") as side, pytest.raises(SideError, match=expected):
        side.figure("put", 30)


def test_a_figure_that_does_not_come_is_told():
    with started(TALKER) as side:
        side.figure("second", 30)
        with pytest.raises(SideError, match=r"no figure 'third' in 0.2 s"):
            side.figure("third", 0.2)


def test_bytes_of_files_arrive(tmp_path):
    sizes = [3_000_000, 5]
    paths = [tmp_path / str(size) for size in sizes]
    for path, size in zip(paths, sizes):
        path.write_bytes(bytes(size))
    stream = [sys.executable, "-m", "bench.byte_stream"]
    with SideProcess([*stream, "send", *map(str, paths)]) as sender:
        port = str(sender.figure("listening", 30)["port"])
        with SideProcess([*stream, "receive", port, str(sum(sizes))]) as receiver:
            assert receiver.figure("received", 30)["count"] == sum(sizes)
