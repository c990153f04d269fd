"""The records of real transactions: decoded, and as bytes; and the bytes that ours become."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from store_core import Message, MessageStoreConfig, StoreSnapshot
from store_core.codec.hosts import parse_host
from store_core.codec.message_codec import StoredRecord, encode_record
from store_core.codec.record_encoder import patch_record
from store_core.message import message_from_record
from store_core.put.put_properties import property_string
from store_core.put.record_template import draft_record, host_bytes, topic_bytes
from tests.golden_store import golden


@functools.cache
def golden_records(name: str) -> tuple[StoredRecord, ...]:
    """Return all records of a golden store, in order."""
    return tuple(_records(name))


def _records(name: str) -> Iterator[StoredRecord]:
    store = golden(name)
    config = MessageStoreConfig.from_properties(store.config_properties)
    with StoreSnapshot(store.root, config) as snapshot, snapshot._reading() as readable:
        for row in store.dump("messages"):
            if not row.get("blank"):
                yield readable.reader.read(row["commit_log_offset"])


def release_of(name: str) -> int:
    """Return the release that wrote a golden store: 5 or 4."""
    return 4 if name.endswith("4x") else 5


def as_message(record: StoredRecord) -> Message:
    """Return a record as a message, its body as it is stored."""
    return message_from_record(record, "")


def bytes_of(record: StoredRecord) -> bytes:
    """Return a record as it lies in the log."""
    return encode_record(record)


def stored_bytes(form: Message, like: StoredRecord) -> bytes:
    """Return the record that a message becomes at the place and the time of another record."""
    raw = property_string(form)
    hosts = host_bytes(form.born_host, form.store_host, like.store_host)
    draft = draft_record(form, topic_bytes(form.topic.encode()), raw, hosts, like.born_timestamp)
    patch_record(draft, like.queue_offset, like.commit_log_offset, like.store_timestamp)
    return bytes(draft)


def host_of(text: str) -> bytes:
    """Return the bytes of ``ip:port``."""
    return parse_host(text)
