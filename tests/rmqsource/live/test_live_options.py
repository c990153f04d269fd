# SPDX-License-Identifier: Apache-2.0
"""Options for reads and writes of clusters: refusals give the reason, and no secret shows."""

from __future__ import annotations

import pickle

import pytest

from rmqnet.remoting.acl import AclCredentials
from rmqnet.remoting.tls import TlsConfig
from rmqsource.errors import SourceOptionError
from rmqsource.live.cluster import credentials, tls_config
from rmqsource.live.live_options import (
    EVERYTHING,
    LIVE_OPTION_TABLE,
    LIVE_SINK_OPTION_TABLE,
    SQL92,
    TAG,
    PullExpression,
    parse_live_options,
    parse_live_sink_options,
    subscription_of,
)

GIVEN = {"namesrvAddr": "h1:9876", "topic": "orders"}
SECRETS = {
    "accessKey": "AKIA-hidden-1",
    "secretKey": "hidden-2",
    "securityToken": "hidden-3",
    "useTLS": "true",
    "tlsKeyFile": "/key.pem",
    "tlsKeyPassword": "hidden-4",
}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"namesrvAddr": None}, "namesrvAddr.*is required"),
        ({"namesrvAddr": "h1"}, "expected HOST:PORT.*found 'h1'"),
        ({"namesrvAddr": "h1:99999"}, "expected HOST:PORT"),
        ({"topic": None}, "'topic': is required, or 'topicPattern'"),
        ({"topic": "%LMQ%x"}, "light queue"),
        ({"topik": "x"}, "did you mean 'topic'"),
        ({"table": "segments"}, "expected one of messages, topics, queues"),
        ({"table": "queues", "tags": "a"}, "does not apply to table 'queues'"),
        ({"secretKey": "hidden"}, "'secretKey': requires 'accessKey'"),
        ({"accessKey": "hidden"}, "'accessKey': requires 'secretKey'"),
        ({"securityToken": "hidden"}, "requires 'accessKey' and 'secretKey'"),
        ({"tlsCaFile": "/ca.pem"}, "no effect without useTLS=true"),
        ({"useTLS": "true", "tlsKeyPassword": "hidden"}, "requires 'tlsKeyFile'"),
        ({"commitOffsets": "true", "consumerGroup": "g"}, "is for streams"),
        ({"access": "index"}, "requires option 'keys' or 'uniqueKeys'"),
        ({"maxBytesPerTrigger": "1m"}, "is unknown"),
        ({"maxOffsetsPerTrigger": "1"}, "is for streams"),
        ({"consumerGroup": "a b"}, "expected one group name"),
        ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
    ],
    ids=str,
)
def test_refused(more, message):
    given = {name: text for name, text in {**GIVEN, **more}.items() if text is not None}
    with pytest.raises(SourceOptionError, match=message) as refused:
        parse_live_options(given)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dedupe": "true"}, "dropDuplicatesWithinWatermark"),
        ({"table": "queues"}, "cannot be followed"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"commitOffsets": "true"}, "requires 'consumerGroup'"),
    ],
    ids=str,
)
def test_refused_for_streams(more, message):
    with pytest.raises(SourceOptionError, match=message):
        parse_live_options({**GIVEN, **more}, streaming=True)


def test_addresses_are_normalised():
    options = parse_live_options({**GIVEN, "namesrvAddr": "h1:9876, [::1]:1;h1:9876"})
    assert options.connection.namesrv_addr == "h1:9876;[::1]:1"


@pytest.mark.parametrize("parse", [parse_live_options, parse_live_sink_options])
def test_how_a_client_uses_the_network(parse):
    given = {"useTLS": "true", "tlsCaFile": "/ca", "tlsCertFile": "/crt", "tlsVerify": "false"}
    connection = parse({**GIVEN, **SECRETS, **given, "requestTimeout": "1500ms"}).connection
    assert connection.request_timeout_ms == 1500
    assert tls_config(connection) == TlsConfig("/ca", "/crt", "/key.pem", "hidden-4", verify=False)
    assert credentials(connection) == AclCredentials("AKIA-hidden-1", "hidden-2", "hidden-3")
    plain = parse(GIVEN).connection
    assert (tls_config(plain), credentials(plain)) == (None, None)


@pytest.mark.parametrize("parse", [parse_live_options, parse_live_sink_options])
def test_secrets_travel_and_do_not_show(parse):
    options = parse({**GIVEN, **SECRETS})
    assert "hidden" not in repr(options)
    assert "hidden" not in f"{options!s} {options.connection!r} {options.connection.secrets}"
    again = pickle.loads(pickle.dumps(options))
    assert again == options
    assert again.connection.secrets.secret_key == "hidden-2"
    assert again.connection.secrets.tls_key_password == "hidden-4"


def test_every_secret_is_one_that_spark_redacts():
    # The default of spark.redaction.regex in 4.0 to 4.3.
    redacted = ("secret", "password", "token", "accesskey", "access.key")
    for info in {*LIVE_OPTION_TABLE, *LIVE_SINK_OPTION_TABLE}:
        if "never shown" in info.meaning:
            assert any(word in info.name.lower() for word in redacted), info.name


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, EVERYTHING),
        ({"tags": "*"}, EVERYTHING),
        ({"tags": "a || b"}, PullExpression("a || b", TAG)),
        ({"where": "tags IN ('a', 'b')", "tags": "b||c"}, PullExpression("b", TAG)),
        ({"where": "tags = 'a || b'"}, EVERYTHING),
        ({"sqlFilter": "a > 5"}, PullExpression("a > 5", SQL92)),
        ({"sqlFilter": "a > 5", "tags": "x"}, PullExpression("x", TAG)),
        ({"sqlFilter": "a CONTAINS 'x'"}, EVERYTHING),
    ],
    ids=str,
)
def test_what_brokers_are_told(more, expected):
    assert subscription_of(parse_live_options({**GIVEN, **more}).reading) == expected
