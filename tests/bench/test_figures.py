# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench.figures import (
    Results,
    as_table,
    rate_figure,
    read_results,
    time_figure,
    write_json,
)
from bench.worker_memory import command_line, descendants, private_bytes, resident_bytes, sample

HOLD = "data = b'x' * 50_000_000; print('ready', flush=True); input()"


def rate(ours: float, other: float):
    return rate_figure(
        "a", "scan", "ready", rows=100, ours_seconds=[ours], other_seconds=[other], must=0.5, aim=1
    )


def test_a_rate_is_better_high():
    figure = rate(ours=1.6, other=1.0)
    assert figure.ratio == pytest.approx(0.625)
    assert figure.meets(figure.must) is True
    assert figure.meets(figure.aim) is False


def test_a_time_is_better_low():
    figure = time_figure(
        "e", "key", "empty", ours_seconds=[0.1, 0.3, 0.9], other_seconds=[0.1], must=2, aim=1.3
    )
    assert figure.ours == pytest.approx(300)
    assert figure.ratio == pytest.approx(3)
    assert figure.meets(figure.must) is False


def test_the_table_says_what_was_met():
    lines = as_table([rate(1, 1), rate(1.6, 1), rate(4, 1)]).splitlines()
    assert lines[0].split()[-1] == "met"
    assert [line.split()[-1] for line in lines[2:]] == ["aim", "must", "NO"]


def test_json_holds_ratio_and_samples(tmp_path):
    path = tmp_path / "results" / "one.json"
    results = Results({"cores": 2}, quick=True)
    results.add("a", [rate(2, 1)])
    write_json(path, results)
    assert read_results(path) == results
    document = json.loads(path.read_text())
    assert document["machine"] == {"cores": 2}
    assert document["figures"][0]["ratio"] == 0.5
    assert document["figures"][0]["samples"] == {"ours_s": [2], "other_s": [1]}


def test_an_interrupted_run_keeps_its_rows_and_goes_on(tmp_path, capsys, monkeypatch):
    asked = []

    def scenario(letter, *, ends):
        def run(context):
            asked.append((letter, context.quick))
            if not ends.pop(0):
                raise KeyboardInterrupt
            return [rate(1, 1)]

        return run

    scenarios = {
        "a": scenario("a", ends=[False, True]),
        "b": scenario("b", ends=[False, True]),
    }
    monkeypatch.setattr(bench, "SCENARIOS", scenarios)
    path = tmp_path / "rows.json"
    assert bench.main(["--work", str(tmp_path), "--json", str(path), "--quick"]) == 130
    assert read_results(path).scenarios == []
    again = ["--work", str(tmp_path), "--resume", str(path)]
    capsys.readouterr()
    assert bench.main(again) == 130
    told = capsys.readouterr()
    assert "a scan" in told.out
    assert f"--resume {path}" in told.err
    assert read_results(path).scenarios == ["a"]
    assert bench.main(again) == 0
    assert asked == [(letter, True) for letter in "aabb"]
    assert read_results(path).scenarios == ["a", "b"]
    assert len(read_results(path).figures) == 2


def test_a_childs_memory_is_seen():
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == b"ready\n"
        assert child.pid in descendants(os.getpid())
        anonymous, total = resident_bytes(child.pid)
        assert 50_000_000 < anonymous <= total
        assert 50_000_000 < private_bytes(child.pid) <= total
        assert HOLD in command_line(child.pid)

        def job() -> None:
            subprocess.run(["sleep", "0.2"], check=True)

        assert sample(os.getpid(), job).anonymous > 50_000_000
        child.stdin.close()
    assert resident_bytes(2**22 + 1) == (0, 0)
    assert command_line(2**22 + 1) == ""
