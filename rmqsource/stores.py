"""Open the stores that the options name, and the tokens that pin them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rmqsource.errors import SourceOptionError
from rmqsource.options import check_commit_log_paths
from store_core.config import MessageStoreConfig, load_broker_config
from store_core.files.store_directory import StoreDirectory, expand_paths
from store_core.store_view import StoreView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqsource.options import SourceOptions

_PATH_KEYS = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


def store_config(options: SourceOptions) -> MessageStoreConfig:
    """Return the configuration of the stores: a broker's file, overridden by options."""
    properties = load_broker_config(options.config) if options.config else {}
    root = properties.get("storePathRootDir", "").rstrip("/")
    for key in _PATH_KEYS:
        if root and key in properties:
            properties[key] = _below_root(properties[key], root)
    properties.update((key, str(value)) for key, value in options.store_config)
    return MessageStoreConfig.from_properties(properties)


def _below_root(paths: str, root: str) -> str:
    """Make a broker's absolute directories relative, so that they hold where the store lies now."""
    names = (name.strip() for name in paths.split(","))
    return ",".join(n[len(root) + 1 :] if n.startswith(root + "/") else n for n in names)


def open_snapshots(options: SourceOptions) -> Iterator[StoreView]:
    """Open each store in turn; the caller closes them.

    Raises
    ------
    StoreError
        A path matches nothing, is no store, or cannot be read.
    """
    paths = tuple(expand_paths(options.paths))
    check_commit_log_paths(options, paths)
    config = store_config(options)
    ends = parse_token(options.snapshot) if options.snapshot is not None else None
    for path in paths:
        yield _open(path, config, ends)


def _open(path: str, config: MessageStoreConfig, ends: Mapping[str, int] | None) -> StoreView:
    if ends is None:
        return StoreView(StoreDirectory(path), config)
    if path not in ends:
        raise SourceOptionError(
            "snapshot", f"the token does not name store {path}; it names {', '.join(ends)}"
        )
    snapshot = StoreView(StoreDirectory(path), config, ends[path])
    held = snapshot.log.segments.max_offset
    if ends[path] > held:
        snapshot.close()
        raise SourceOptionError(
            "snapshot",
            f"the token ends store {path} at {ends[path]}, its log has {held} bytes: it is "
            "another store, or was cut since; make a new token",
        )
    return snapshot


def make_token(options: SourceOptions) -> str:
    """Return a token that pins the present end of each store."""
    ends = {}
    for snapshot in open_snapshots(options):
        with snapshot:
            ends[snapshot.directory.uri] = snapshot.end_offset
    return json.dumps({"ends": ends}, ensure_ascii=False)


def parse_token(token: str) -> dict[str, int]:
    """Return the end of each store by its path."""
    try:
        ends = json.loads(token)["ends"]
        parsed = {str(path): int(end) for path, end in ends.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise SourceOptionError(
            "snapshot", f"{token!r} is no token; make one with rmqsource.snapshot(path)"
        ) from err
    if any(end < 0 for end in parsed.values()):
        raise SourceOptionError("snapshot", "a store cannot end below 0")
    return parsed
