# SPDX-License-Identifier: Apache-2.0
"""A record with a blank record's magic code closes no segment: readable records follow it."""

from __future__ import annotations

import pytest

from store_core.layout import BLANK_MAGIC_CODE
from tests.store_core.recovery.test_moved_units import CONFIG, put, refuses

_COUNT = 700  # in two segments


@pytest.mark.parametrize(
    ("number", "crashed"), [(0, True), (5, True), (690, True), (690, False)]
)  # after a clean stop recovery reads only the last segment
def test_what_follows_is_kept_and_the_damage_is_said(tmp_path, number, crashed):
    places = put(tmp_path, _COUNT, 3)
    start, _ = places[number]
    size = CONFIG.mapped_file_size_commit_log
    paths = sorted((tmp_path / "commitlog").iterdir())
    assert len(paths) == 2
    with paths[start // size].open("r+b") as file:
        file.seek(start % size + 4)
        file.write(BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True))
    if crashed:
        (tmp_path / "abort").touch()
    refuses(tmp_path, kept=[at for at, _ in places if at != start])
