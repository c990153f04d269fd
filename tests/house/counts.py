# SPDX-License-Identifier: Apache-2.0
"""Figures taken from the source alone: modules, rooms, cycles, types, functions, docstrings."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("store_core", "rmqnet", "rmqsource")
# The types that are a store, or a queue, by their names.
_STORES = """MessageStore StoreSnapshot OfflineStore ReadOnlyStore ServedStore OpenStore StoreParts
StoreServices PinnedStore StoreQueries ReadableStore FollowableStore PuttingStore Store
StoreFiles"""
_QUEUES = """ConsumeQueue BatchConsumeQueue ConsumeQueueExt DatabaseQueue SegmentedQueue
ReadableQueue SimpleQueue BatchQueue StoredUnits UnitFiles QueueWriter ConsumeQueueWriter
BatchConsumeQueueWriter ConsumeQueueExtWriter QueueFiles ConsumeQueueStore QueueDatabase
QueueOffsetTable"""
# Each of these calls, draws or shows the result of its namesake, and has its name for that.
_NAMESAKES = ("rmqsource.cli", "rmqsource.plots", "rmqsource.explore.questions", "rmqsource")
# Every table of metadata has ``rows``; a program has ``main``; the sink of a Spark job reads the
# clock without the modules of an open store.
# clock without the modules of an open store.
_ONE_PER_MODULE = ("rows", "main", "now_ms")
_ROOM_LIMIT = 20
_FUNCTION_LIMIT = 50
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (ast.ClassDef, *_FUNCTIONS)

Rows = dict[str, float]
Graph = Mapping[str, set[str]]


class Counts(NamedTuple):
    """Figures by section and row, and the names that make up some of them."""

    figures: dict[str, Rows]
    lists: dict[str, list[str]]


@dataclass(frozen=True)
class Module:
    """A parsed file; its path is relative to the repository, SPDX lines are not counted."""

    name: str
    path: Path
    room: str
    package: str
    lines: int
    tree: ast.Module

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))


def read_modules(root: Path = ROOT) -> list[Module]:
    """Parse the three packages and the modules beside them that Spark imports."""
    paths = [path for package in PACKAGES for path in root.glob(f"{package}/**/*.py")]
    return [_read(path, root) for path in sorted([*paths, *root.glob("pyspark_*.py")])]


def _read(path: Path, root: Path) -> Module:
    data = path.read_bytes()
    lines = sum(not line.startswith(b"# SPDX-") for line in data.splitlines())
    short = path.relative_to(root)
    name = ".".join(short.with_suffix("").parts).removesuffix(".__init__")
    room, package = short.parent.as_posix(), name.partition(".")[0]
    return Module(name, short, room, package, lines, ast.parse(data))


def count_all(modules: list[Module]) -> Counts:
    """Return all figures; modules beside the packages count only as lines and as importers."""
    graph = import_graph(modules)
    product = [module for module in modules if module.package in PACKAGES]
    in_rooms = _circles_within(graph, {module.name: module.room for module in product})
    in_packages = _circles_within(graph, {module.name: module.package for module in product})
    singles, types = single_importers(graph, modules), _types(product)
    lists = {
        "circles inside a room": in_rooms,
        "circles inside a package": in_packages,
        **types,
        "modules with one importer": [f"{a.path} <- {b.path}" for a, b in singles],
    }
    figures: dict[str, Rows] = {
        "size": _sizes(modules),
        f"rooms with more than {_ROOM_LIMIT} modules": _crowded_rooms(product),
        "circles of imports": {
            "inside a room": len(in_rooms),
            "inside a package": len(in_packages),
        },
        "modules with one importer": {
            "all": len(singles),
            "in the room of their importer": sum(a.room == b.room for a, b in singles),
            "lines": sum(module.lines for module, _ in singles),
        },
        "types": {name: len(names) for name, names in types.items()},
        "functions": _functions(product),
        "docstrings": _docstrings(product),
    }
    return Counts(figures, lists)


def _sizes(modules: list[Module]) -> Rows:
    groups = {name: [m for m in modules if m.package == name] for name in PACKAGES}
    groups["the three packages"] = [m for group in groups.values() for m in group]
    groups["pyspark_*.py"] = [m for m in modules if m.package not in PACKAGES]
    rows: Rows = {}
    for name, group in groups.items():
        rows[f"{name}: modules"] = len(group)
        rows[f"{name}: lines"] = sum(module.lines for module in group)
    return rows


def _crowded_rooms(modules: list[Module]) -> Rows:
    """Count the modules of each directory without its ``__init__.py``."""
    counts = Counter(m.room for m in modules if m.path.name != "__init__.py")
    crowded = {room: n for room, n in counts.most_common() if n > _ROOM_LIMIT}
    return {"rooms": len(crowded), **crowded}


def import_graph(modules: list[Module]) -> Graph:
    """Return which modules each one imports, in functions and for type checkers as well.

    ``from package import name`` imports the module of that name if there is one, else the package.
    Packages that are imported only on the way to a module are left out.
    """
    names = {module.name for module in modules}
    return {m.name: set(_imported(m, names)) - {m.name} for m in modules}


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    for node in module.nodes(ast.Import, ast.ImportFrom):
        for alias in node.names:
            origin = getattr(node, "module", alias.name)
            whole = f"{origin}.{alias.name}"
            yield from [name for name in (whole, origin) if name in names][:1]


def _circles_within(graph: Graph, places: Mapping[str, str]) -> list[str]:
    """Return the import cycles between modules of the same place."""
    inside = {a: {b for b in graph[a] if places.get(b) == place} for a, place in places.items()}
    return [", ".join(circle) for circle in circles(inside)]


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of two nodes or more."""
    names = sorted(graph)
    reached = np.array([[b in graph[a] for b in names] for a in names], dtype=np.float32)
    for _ in range(len(names).bit_length()):
        reached = np.minimum(reached + reached @ reached, 1)
    mutual = (reached > 0) & (reached.T > 0)
    groups = sorted({tuple(np.flatnonzero(row)) for row in mutual})
    return [[names[number] for number in circle] for circle in groups if len(circle) > 1]


def single_importers(graph: Graph, modules: list[Module]) -> list[tuple[Module, Module]]:
    """Return each module that exactly one other imports, and that other."""
    by_name = {module.name: module for module in modules}
    importers = defaultdict(list)
    for name, imported in graph.items():
        for other in imported:
            importers[other].append(by_name[name])
    return [(by_name[n], users[0]) for n, users in sorted(importers.items()) if len(users) == 1]


def _types(modules: list[Module]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for module in modules:
        for name in {node.name for node in module.nodes(ast.ClassDef) if node.name[0] != "_"}:
            places[name].append(module.name)
    return {
        "a store": [name for name in _STORES.split() if name in places],
        "a queue": [name for name in _QUEUES.split() if name in places],
        "public class names with two meanings": _shared(places),
        "public aliases and constants with two meanings": _shared(_assigned(modules)),
        "public functions with two meanings": _shared(_module_functions(modules)),
    }


def _shared(places: Mapping[str, list[str]]) -> list[str]:
    return [f"{n}: {', '.join(at)}" for n, at in sorted(places.items()) if len(at) > 1]


def _assigned(modules: list[Module]) -> dict[str, list[str]]:
    """Return where each name of a module gets a value, once for each value or class."""
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for module in modules:
        for node in _outside_functions(module.tree.body):
            for name, meaning in _meanings(node):
                places[name].setdefault(meaning, module.name)
    return {name: list(at.values()) for name, at in places.items()}


def _outside_functions(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):  # only the first of its branches: the other is for old Pythons
            yield from _outside_functions(node.body)


def _meanings(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield public names that a statement defines, with the text of their values."""
    if isinstance(node, ast.ClassDef) and node.name[0] != "_":
        yield node.name, "class"
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        for target in getattr(node, "targets", None) or [node.target]:
            if isinstance(target, ast.Name) and target.id[0] != "_":
                yield target.id, ast.unparse(node.value)


def _module_functions(modules: list[Module]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for module in modules:
        is_namesake = module.room.replace("/", ".").startswith(_NAMESAKES[:2])
        if is_namesake or module.name in _NAMESAKES:
            continue
        for node in module.tree.body:
            if isinstance(node, _FUNCTIONS) and node.name[0] != "_":
                places[node.name].append(module.name)
    return {name: at for name, at in places.items() if name not in _ONE_PER_MODULE}


def _functions(modules: list[Module]) -> Rows:
    """Count functions and methods; decorators do not count as lines of them."""
    nodes = [node for module in modules for node in module.nodes(*_FUNCTIONS)]
    lengths = [node.end_lineno - node.lineno + 1 for node in nodes]
    long = sum(length > _FUNCTION_LIMIT for length in lengths)
    return {
        "functions": len(lengths),
        "median lines": median(lengths),
        f"longer than {_FUNCTION_LIMIT} lines": long,
        f"longer than {_FUNCTION_LIMIT} lines, %": 100 * long / len(lengths),
    }


def _docstrings(modules: list[Module]) -> Rows:
    public = _public_nodes(modules)
    texts = {
        node: node.body[0].end_lineno - node.body[0].lineno + 1
        for module in modules
        for node in module.nodes(ast.Module, *_NAMED)
        if ast.get_docstring(node, clean=False) is not None
    }
    lines, internal = sum(texts.values()), sum(n for node, n in texts.items() if node not in public)
    return {
        "lines": lines,
        "of product lines, %": 100 * lines / sum(module.lines for module in modules),
        "lines on code that is not public": internal,
        "on code that is not public, %": 100 * internal / lines,
    }


def _public_nodes(modules: list[Module]) -> set[ast.AST]:
    """Return the packages, all names in their ``__all__``, and the public methods of these.

    Bases of an exported class are public too: users call their methods.
    """
    exported = {place for package in PACKAGES for place in _exported(package)}
    public: set[ast.AST] = {module.tree for module in modules if module.name in PACKAGES}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, _NAMED) and (module.name, node.name) in exported:
                methods = [child for child in node.body if isinstance(child, _FUNCTIONS)]
                public |= {node, *(m for m in methods if m.name[0] != "_" or m.name[-1] == "_")}
    return public


def _exported(package: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each export of a package, including lazy ones."""
    loaded = import_module(package)
    for value in (getattr(loaded, name) for name in loaded.__all__):
        for part in getattr(value, "__mro__", (value,)):
            yield getattr(part, "__module__", ""), getattr(part, "__qualname__", "")
