# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests of transactions."""

from __future__ import annotations

import pytest

from tests.store_core.transaction.transactions_by_hand import START_MS, driven


@pytest.fixture
def clock():
    """Return the time, in ms, which a test may change."""
    return [START_MS]


@pytest.fixture
def run(root, clock):
    """Open a store and its transactional service, driven by hand."""
    with driven(root, clock) as run:
        yield run
