# SPDX-License-Identifier: Apache-2.0
"""What the native kernel knows of records and index entries, as C, from their one declaration.

``python -m tests.readme_tables`` writes it; a test compares.
"""

from __future__ import annotations

from store_core import layout
from tests.conftest import ROOT

HEADER = ROOT / "store_core" / "native" / "layout.h"
_NAMES = (
    "MESSAGE_MAGIC_CODE",
    "MESSAGE_MAGIC_CODE_V2",
    "BLANK_MAGIC_CODE",
    "BLANK_RECORD_BYTES",
    "MIN_RECORD_BYTES",
    "BORNHOST_V6_FLAG",
    "STOREHOST_V6_FLAG",
    "INNER_BATCH_FLAG",
    "IPV4_HOST_BYTES",
    "IPV6_HOST_BYTES",
    "PROPERTIES_LENGTH_BYTES",
    "TRANSACTION_MASK",
    "TRANSACTION_ROLLBACK_TYPE",
    "NAME_VALUE_SEPARATOR",
    "PROPERTY_SEPARATOR",
)

_TEXTS = (
    "PROPERTY_KEYS",
    "PROPERTY_TAGS",
    "PROPERTY_UNIQ_KEY",
    "PROPERTY_INNER_NUM",
    "PROPERTY_INNER_MULTI_DISPATCH",
)


def layout_header() -> str:
    """Return the text of the header file."""
    values = {name: getattr(layout, name) for name in _NAMES}
    values["KEY_SEPARATOR"] = ord(layout.KEY_SEPARATOR)
    values["TAG_TYPE"] = ord(layout.TAG_TYPE)
    values |= {name: f'"{getattr(layout, name)}"' for name in _TEXTS}
    values["HEADER_BYTES"] = layout.HEADER_IPV4.size
    fields = layout.HEADER_IPV4.dtype.names or ()
    values |= {f"AT_{name.upper()}": layout.HEADER_IPV4.at(name) for name in fields}
    entry = layout.INDEX_ENTRY
    values["INDEX_ENTRY_BYTES"] = entry.size
    values |= {f"AT_ENTRY_{name.upper()}": entry.at(name) for name in entry.dtype.names or ()}
    lines = [f"#define {name} {value}" for name, value in values.items()]
    lines += ["#define HEADER_FIELDS(FIELD)", *_numbers()]
    lines[-len(_numbers()) - 1 : -1] = [f"{line} \\" for line in lines[-len(_numbers()) - 1 : -1]]
    return "\n".join(
        [
            "/* SPDX-License-Identifier: Apache-2.0 */",
            "/* Made from store_core/layout.py by tests/layout_header.py: do not edit. */",
            *lines,
            "",
        ]
    )


def _numbers() -> list[str]:
    """Return each number of a header: where it is, its bytes, the hosts before it."""
    fields = layout.HEADER_IPV4.dtype.fields or {}
    found, hosts = [], 0
    for name, (dtype, at, *_) in fields.items():
        if dtype.kind == "V":
            hosts += 1
        else:
            found.append(f"    FIELD({name}, {at}, {dtype.itemsize}, {hosts})")
    return found
