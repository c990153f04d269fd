# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of a whole `MessageStore`."""

from __future__ import annotations

from tests.golden_store import tree_state
from tests.store_core.crash.messages import make_batch, make_message

EVER = 2**62
"""Later than any message, in ms."""


def contents(root):
    """Return size and digest of all files, by name."""
    return {name: (size, digest) for name, (size, _, digest) in tree_state(root).items()}


def statuses(store):
    """Put in each of the three ways; return the results."""
    return [
        result.status.name
        for result in (
            store.put_message(make_message(0)),
            store.put_messages([make_message(0)]),
            store.append_batch(make_batch([0])),
        )
    ]


def put(store, numbers):
    """Put numbered messages; all must be accepted."""
    for number in numbers:
        assert store.put_message(make_message(number)).status.name == "PUT_OK"
