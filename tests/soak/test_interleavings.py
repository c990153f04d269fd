# SPDX-License-Identifier: Apache-2.0
"""Every interleaving of which tests/rmqsource/test_interleavings.py tests every seventeenth."""

from __future__ import annotations

import pytest

from tests.rmqsource import test_interleavings
from tests.rmqsource.test_interleavings import (  # noqa: F401 (tests and their fixture)
    stories,
    test_keys_are_not_lost,
    test_keys_are_not_lost_by_the_source,
    test_messages_of_a_topic_are_not_lost,
    test_plans_of_a_store_that_expires,
    test_tables_hold_what_was_dispatched,
    test_tables_of_a_store_that_expires,
)

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def _every_access(monkeypatch):
    monkeypatch.setattr(test_interleavings, "STEP", 1)
