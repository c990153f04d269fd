# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.store_core.putting import Log


@pytest.fixture
def log(tmp_path):
    """Return a log whose segments hold few messages."""
    made = Log(tmp_path, 1024)
    yield made
    made.queue.close()
