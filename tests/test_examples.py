# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace

from hypothesis import settings

from tests.examples import examples


def test_the_fast_tier_takes_few_examples_and_the_full_one_all(monkeypatch):
    for profile, expected in (("quick", [4, 15]), ("any-load", [4, 600])):
        loaded = SimpleNamespace(
            get_current_profile_name=lambda name=profile: name, get_profile=settings.get_profile
        )
        monkeypatch.setattr("tests.examples.settings", loaded)
        assert [examples(4), examples(600)] == expected
