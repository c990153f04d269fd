"""RocketMQ's own classes write a store and read it back."""

from __future__ import annotations

import json

import pytest

from tests.interop import java_oracle

pytestmark = pytest.mark.interop


def test_generated_store_is_dumped_and_checked(tmp_path):
    store = java_oracle.generate("onefile-5x", 7, tmp_path / "made")
    out = java_oracle.dump(store, tmp_path / "dump")
    meta = json.loads((out / "meta.json").read_text("utf-8"))
    lines = (out / "messages.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == meta["line_counts"]["messages.jsonl"] == 5
    assert json.loads(lines[0])["commit_log_offset"] == 0
    assert java_oracle.check(store)["ok"]


def test_an_error_says_what_the_program_said(tmp_path):
    with pytest.raises(java_oracle.OracleError, match="no profile unheard-of"):
        java_oracle.generate("unheard-of", 1, tmp_path / "made")
