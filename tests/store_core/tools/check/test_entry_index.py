# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.layout import DLEDGER_ENTRY, DLEDGER_INDEX_UNIT
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check import entry_check
from tests.golden_dledger import OPTIONS, unpack_dledger
from tests.golden_store import tree_state
from tests.store_core.tools.check.support import all_kinds, checked, kinds

UNIT_BYTES = DLEDGER_INDEX_UNIT.size
FILE_UNITS = 100
FIELDS = ("magic", "pos", "size", "index", "term")


def headers_of(root):
    """Return the headers of all entries, as in the files."""
    config = MessageStoreConfig.from_properties(OPTIONS)
    with StoreSnapshot(root, config) as snapshot:
        found = []
        for segment in snapshot.log.segments:
            if segment.header_bytes:
                data = np.fromfile(segment.path, np.uint8)
                at = 0
                while at + DLEDGER_ENTRY.size < len(data):
                    header = data[at : at + DLEDGER_ENTRY.size].view(DLEDGER_ENTRY.dtype)[0]
                    if header["magic"] != 1:
                        break
                    found.append(header)
                    at += int(header["size"])
    return np.array(found, DLEDGER_ENTRY.dtype)


def write_index(root, headers):
    """Make DLedger's index of these entries, in files of 100 units."""
    last = int(headers["index"].max())
    units = np.zeros(-(-(last + 1) // FILE_UNITS) * FILE_UNITS, DLEDGER_INDEX_UNIT.dtype)
    for name in FIELDS:
        units[name][headers["index"]] = headers[name]
    directory = root / "dledger-n0" / "index"
    directory.mkdir()
    for first in range(0, len(units), FILE_UNITS):
        name = f"{first * UNIT_BYTES:020d}"
        (directory / name).write_bytes(units[first : first + FILE_UNITS].tobytes())
    return directory


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Return the root of a store with three data files, one of which DLedger rebuilds."""
    monkeypatch.setattr(entry_check, "_FILES_RECOVERED", 1)
    root = unpack_dledger("rolled-5x", tmp_path)
    return root, headers_of(root), write_index(root, headers_of(root))


def overwrite(directory, index, data, at=0):
    position = index * UNIT_BYTES + at
    start = position - position % (FILE_UNITS * UNIT_BYTES)
    with (directory / f"{start:020d}").open("r+b") as file:
        file.seek(position - start)
        file.write(data)


def test_an_index_that_leads_to_all_entries_is_good(store):
    root, headers, _ = store
    before = tree_state(root)
    report = checked(root, OPTIONS)
    assert report.is_good, report.findings
    assert not all_kinds(report) & {"ENTRY_INDEX", "ENTRY_INDEX_LATE"}
    assert report.counts.entry_index_units == len(headers) == report.counts.records
    assert tree_state(root) == before


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_of_a_unit_is_compared(store, field):
    root, headers, directory = store
    at = DLEDGER_INDEX_UNIT.at(field)
    width = DLEDGER_INDEX_UNIT.dtype[field].itemsize
    index = int(headers["index"][7])
    overwrite(directory, index, b"\x07" * width, at)
    report = checked(root, OPTIONS)
    (finding,) = [f for f in report.findings if f.kind.name == "ENTRY_INDEX"]
    assert kinds(report) == {"ENTRY_INDEX": 1}
    assert (finding.position, finding.count) == (index * UNIT_BYTES, 1)
    assert finding.commit_log_offset == headers["pos"][7]
    assert finding.examples[0].startswith(f"entry {index} of term {headers['term'][7]}")
    assert "move dledger-*/index away" in finding.advice


def test_units_that_dledger_makes_anew_are_no_damage(store):
    root, headers, directory = store
    last = int(headers["index"][-1])
    overwrite(directory, last - 1, bytes(2 * UNIT_BYTES))
    report = checked(root, OPTIONS)
    assert report.is_good
    (finding,) = [f for f in report.findings if f.kind.name == "ENTRY_INDEX_LATE"]
    assert (finding.count, finding.position % (FILE_UNITS * UNIT_BYTES)) == (
        2,
        (last - 1) % FILE_UNITS * UNIT_BYTES,
    )


def test_a_lost_file_lacks_all_its_units(store):
    root, _, directory = store
    (directory / f"{FILE_UNITS * UNIT_BYTES:020d}").unlink()
    found = kinds(checked(root, OPTIONS))
    assert found == {"ENTRY_INDEX": FILE_UNITS}


def test_a_cut_file_lacks_those_behind_the_cut(store):
    root, headers, directory = store
    with (directory / f"{0:020d}").open("r+b") as file:
        file.truncate(10 * UNIT_BYTES + 5)
    found = kinds(checked(root, OPTIONS))
    held = int(np.count_nonzero((headers["index"] >= 10) & (headers["index"] < FILE_UNITS)))
    assert found == {"ENTRY_INDEX": held}


def test_files_that_cannot_be_an_index_are_told(store):
    root, _, directory = store
    (directory / f"{FILE_UNITS * UNIT_BYTES + 1:020d}").write_bytes(b"x")
    report = checked(root, OPTIONS)
    assert kinds(report) == {"ENTRY_INDEX": 1}


def test_a_store_without_the_index_is_good(store):
    root, _, directory = store
    for path in directory.iterdir():
        path.unlink()
    report = checked(root, OPTIONS)
    assert report.is_good
    assert report.counts.entry_index_units == 0


def test_a_log_that_is_named_by_its_path_is_checked_beside_two_nodes(store):
    root, headers, _ = store
    (root / "dledger-n1").mkdir()
    named = {
        **OPTIONS,
        "storePathDLedgerCommitLog": str(root / "dledger-n0" / "data"),
        "dLegerPeers": "n0-127.0.0.1:40911",
    }
    report = checked(root, named)
    assert report.is_good, report.findings
    assert (report.counts.records, report.counts.entry_index_units) == (len(headers), 0)
    report = checked(root, {**named, "dLegerSelfId": "n0"})
    assert report.counts.entry_index_units == len(headers)
