# SPDX-License-Identifier: Apache-2.0
"""Stores of every kind on remote storage: rows and tables equal those of the local copy."""

from __future__ import annotations

import pytest

from bench.object_store import ObjectStore
from rmqsource.metadata import METADATA_TABLES
from rmqsource.scan.store_versions import open_snapshots
from tests.golden_store import GOLDEN_DIR, unpack
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import parsed, read_rows
from tests.store_core.remote import serve_objects

KINDS = {
    "databases/cluster-5x": {"maxHashSlotNum": "125", "maxIndexNum": "500"},
    "databases/cluster-v2-5x": {"maxHashSlotNum": "125", "maxIndexNum": "500"},
    "dledger/mixed-5x": {"maxHashSlotNum": "100", "maxIndexNum": "400"},
    "compacted-5x": {"maxHashSlotNum": "100", "maxIndexNum": "400"},
    "timers/killed-5x": {"maxHashSlotNum": "100", "maxIndexNum": "400"},
}
WAYS = [{}, {"access": "commitlog"}, {"access": "consumequeue"}, {"access": "compaction"}]


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    unpack(GOLDEN_DIR / request.param / "store.tar.gz", tmp_path)
    return request.param, tmp_path / "store", KINDS[request.param]


def without_store(rows):
    return [{name: value for name, value in row.items() if name != "store"} for row in rows]


def in_order(rows):
    return sorted(without_store(rows), key=repr)


def tables(place, options):
    (snapshot,) = open_snapshots(parsed(place, **options))
    with snapshot:
        return {
            name: in_order(rows_of(snapshot, name))
            for name in METADATA_TABLES
            if name != "segments"  # paths, and change times, which may not be exact there
        }


def test_rows_and_tables_are_those_of_the_local_copy(kind, monkeypatch):
    name, root, options = kind
    uri = serve_objects(monkeypatch, ObjectStore(0), str(root))
    topic = max((row["topic"] for row in read_rows(root, **options)), key=len)
    for way in WAYS:
        if way.get("access") == "compaction" and name != "compacted-5x":
            continue
        given = {**options, **way}
        if way.get("access") == "consumequeue":
            given["topic"] = topic
        assert in_order(read_rows(uri, **given)) == in_order(read_rows(root, **given)), way
    assert tables(uri, options) == tables(root, options)
