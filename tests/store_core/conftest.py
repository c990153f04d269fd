# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests that open a whole store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from store_core import MessageStore
from tests.store_core.closed_later import close_all
from tests.store_core.crash.by_hand import without_threads
from tests.store_core.crash.messages import config_of


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def root(tmp_path):
    """Return the directory of a new store."""
    return tmp_path / "store"


@pytest.fixture
def by_hand(root):
    """A started store without threads."""
    with without_threads(), MessageStore(config_of(root)) as store:
        yield store
