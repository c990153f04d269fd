# SPDX-License-Identifier: Apache-2.0
"""Maintenance that requires a JVM or a network: one sequence in fifty has some of it."""

from __future__ import annotations

from pathlib import Path

from rmqnet import ClientConfig, Message, Producer, serve
from rmqnet.errors import ClientError, RemotingError
from store_core import HAClient, HAService, MessageStore
from tests.hostile import spark_session
from tests.hostile.cases import run_cli
from tests.maintenance.doors import Answer
from tests.maintenance.operations import OWN_ERRORS, Operation, Outcome
from tests.maintenance.stores import Store

_NETWORK_ERRORS = (*OWN_ERRORS, ClientError, RemotingError, OSError)
_WAIT_S = 20.0


def _serve(store: Store) -> Outcome:
    """Serve the store on the network, send some messages to it, and stop."""
    settings = {key: value for key, value in store.properties.items() if key != "brokerName"}
    settings["autoCreateTopicEnable"] = "true"
    made = [store.message(of_batches=False) for _ in range(store.chance.randint(1, 6))]
    put: list[bytes] = []
    try:
        with serve(store.root, settings=settings) as served:
            config = ClientConfig(served.namesrv_addr)
            with Producer("maintenance", config) as producer:
                for message in made:
                    sent = producer.send(Message(message.topic, message.body))
                    put += [message.body] if sent.status.name == "SEND_OK" else []
    except _NETWORK_ERRORS as err:
        return Outcome(2, repr(err), put=tuple(put))
    return Outcome(0, f"{len(put)} sent", put=tuple(put))


def _follow(store: Store) -> Outcome:
    """Follow the store until a copy has all of it, stop both, and go on with the copy as master."""
    target = store.another_root()
    _copy_settings(store.root, target)
    try:
        master = MessageStore(store.config())
        slave = MessageStore(store.config(target, brokerRole="SLAVE"))
        with (
            master,
            slave,
            HAService(master, port=0) as service,
            HAClient(slave, service.address, first_offset="earliest") as client,
        ):
            is_whole = client.wait_for(master.max_phy_offset, _WAIT_S)
            failure = client.failure
    except OWN_ERRORS as err:
        return Outcome(2, repr(err))
    if not is_whole:
        return Outcome(2, f"not followed: {failure!r}")
    store.root = target
    return Outcome(0, "followed")


def _copy_settings(root: Path, target: Path) -> None:
    (target / "config").mkdir(parents=True)
    topics = root / "config" / "topics.json"
    if topics.is_file():
        (target / "config" / "topics.json").write_bytes(topics.read_bytes())


def _spark_write(store: Store) -> Outcome:
    """Append a data frame."""
    made = [store.message(of_batches=False) for _ in range(store.chance.randint(1, 12))]
    rows = [(message.topic, message.queue_id, bytearray(message.body)) for message in made]
    frame = spark_session.session().createDataFrame(rows, "topic string, queue_id int, body binary")
    sizes = {key: value for key, value in store.properties.items() if "Size" in key or "max" in key}
    sizes.pop("maxMessageSize")
    writer = frame.write.format("rocketmq-store").mode("append").options(**sizes)
    try:
        writer.option("compatibility", "5").save(str(store.root))
    except Exception as err:
        return Outcome(2, str(err)[-300:])
    return Outcome(0, f"{len(made)} written", put=tuple(message.body for message in made))


def _spark_copy(store: Store) -> Outcome:
    """Copy the store with the command line, and go on with the copy."""
    target = store.another_root()
    sizes = [f"{key}={value}" for key, value in store.properties.items() if "Size" in key]
    options = [a for text in sizes if "Message" not in text for a in ("--write-option", text)]
    with spark_session.commands_share_it():
        answer = run_cli(
            *("copy", store.root, target, *store.flags, *options, "--format", "json"),
            *("--write-option", "compatibility=5", "--write-option", "systemTopics=true"),
        )
    assert "Traceback" not in answer.err, answer.err
    if answer.code == 0 and target.exists():
        store.root = target
    return Outcome(answer.code, answer.err.strip()[-300:])


def spark_scan(store: Store) -> Answer:
    """Return the messages that Spark reads in FAILFAST."""
    options = {"mode": "FAILFAST", "checkCRC": "true", "access": "commitlog"}
    reader = spark_session.session().read.format("rocketmq-store").options(**options)
    try:
        rows = reader.option("config", str(store.config_file)).load(str(store.root))
        return Answer({row[0] for row in rows.select("commit_log_offset").collect()})
    except Exception as err:
        return Answer(set(), str(err)[-300:])


LARGE_OPERATIONS: dict[str, Operation] = {
    "serve and stop": Operation(_serve, opens=True),
    "follow and promote": Operation(_follow, opens=True),
    "df.write": Operation(_spark_write),
    "copy with Spark": Operation(_spark_copy),
}
"""By name."""
