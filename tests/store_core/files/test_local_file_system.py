from __future__ import annotations

import os

import pytest

from store_core.staged_commit import staged_part_writer
from store_core.staged_commit.staged_part_writer import is_on_this_machine


@pytest.fixture
def mounts(tmp_path, monkeypatch):
    """Return a function that tells as what the file system of ``tmp_path`` is mounted."""
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(staged_part_writer, "_MOUNTS", str(path))
    device = tmp_path.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"

    def mount(*kinds):
        lines = [
            "22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw",
            *(f"28 1 {here} / /a\\040b rw,relatime master:1 - {kind} - rw" for kind in kinds),
        ]
        path.write_text("".join(line + "\n" for line in lines))

    return mount


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["ext4"], True),
        (["xfs", "xfs"], True),  # mounted twice, or a directory of it elsewhere
        (["nfs4"], False),
        (["fuse.s3fs"], False),
        (["virtiofs"], False),
        (["overlay"], False),
        (["ext4", "nfs4"], False),
        ([], False),
    ],
)
def test_only_what_nobody_else_has_mounted_is_of_this_machine(tmp_path, mounts, kinds, expected):
    mounts(*kinds)
    assert is_on_this_machine(str(tmp_path)) is expected


@pytest.mark.parametrize("text", [None, "", "nonsense\n", "1 2 x:y / / rw - ext4 - rw\n"])
def test_where_the_system_does_not_tell_nothing_is(tmp_path, monkeypatch, text):
    path = tmp_path / "mountinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(staged_part_writer, "_MOUNTS", str(path))
    assert not is_on_this_machine(str(tmp_path))


def test_what_is_not_there_is_not(tmp_path):
    assert not is_on_this_machine(str(tmp_path / "none"))
