# SPDX-License-Identifier: Apache-2.0
"""A forked child must not touch the store that its parent has open, whatever the store's state."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from store_core import Message, MessageStore, MessageStoreConfig
from store_core.errors import StoreError
from tests.hostile.cases import OWN_ERRORS, Case, WrongError
from tests.hostile.state import differences, state_of
from tests.store_core.crash.by_hand import dispatch_all, without_threads

_REFUSED = {
    "put_message": lambda store: store.put_message(Message("Fork", b"child")),
    "append_batch": lambda store: store.append_batch(
        pa.record_batch({"topic": ["Fork"], "body": [b"child"]})
    ),
    "get_message": lambda store: store.get_message("g", "Fork", 0, 0, 9),
}
_LET = {"shutdown": lambda store: store.shutdown()}
_ABOUT_THE_LOCK = ("lock", "checkpoint")  # the parent's services write the checkpoint meanwhile


def fork(case: Case) -> str:
    """Put, let a child try, put again: exactly the acknowledged messages must be there."""
    config = MessageStoreConfig.from_properties(case.base.properties)
    store = MessageStore(replace(config, store_path_root_dir=str(case.root)))
    try:
        store.load(cut=False)
        with without_threads():  # only the child can have made changes while it tries
            store.start()
    except OWN_ERRORS as err:
        store.shutdown()
        return type(err).__name__
    put: list[bytes] = []
    topic = f"Fork{len(case.commands)}"  # the command may be run twice
    try:
        _put(store, topic, put, 3)
        if not put:
            return "refused"
        dispatch_all(store)
        store.flush()
        before = _content(case)
        said = _in_child(store)
        wrong = {name: said[name] for name in _REFUSED if said[name] != "refused"}
        if wrong or said["shutdown"] not in {"refused", "done"}:
            raise WrongError(f"a forked child was not refused: {wrong or said}")
        changed = differences(before, _content(case))
        if changed:
            raise WrongError(f"a forked child changed the store: {changed}")
        _put(store, topic, put, 3)
    finally:
        store.shutdown()
    rows = case.rows(("topic", "body"), mode="DROPMALFORMED", failOnDataLoss="false")
    found = [row["body"] for row in rows or () if row["topic"] == topic]
    if sorted(found) != sorted(put):
        raise WrongError(f"put were {put}, read are {found}")
    return "put"


def _put(store: MessageStore, topic: str, put: list[bytes], count: int) -> None:
    for _ in range(count):
        body = b"parent %d" % len(put)
        if store.put_message(Message(topic, body)).status.name == "PUT_OK":
            put.append(body)


def _content(case: Case) -> dict[str, Any]:
    found = state_of(case.root)
    return {name: (f[0], f[2], f[4]) for name, f in found.items() if name not in _ABOUT_THE_LOCK}


def _in_child(store: MessageStore) -> dict[str, str]:
    """Fork, and return the outcome of each call in the child."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are the point of this test
        pid = os.fork()
    if pid == 0:
        said = {name: _try(work, store) for name, work in {**_REFUSED, **_LET}.items()}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    status = os.waitpid(pid, 0)[1]
    if status or not text:
        raise WrongError(f"the forked child ended with {status}")
    said = json.loads(text)
    assert isinstance(said, dict)
    return said


def _try(work: Callable[[MessageStore], Any], store: MessageStore) -> str:
    try:
        work(store)
    except StoreError:
        return "refused"
    except BaseException as err:
        return repr(err)
    return "done"
