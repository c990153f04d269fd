# SPDX-License-Identifier: Apache-2.0
"""A store with a clock of its own, timers driven by hand, and their deliveries."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

from store_core import Message, MessageStore, TimerMessageStore
from store_core.files.file_writing import create_file, data_extents
from store_core.layout import TIMER_CHECKPOINT, TIMER_LOG_UNIT, TIMER_SLOT
from tests.store_core.schedule.delayed_store import Clock, bodies, config_of, queue_of

__all__ = ["Clock", "bodies", "config_of", "queue_of"]
START_MS = 1_790_000_000_000
TIMER = "rmq_sys_wheel_timer"
UNITS_PER_FILE = 4
LOG_FILE_BYTES = UNITS_PER_FILE * TIMER_LOG_UNIT.size + 16
_NAMES = ("timerwheel", "config/timercheck")


def timed_config(root, **settings):
    return config_of(root, **{"mapped_file_size_timer_log": LOG_FILE_BYTES, **settings})


@contextmanager
def timed_store(root, clock=None, **settings):
    """Open a store; yield it and timers that are not started."""
    store = MessageStore(
        timed_config(root, **settings), clock=clock or Clock(START_MS), handle_timer_message=True
    )
    with store:
        service = TimerMessageStore(store)
        yield store, service
        service.shutdown_or_finish()


def put_timed(store, body, topic="T", queue_id=0, **properties):
    message = Message(topic, body, queue_id=queue_id, properties=properties)
    result = store.put_message(message)
    assert result.status.name == "PUT_OK", result
    return result


def run(store, service, now=None):
    """Enqueue and deliver everything that is due."""
    assert store.wait_for_dispatch()
    while service.run_once(now):
        assert store.wait_for_dispatch()
    assert store.wait_for_dispatch()


def root_of(store):
    return Path(store.config.store_path_root_dir)


def units_of(root):
    """Return the units of all files, as they are stored."""
    found = []
    for path in sorted(Path(root, "timerlog").iterdir()):
        data = path.read_bytes()
        for number in range((len(data) - 16) // TIMER_LOG_UNIT.size):
            unit = TIMER_LOG_UNIT.unpack(data, number * TIMER_LOG_UNIT.size)
            if unit.size == TIMER_LOG_UNIT.size:
                found.append(unit)
    return found


def slot_of(root, time_ms, precision_ms=1000):
    """Return the slot of a time from the file."""
    at = time_ms // precision_ms % 1_209_600 * TIMER_SLOT.size
    with Path(root, "timerwheel").open("rb") as file:
        file.seek(at)
        return TIMER_SLOT.unpack(file.read(TIMER_SLOT.size))


def checkpoint_of(root):
    data = Path(root, "config", "timercheck").read_bytes()
    assert len(data) == 4096
    return TIMER_CHECKPOINT.unpack(data)


# The timer's files of one moment, to be restored: the state that a crash leaves.


class SavedFiles:
    """A copy of the timer's files below a root; holes of the wheel stay holes.

    Attributes
    ----------
    parts
        "log", "wheel", "check": path below the root -> its size and its data by position.
    """

    def __init__(self, root):
        self.root = Path(root)
        log = sorted(p.relative_to(root).as_posix() for p in Path(root, "timerlog").glob("*"))
        self.parts = {
            "log": {name: _content(self.root / name) for name in log},
            "wheel": _existing(self.root, "timerwheel"),
            "check": _existing(self.root, "config/timercheck"),
        }

    def restore(self, *names):
        """Restore parts; files that came later are removed."""
        for name in names:
            for path in self._paths_of(name):
                path.unlink(missing_ok=True)
            for path, (size, extents) in self.parts[name].items():
                _write(self.root / path, size, extents)

    def _paths_of(self, name):
        if name == "log":
            return sorted(self.root.glob("timerlog/*"))
        return [self.root / (_NAMES[0] if name == "wheel" else _NAMES[1])]


def _existing(root, name):
    return {name: _content(root / name)} if (root / name).exists() else {}


def _content(path):
    size = path.stat().st_size
    with path.open("rb") as file:
        extents = []
        for start, stop in data_extents(file.fileno(), size):
            file.seek(start)
            extents.append((start, file.read(stop - start)))
        return size, extents


def _write(path, size, extents):
    path.parent.mkdir(exist_ok=True)
    os.close(create_file(str(path), size))
    with path.open("r+b") as file:
        for start, data in extents:
            file.seek(start)
            file.write(data)
