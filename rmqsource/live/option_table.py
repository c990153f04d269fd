"""Every option of the source ``rocketmq``, declared once; what the file source has is as there."""

from __future__ import annotations

import re
from functools import partial

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_table import OPTION_TABLE, OptionInfo
from rmqsource.options.option_values import (
    INT32_MAX,
    parse_bool,
    parse_bytes,
    parse_choice,
    parse_duration_ms,
    parse_int,
)
from rmqsource.sink.option_table import SINK_OPTION_TABLE
from rmqsource.tables import LIVE_TABLES

ACCESS_PATHS = ("auto", "consumequeue", "index")
DEFAULT_GROUP = "TOOLS_CONSUMER"
"""The group of RocketMQ's own tools: every broker knows it without being told."""

DEFAULT_PRODUCER_GROUP = "SPARK_PRODUCER"

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:;\[\]]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_MAX_BATCH_BYTES = 4 << 20
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")


def _text(option: str, text: str) -> str:
    if not text.strip():
        raise SourceOptionError(option, "is empty; give a value or leave the option away")
    return text.strip()


def _secret(option: str, text: str) -> str:
    """Return a value that no error shows."""
    if not text:
        raise SourceOptionError(option, "is empty; give a value or leave the option away")
    return text


def _addresses(option: str, text: str) -> str:
    """Return addresses joined by semicolons; commas and blanks are taken for such."""
    found = [part for part in re.split(r"[;,\s]+", text) if part]
    for address in found:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
            raise SourceOptionError(
                option, f"expected HOST:PORT, several separated by ';'; found {address!r}"
            )
    if not found:
        raise SourceOptionError(option, "is empty; give HOST:PORT of a name server, as h1:9876")
    return ";".join(dict.fromkeys(found))


def _group(option: str, text: str) -> str:
    if not _GROUP.fullmatch(text.strip()):
        raise SourceOptionError(
            option, f"expected one group name of letters, digits and % | _ -; found {text!r}"
        )
    return text.strip()


_count = partial(parse_int, low=1, high=INT32_MAX)

_CONNECTION = (
    OptionInfo(
        "namesrvAddr",
        "",
        "name servers, `host:port`, several separated by `;`; needed",
        "namesrv_addr",
        _addresses,
    ),
    OptionInfo(
        "accessKey", "", "of RocketMQ's ACL; with `secretKey`; never shown", "access_key", _secret
    ),
    OptionInfo("secretKey", "", "of RocketMQ's ACL; never shown", "secret_key", _secret),
    OptionInfo(
        "securityToken", "", "of temporary credentials; never shown", "security_token", _secret
    ),
    OptionInfo("useTLS", "false", "`true`: all connections by TLS", "use_tls", parse_bool),
    OptionInfo(
        "tlsCaFile",
        "",
        "certificates to trust, PEM; those of the system if not given",
        "ca_file",
        _text,
    ),
    OptionInfo(
        "tlsCertFile", "", "certificate to show, PEM, where brokers ask for one", "cert_file", _text
    ),
    OptionInfo("tlsKeyFile", "", "its private key, PEM", "key_file", _text),
    OptionInfo("tlsKeyPassword", "", "of that key; never shown", "tls_key_password", _secret),
    OptionInfo(
        "tlsVerify",
        "true",
        "`false`: take any certificate, which protects from nobody who can answer in a broker's "
        "place",
        "verify",
        parse_bool,
    ),
    OptionInfo(
        "requestTimeout",
        "10s",
        "how long one request waits for its answer",
        "request_timeout_ms",
        parse_duration_ms,
    ),
    OptionInfo(
        "retryTimeout",
        "60s",
        "how long a task goes on trying where a broker is away or too busy, before it fails",
        "retry_timeout_ms",
        parse_duration_ms,
    ),
)

_SHARED_NAMES = frozenset(
    {
        *("topic", "topicPattern", "queueId", "startingTimestamp", "endingTimestamp"),
        *("startingOffsets", "endingOffsets", "keys", "uniqueKeys", "tags", "sqlFilter"),
        *("sqlDialect", "where", "mode", "checkCRC", "storeTimeSlackMs"),
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("minPartitions", "maxPartitions", "batchRows", "batchBytes", "maxDecodedBytes", "body"),
    }
)
SHARED_OPTIONS = tuple(info for info in OPTION_TABLE if info.name in _SHARED_NAMES)
"""Options that mean here what they mean to `rocketmq-store`."""

_OWN_OPTIONS = (
    OptionInfo(
        "table",
        "messages",
        "one of " + ", ".join(LIVE_TABLES),
        "table",
        partial(parse_choice, choices=tuple(LIVE_TABLES)),
    ),
    OptionInfo(
        "access",
        "auto",
        "how messages are found: `consumequeue` pulls the queues; `index` asks the brokers' "
        "indexes for `keys` or `uniqueKeys`; `auto` does that where they and a topic are given",
        "access",
        partial(parse_choice, choices=ACCESS_PATHS),
    ),
    OptionInfo(
        "consumerGroup",
        DEFAULT_GROUP,
        "names the reader to the brokers",
        "consumer_group",
        _group,
    ),
    OptionInfo(
        "commitOffsets",
        "false",
        "stream: `true` commits offsets of finished batches for `consumerGroup`",
        "commit_offsets",
        parse_bool,
    ),
    OptionInfo(
        "maxMessagesPerPull",
        "32",
        "messages asked for in one request; brokers give no more than their own limits (32)",
        "max_messages_per_pull",
        _count,
    ),
    OptionInfo(
        "failOnDataLoss",
        "true",
        "asked-for offsets that are gone are an error; `false`: skipped, with a warning",
        "fail_on_data_loss",
        parse_bool,
    ),
    OptionInfo(
        "dedupe",
        "false",
        "`true`: drop the repeats of what `write` and `writeStream` sent more than once; see "
        "[repeats](#repeats)",
        "dedupe",
        parse_bool,
    ),
)

LIVE_OPTION_TABLE = (*_CONNECTION, *_OWN_OPTIONS, *SHARED_OPTIONS)
"""Every reading option."""

_SINK_NAMES = (
    *("topic", "compatibility", "compressBodyOver", "compression", "systemTopics", "badRows"),
    *("maxMessageSize", "checkpointLocation"),
)

LIVE_SINK_OPTION_TABLE = (
    *_CONNECTION,
    *(info for info in SINK_OPTION_TABLE if info.name in _SINK_NAMES),
    OptionInfo(
        "producerGroup", DEFAULT_PRODUCER_GROUP, "names the writer to the brokers", "group", _group
    ),
    OptionInfo(
        "sendBatchBytes",
        "512k",
        "most bytes of messages in one request, at most 4m; one message at least is sent",
        "send_batch_bytes",
        partial(parse_bytes, high=_MAX_BATCH_BYTES),
    ),
)
"""Every writing option."""
