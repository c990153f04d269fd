# SPDX-License-Identifier: Apache-2.0
"""Prepare a write on the driver: check the store and collect what the tasks need to know of it."""

from __future__ import annotations

import logging
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmqnet.broker.store_host import store_host
from rmqnet.errors import ClientError
from rmqsource.options.option_values import parse_int
from rmqsource.options.source_options import SourceOptions
from rmqsource.scan.store_versions import store_properties
from rmqsource.sink.errors import SinkCommitError
from rmqsource.sink.local_host import address_bytes, local_address
from rmqsource.sink.write_plan import SinkPlan
from store_core.codec.message_id import parse_host
from store_core.config.config_files import load_topics
from store_core.config.message_store_config import (
    MessageStoreConfig,
    load_broker_config,
    warn_of_ignored,
    with_default_sizes,
)
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import with_tag_index
from store_core.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIR,
    CONFIG_DIR,
    CONSUME_QUEUE_DIR,
    LOCK_FILE,
)
from store_core.log.commit_log import CommitLog
from store_core.staged_commit.staging import STAGING_DIRECTORY, check_staging
from store_core.state.store_state import require_writable

if TYPE_CHECKING:
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.sink.options import SinkOptions

logger = logging.getLogger(__name__)

_BROKER_PORT = 10911
_MAX_PORT = 65_535
_STORE_NAMES = frozenset({COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, CHECKPOINT_FILE, CONFIG_DIR})
_FIRST_NAMES = frozenset({STAGING_DIRECTORY, LOCK_FILE, ABORT_FILE})
"""Files left by a writer that died while creating a store."""


def sink_config(options: SinkOptions) -> MessageStoreConfig:
    """Return the configuration of the store: the broker's file, overridden by options."""
    return MessageStoreConfig.from_properties(_properties(options))


def _properties(options: SinkOptions) -> dict[str, str]:
    return store_properties(
        SourceOptions((options.path,), config=options.config, store_config=options.store_config)
    )


def plan_write(options: SinkOptions, columns: SinkColumns) -> SinkPlan:
    """Check the store and return the plan of one write.

    Raises
    ------
    SinkCommitError
        There is no store and ``createStore`` is false, or the directory holds something else.
    StoreError
        The store cannot be read.
    """
    _check_root(options)
    check_staging(options.path)
    properties = _properties(options)
    warn_of_ignored(properties, options.config or "options")
    config = MessageStoreConfig.from_properties(properties)
    directory = StoreDirectory(options.path)
    require_writable(directory)
    with closing(CommitLog(directory, config)) as log:
        segment_bytes = log.segments.file_size
        host = _store_host(options, log)
        tag_index = with_tag_index(config, directory, log).tag_index_enable
    sizes = with_default_sizes(config)
    topics = load_topics(directory) or {}
    return SinkPlan(
        options,
        columns,
        str(Path(options.path, STAGING_DIRECTORY, uuid.uuid4().hex)),
        store_host=host,
        segment_bytes=segment_bytes or sizes.mapped_file_size_commit_log or 1 << 30,
        delay_levels_ms=tuple(config.delay_levels_ms),
        topic_queues={name: topic.write_queue_nums for name, topic in topics.items()},
        batch_topics=frozenset(name for name, topic in topics.items() if topic.has_batch_queues),
        property_crc=config.enabled_append_prop_crc,
        tag_index=bool(tag_index),
    )


def why_no_store(path: str) -> str | None:
    """Return why a directory is not a store and cannot become one; None if it is or can.

    Raises
    ------
    OSError
        The directory cannot be read.
    """
    names = _names_in(path)
    if not names or names & _STORE_NAMES:
        return None
    return (
        f"the directory has other contents ({', '.join(sorted(names)[:5])}) and is not a "
        "RocketMQ store; give a store, or an empty or new directory"
    )


def _names_in(path: str) -> set[str]:
    try:
        return {entry.name for entry in Path(path).iterdir()} - _FIRST_NAMES
    except FileNotFoundError:
        return set()


def _check_root(options: SinkOptions) -> None:
    try:
        reason = why_no_store(options.path)
        is_there = bool(_names_in(options.path))
    except OSError as err:
        raise SinkCommitError(options.path, err.strerror or str(err)) from err
    if reason is not None:
        raise SinkCommitError(options.path, reason)
    if is_there:
        return
    if not options.create_store:
        raise SinkCommitError(
            options.path, "there is no store; correct the path, or set 'createStore' to true"
        )


def _store_host(options: SinkOptions, log: CommitLog) -> bytes:
    """Return the broker's address for offset message ids, where tools ask for a message.

    It is ``brokerIP1`` of the broker's file if its address is known, else the store host of
    messages in the store, whose broker will serve the new ones as well. A new store gets this
    machine's address.
    """
    broker = load_broker_config(options.config) if options.config else {}
    address, port = broker.get("brokerIP1", "").strip(), _BROKER_PORT
    if "listenPort" in broker:
        port = parse_int("config", broker["listenPort"], 0, _MAX_PORT)
    if address:
        try:
            return parse_host(store_host(address, port))
        except (ClientError, ValueError) as err:
            logger.warning("%s: brokerIP1=%s is ignored: %s", options.config, address, err)
    return _newest_host(log) or address_bytes(local_address(), port)


def _newest_host(log: CommitLog) -> bytes | None:
    """Return the store host of the first record in the newest segment that begins with one."""
    for segment in reversed(list(log.segments)):
        end_offset = segment.from_offset + log.segments.file_size
        frames = log.frames_at(segment, np.array([segment.from_offset]), end_offset)
        if frames.ok.all():
            ((_, hosts),) = frames.hosts("store_host")
            newest: bytes = hosts[0].tobytes()
            return newest
    return None
