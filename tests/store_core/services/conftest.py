# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.store_core.services.growing_log import GrowingLog


@pytest.fixture
def log(tmp_path):
    made = GrowingLog(tmp_path / "commitlog")
    yield made
    made.queue.destroy()
