# SPDX-License-Identifier: Apache-2.0
"""The generated parts of pages, tables and a picture: ``python -m tests.readme_tables``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

from rmqnet import ClientConfig, ProducerConfig, PullConsumerOptions, PushConsumerOptions
from rmqsource.exit_codes import MEANINGS
from rmqsource.live.live_options import LIVE_OPTION_TABLE, LIVE_SINK_OPTION_TABLE
from rmqsource.options.option_values import OptionInfo
from rmqsource.options.source_options import OPTION_TABLE
from rmqsource.sink.options import SINK_OPTION_TABLE
from rmqsource.tables import LIVE_TABLES, TABLES, Column, Table
from tests.layout_header import HEADER, layout_header
from tests.room_picture import PICTURE, room_picture

README = Path(__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"
CONTRIBUTING = README.with_name("CONTRIBUTING.md")
_OF_THE_ROOT = (CONTRIBUTING, README.with_name("CHANGELOG.md"), README.with_name("SECURITY.md"))
PAGES = (README, *_OF_THE_ROOT, *sorted(DOCS.rglob("*.md")))


def columns_section() -> str:
    """Return every table of the source with its columns."""
    return "\n".join(_columns(TABLES.values()))


def live_columns_section() -> str:
    """Return the tables that only a running cluster has."""
    return "\n".join(_columns(t for name, t in LIVE_TABLES.items() if name not in TABLES))


def _columns(tables: Iterable[Table]) -> Iterator[str]:
    shown: list[Column] = []
    for table in tables:
        is_more = bool(shown) and set(shown) <= set(table.columns)  # keys: messages, and more
        more = "; the columns of `messages`, and" if is_more else ""
        yield f"\n**`{table.name}`**: {table.doc}{more}\n"
        yield "| column | type | null | meaning |"
        yield "|---|---|---|---|"
        shown = shown or list(table.columns)
        for column in table.columns:
            if is_more and column in shown:
                continue
            yield _row(f"`{column.name}`", column.type, column.nullable, column.doc)
        for column in table.on_demand:
            doc = f"{column.doc}; only if `.schema()` names it"
            yield _row(f"`{column.name}`", column.type, column.nullable, doc)


def _row(name: str, kind: str, nullable: bool, doc: str) -> str:
    return f"| {name} | `{kind}` | {'yes' if nullable else ''} | {_cell(doc)} |"


def options_section() -> str:
    """Return every option of the source."""
    return _options(OPTION_TABLE)


def sink_options_section() -> str:
    """Return every option of the sinks."""
    return _options(SINK_OPTION_TABLE)


def _options(table: Iterable[OptionInfo]) -> str:
    lines = ["", "| option | default | meaning |", "|---|---|---|"]
    for info in table:
        default = f"`{info.default}`" if info.default else ""
        lines.append(f"| `{info.name}` | {default} | {_cell(info.meaning)} |")
    return "\n".join(lines)


def live_options_section() -> str:
    """Return every option for reads of a cluster."""
    return _options(LIVE_OPTION_TABLE).replace("](#sql92)", "](reading.md#sql92)")


def live_sink_options_section() -> str:
    """Return every option for writes to a cluster but those of the connection, as for reads."""
    return _options(info for info in LIVE_SINK_OPTION_TABLE if info not in LIVE_OPTION_TABLE)


def settings_section(kind: type[Any]) -> str:
    """Return every setting of a dataclass, with its description from the docstring."""
    defaults = {field.name: field.default for field in fields(kind)}
    lines = ["", "| setting | default | meaning |", "|---|---|---|"]
    for names, meaning in _parameters(inspect.getdoc(kind) or "").items():
        shown = [_shown(defaults.pop(name)) for name in names]
        given = ", ".join(f"`{text}`" for text in shown if text)
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {given} | {_cell(meaning)} |")
    if defaults:
        raise ValueError(f"{kind.__name__}: the docstring says nothing of {', '.join(defaults)}")
    return "\n".join(lines)


def _parameters(doc: str) -> dict[tuple[str, ...], str]:
    """Return the descriptions of parameters in a numpydoc docstring, each as one line, in order."""
    text = doc.partition("Parameters\n----------\n")[2]
    text = re.split(r"\n\n\w+\n-+\n", text)[0]
    found = {}
    for names, meaning in re.findall(r"^(\w.*)\n((?: {4}.*(?:\n|$))+)", text, re.MULTILINE):
        found[tuple(names.split(", "))] = " ".join(meaning.split()).replace("``", "`")
    return found


def _shown(default: object) -> str:
    if default is MISSING:
        return ""
    return getattr(default, "name", None) or repr(default).strip("'")


def exit_codes_section() -> str:
    """Return every exit code of the command line."""
    lines = ["", "| exit code | meaning |", "|---|---|"]
    return "\n".join([*lines, *(f"| {code} | {_cell(text)} |" for code, text in MEANINGS.items())])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


SECTIONS = {
    "columns": (DOCS / "reading.md", columns_section),
    "options": (DOCS / "reading.md", options_section),
    "sink options": (DOCS / "writing.md", sink_options_section),
    "live columns": (DOCS / "live.md", live_columns_section),
    "live options": (DOCS / "live.md", live_options_section),
    "live sink options": (DOCS / "live.md", live_sink_options_section),
    "client config": (DOCS / "client.md", partial(settings_section, ClientConfig)),
    "producer config": (DOCS / "client.md", partial(settings_section, ProducerConfig)),
    "push options": (DOCS / "client.md", partial(settings_section, PushConsumerOptions)),
    "pull options": (DOCS / "client.md", partial(settings_section, PullConsumerOptions)),
    "exit codes": (DOCS / "command-line.md", exit_codes_section),
}
"""Name of a generated part -> its page, and the function that makes it."""


def with_tables(page: Path) -> str:
    """Return the text of a page with its generated parts rebuilt."""
    text = page.read_text("utf-8")
    for name, (where, section) in SECTIONS.items():
        pattern = rf"<!-- {name} -->\n.*?<!-- end of {name} -->"
        whole = f"<!-- {name} -->\n{section()}\n\n<!-- end of {name} -->"
        text, count = re.subn(pattern, whole.replace("\\", r"\\"), text, flags=re.DOTALL)
        if count != (where == page):
            raise ValueError(f"{page.name} has {count} places for the {name}")
    return text


if __name__ == "__main__":
    for changed in PAGES:
        changed.write_text(with_tables(changed), "utf-8")
    PICTURE.write_text(room_picture(), "utf-8")
    HEADER.write_text(layout_header(), "utf-8")
