from __future__ import annotations

import pytest

from store_core.config.config_writing import to_fastjson
from store_core.config.lenient_json import parse_lenient_json
from tests.golden_store import golden


@pytest.mark.parametrize("name", ["cluster-4x", "cluster-5x", "cluster-5x-ext"])
def test_files_of_brokers_are_written_again_byte_for_byte(name):
    files = [
        path
        for path in (golden(name).root / "config").iterdir()
        if path.name.removesuffix(".bak").endswith(".json")
    ]
    assert len(files) >= 10
    for path in files:
        assert to_fastjson(parse_lenient_json(path.read_text())) == path.read_text(), path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"a": [], "b": {}}, '{\n\t"a":[],\n\t"b":{}\n}'),
        ({'ä\n\t"': None}, '{\n\t"ä\\n\\t\\"":null\n}'),
        ({"a": {1: True, -2: "x"}}, '{\n\t"a":{1:true,-2:"x"\n\t}\n}'),
        (["\ud800"], '["\\ud800"]'),
    ],
)
def test_forms(value, text):
    assert to_fastjson(value) == text
    assert parse_lenient_json(text) == value
