# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle

import pytest

from rmqsource.errors import (
    DamagedStoreError,
    DataLossError,
    SourceError,
    SourceOptionError,
    SourceSchemaError,
)

ERRORS = [
    SourceOptionError("queueId", "found 'x'"),
    SourceSchemaError("messages", "no column"),
    DataLossError("/s", "queue 0 begins at 5"),
    DamagedStoreError("/s", "/s/commitlog/0", 17, "length -1"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_survives_pickling_with_its_text(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert isinstance(again, SourceError)


def test_texts_name_place_and_way_out():
    assert str(ERRORS[0]) == "option 'queueId': found 'x'"
    assert "failOnDataLoss" in str(ERRORS[2])
    assert "/s/commitlog/0 at byte 17" in str(ERRORS[3])
    assert "PERMISSIVE" in str(ERRORS[3])


def test_wrong_use_is_a_value_error():
    assert isinstance(ERRORS[0], ValueError)
    assert isinstance(ERRORS[1], ValueError)
    assert not isinstance(ERRORS[2], ValueError)
