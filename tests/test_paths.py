# SPDX-License-Identifier: Apache-2.0
"""Parameters for paths accept a text and a ``pathlib.Path``, in all three packages."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

import rmqsource
from rmqnet import (
    ClientError,
    MessageModel,
    PushConsumer,
    PushConsumerOptions,
    TlsConfig,
    serve,
)
from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.config.message_store_config import load_broker_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = MessageStoreConfig(
        store_path_root_dir=tmp_path / "store",  # type: ignore[arg-type]  # kept as a text
        store_path_commit_log=tmp_path / "log",  # type: ignore[arg-type]
        mapped_file_size_commit_log=1 << 16,
    )
    assert config.store_path_commit_log == str(tmp_path / "log")
    with MessageStore(config) as store:
        store.put_message(Message(topic="t", queue_id=0, body=b"x"))
    return tmp_path / "store"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_store_is_read(root: Path, kind: type) -> None:
    path = kind(root)
    options = {"storePathCommitLog": kind(root.parent / "log")}
    config = MessageStoreConfig(store_path_commit_log=str(root.parent / "log"))
    with StoreSnapshot(path, config) as snapshot:
        assert snapshot.get_max_offset_in_queue("t", 0) == 1
    assert "t" in rmqsource.explain([path], {**options, "topic": "t"})
    assert rmqsource.snapshot(path, options) == rmqsource.snapshot([path], options)
    assert rmqsource.last_commit(path) is None
    assert rmqsource.clean_staging(path) == []
    with serve(path, read_only=True, port=0, namesrv_port=0, settings=options) as served:
        assert served.state().log_end > 0


@pytest.mark.parametrize("kind", [str, Path])
def test_a_brokers_file_is_read(tmp_path: Path, kind: type) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=48\n")
    path = kind(tmp_path / "broker.conf")
    assert load_broker_config(path) == {"fileReservedTime": "48"}
    assert MessageStoreConfig.from_file(path).file_reserved_time == 48


@pytest.mark.parametrize("kind", [str, Path])
def test_offsets_of_a_broadcasting_consumer_are_kept(tmp_path: Path, kind: type) -> None:
    options = PushConsumerOptions(
        message_model=MessageModel.BROADCASTING, offset_directory=kind(tmp_path)
    )
    consumer = PushConsumer("g", "127.0.0.1:1", lambda messages, context: None, options=options)
    file = consumer._local_file()
    assert file._path == tmp_path / consumer.client_id / "g" / "offsets.json"


def test_a_number_is_no_directory() -> None:
    with pytest.raises(ClientError, match="offset_directory=5: expected a string"):
        PushConsumerOptions(offset_directory=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [str, Path])
def test_files_of_tls(tmp_path: Path, kind: type) -> None:
    missing = kind(tmp_path / "ca.pem")
    with pytest.raises(ClientError, match=r"ca\.pem is not a readable PEM file"):
        TlsConfig(ca_file=missing).ssl_context()
    with pytest.raises(ClientError, match=r"ca\.pem is given without cert_file"):
        TlsConfig(key_file=missing).ssl_context()
    assert isinstance(TlsConfig().ssl_context(), ssl.SSLContext)
