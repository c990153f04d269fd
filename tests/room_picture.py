# SPDX-License-Identifier: Apache-2.0
"""The picture of all rooms and their layers, drawn from the import contracts of ``setup.cfg``.

``python -m tests.readme_tables`` writes it; import-linter checks that the code keeps the contracts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from configparser import RawConfigParser, SectionProxy
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
SETUP = ROOT / "setup.cfg"
PICTURE = ROOT / "docs" / "developers" / "rooms.svg"

_WIDTH, _MARGIN, _ROW, _PAD, _HEAD = 960, 16, 20, 5, 58
_NAME_X, _PURPOSE_X, _BASELINE = 58, 236, 14
_MOST_CHARACTERS = 105
_COLOURS = (("#dbeafe", "#2563eb"), ("#fef3c7", "#d97706"), ("#dcfce7", "#16a34a"))
_INK, _GREY = "#0f172a", "#475569"
_NOTES = (
    "A room imports rooms of lower layers, and others of its own layer where that makes no circle.",
    "name/ is a folder, name.py one module. The layers are contracts in setup.cfg, which make lint "
    "checks.",
)
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" \
aria-label="The rooms of the three packages, in layers" \
font-family="Helvetica, Arial, sans-serif" font-size="13">
<title>The rooms of the three packages, in layers</title>
<rect width="{width}" height="{height}" rx="12" fill="#ffffff" stroke="#cbd5e1"/>
{body}
</svg>
"""


class Package(NamedTuple):
    """A package: its layers from the top, each with its rooms, and packages it may not import."""

    name: str
    layers: list[list[str]]
    forbidden: list[str]


class Row(NamedTuple):
    """A line of the picture: a room, and whether it begins a lower layer inside another room."""

    name: str
    purpose: str
    begins_layer: bool = False


class Contracts:
    """The import contracts of a ``setup.cfg``; ValueError if the picture cannot show them."""

    def __init__(self, text: str) -> None:
        self._sections = RawConfigParser()
        self._sections.read_string(text)
        self.roots = self._sections["importlinter"]["root_packages"].split()
        acyclic = [section["ancestors"].split() for section in self._of_type("acyclic_siblings")]
        if self.roots not in acyclic:
            raise ValueError("the picture says that there are no circles, and no contract does")

    def layers(self) -> dict[str, list[list[str]]]:
        """Return the layers of each package or room that has any, from the top."""
        found = {}
        for section in self._of_type("layers"):
            if "ignore_imports" in section:
                raise ValueError(f"the picture does not show the exceptions of {section.name}")
            layers = [_rooms(line) for line in section["layers"].strip().splitlines()]
            found.update(dict.fromkeys(section["containers"].split(), layers))
        return found

    def packages(self) -> list[Package]:
        """Return the packages; those come first that others may not import."""
        forbidden: dict[str, list[str]] = {root: [] for root in self.roots}
        for section in self._of_type("forbidden"):
            if "allow_indirect_imports" not in section:  # else it is about the time of the import
                for root in section["source_modules"].split():
                    forbidden[root] += section["forbidden_modules"].split()
        layers = self.layers()
        found = [Package(root, layers[root], forbidden[root]) for root in self.roots]
        return sorted(found, key=lambda package: len({*package.forbidden} & {*self.roots}))

    def _of_type(self, kind: str) -> Iterator[SectionProxy]:
        for name in self._sections.sections():
            if name.startswith("importlinter:contract:") and self._sections[name]["type"] == kind:
                yield self._sections[name]


def _rooms(line: str) -> list[str]:
    """Return the rooms of a layer; those separated by ``:`` may import each other."""
    rooms = [name.strip() for name in line.split(":")]
    if not all(re.fullmatch(r"\w+", room) for room in rooms):
        raise ValueError(f"the picture does not know what {line.strip()!r} means")
    return rooms


def path_of(module: str) -> Path:
    """Return the folder or the file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


def purpose_of(module: str) -> str:
    """Return the first line of a module's docstring."""
    path = path_of(module)
    source = path / "__init__.py" if path.is_dir() else path
    doc = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    return doc.partition("\n")[0].replace("`", "")


def room_picture(setup: str | None = None) -> str:
    """Return the picture as SVG."""
    contracts = Contracts(SETUP.read_text("utf-8") if setup is None else setup)
    nested = contracts.layers()
    parts, at = [], _MARGIN
    for package, colours in zip(contracts.packages(), _COLOURS):
        drawn, at = _package(package, contracts.roots, nested, colours, at)
        parts += [*drawn, ""]
        at += _MARGIN
    for note in _NOTES:
        at += _ROW
        parts.append(_text(_MARGIN + 2, at - _ROW + _BASELINE, note, fill=_GREY))
    return _PICTURE.format(width=_WIDTH, height=at + _MARGIN // 2, body="\n".join(parts))


def _package(
    package: Package,
    roots: list[str],
    nested: dict[str, list[list[str]]],
    colours: tuple[str, str],
    top: int,
) -> tuple[list[str], int]:
    """Return the parts of the picture for a package, and where they end."""
    light, strong = colours
    parts, at = [], top + _HEAD
    for number, rooms in enumerate(package.layers):
        rows = [row for room in rooms for row in _rows(package.name, room, nested)]
        height = len(rows) * _ROW + 2 * _PAD
        fill = "#ffffff" if number % 2 else "#f8fafc"
        parts.append(
            f'<rect x="{_NAME_X - 10}" y="{at}" width="{_WIDTH - _NAME_X - _MARGIN + 4}" '
            f'height="{height}" fill="{fill}" stroke="#cbd5e1"/>'
        )
        for number_of_row, row in enumerate(rows):
            y = at + _PAD + number_of_row * _ROW + _BASELINE
            parts += [_name(_NAME_X, y, row.name), _text(_PURPOSE_X, y, row.purpose)]
            if row.begins_layer:
                line = y - _BASELINE
                parts.append(
                    f'<line x1="{_NAME_X}" y1="{line}" x2="{_WIDTH - _MARGIN - 20}" y2="{line}" '
                    'stroke="#94a3b8" stroke-dasharray="4 3"/>'
                )
        at += height
    x, begin = _MARGIN + 16, top + _HEAD + 6
    parts += [
        f'<line x1="{x}" y1="{begin}" x2="{x}" y2="{at - 8}" stroke="{strong}" stroke-width="2"/>',
        f'<path d="M{x - 5} {at - 12} L{x} {at - 2} L{x + 5} {at - 12} z" fill="{strong}"/>',
    ]
    head = [
        f'<rect x="{_MARGIN}" y="{top}" width="{_WIDTH - 2 * _MARGIN}" height="{at - top + 8}" '
        f'rx="8" fill="{light}" stroke="{strong}" stroke-width="1.5"/>',
        _name(_MARGIN + 14, top + 24, package.name, size=16),
        _text(_PURPOSE_X, top + 24, purpose_of(package.name), weight="bold"),
        _text(_PURPOSE_X, top + 44, _imports(package, roots), fill=_GREY),
    ]
    return [*head, *parts], at + 8


def _rows(parent: str, room: str, nested: dict[str, list[list[str]]]) -> list[Row]:
    """Return the row of a room, and those of the rooms in it that have layers of their own."""
    module = f"{parent}.{room}"
    rows = [Row(_shown(module, room), _purpose(module))]
    for number, layer in enumerate(nested.get(module, [])):
        for place, inner in enumerate(layer):
            name, purpose = f"{module}.{inner}", _purpose(f"{module}.{inner}")
            rows.append(Row(_shown(name, f"{room}/{inner}"), purpose, number > 0 == place))
    return rows


def _shown(module: str, name: str) -> str:
    return f"{name}/" if path_of(module).is_dir() else f"{name}.py"


def _purpose(module: str) -> str:
    found = purpose_of(module)
    if not 0 < len(found) <= _MOST_CHARACTERS:
        raise ValueError(f"{module}: no first line of a docstring that fits the picture")
    return found


def _imports(package: Package, roots: list[str]) -> str:
    """Return in words which packages a package may import."""
    allowed = [root for root in roots if root not in {package.name, *package.forbidden}]
    may = f"may import {' and '.join(allowed)}" if allowed else ""
    never = f"never imports {', '.join(package.forbidden)}" if package.forbidden else ""
    return "; ".join(filter(None, [may, never]))


def _name(x: int, y: int, text: str, *, size: int = 13) -> str:
    font = "Menlo, Consolas, DejaVu Sans Mono, monospace"
    return (
        f'<text x="{x}" y="{y}" font-family="{font}" font-size="{size}" font-weight="bold" '
        f'fill="{_INK}">{escape(text)}</text>'
    )


def _text(x: int, y: int, text: str, *, fill: str = _INK, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" font-weight="{weight}" fill="{fill}">{escape(text)}</text>'
