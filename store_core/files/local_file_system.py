"""Whether a file lies on a file system that no other machine can have mounted."""

from __future__ import annotations

import os

_MOUNTS = "/proc/self/mountinfo"
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
_DEVICE_FIELD = 2


def is_on_this_machine(path: str) -> bool:
    """Return whether a path is on a file system that is of this machine alone, as far as is known.

    Whoever else sees what is written there sees it in the memory of the same kernel, and loses it
    only when it stops, too.

    Parameters
    ----------
    path
        Of a file or directory that is there. False for network file systems, for those of which
        nobody knows here, and where the system does not tell (Linux does, in ``/proc``).
    """
    try:
        device = os.stat(path).st_dev
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            kinds = {_kind(line) for line in mounts if _device(line) == device}
    except (OSError, ValueError, IndexError):
        return False
    return bool(kinds) and kinds <= _LOCAL


def _device(line: str) -> int:
    """Return the device of a mount, as of ``36 35 98:0 /mnt1 /mnt2 rw - ext3 /dev/root rw``."""
    major, minor = line.split()[_DEVICE_FIELD].split(":")
    return os.makedev(int(major), int(minor))


def _kind(line: str) -> str:
    """Return the file system's name, which follows a lonely ``-``."""
    return line.partition(" - ")[2].split()[0]
