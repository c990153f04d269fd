# SPDX-License-Identifier: Apache-2.0
import asyncio
import base64
import copy
import hashlib
import hmac
import json
import logging
import pickle
import ssl
from pathlib import Path

import pytest

from rmqnet.errors import ClientError, RemotingConnectError
from rmqnet.remoting.acl import AclCredentials, sign
from rmqnet.remoting.remoting_client import RemotingClient, RemotingClientConfig
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.tls import TlsConfig
from tests.rmqnet.remoting.golden_frames import GOLDEN
from tests.rmqnet.remoting.scripted_server import ScriptedServer, in_loop

FILES = Path(__file__).parent / "certificates"
CA, CERT, KEY = (str(FILES / name) for name in ("ca.pem", "client.pem", "client.key"))
TRUSTING = TlsConfig(ca_file=CA)
VECTORS = json.loads((GOLDEN / "signatures.json").read_text("utf-8"))


def server_context(asks_for_certificate=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / "server.pem", FILES / "server.key")
    if asks_for_certificate:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def ask(server, tls, host="127.0.0.1"):
    client = RemotingClient(RemotingClientConfig(connect_timeout_s=2), tls=tls)
    try:
        request = RemotingCommand(10, {"a": "b"}, bytes(1 << 20))
        response = await client.invoke(f"{host}:{server.port}", request, 5)
        return response.ext_fields == request.ext_fields and response.body == request.body
    finally:
        await client.close()


@in_loop
async def test_a_server_is_talked_to_whose_certificate_an_authority_signed():
    async with ScriptedServer(tls=server_context()) as server:
        assert await ask(server, TRUSTING)
        assert await ask(server, TRUSTING, "localhost")


@in_loop
async def test_a_server_that_nobody_vouches_for_is_refused():
    async with ScriptedServer(tls=server_context()) as server:
        with pytest.raises(RemotingConnectError, match="its certificate is not accepted") as caught:
            await ask(server, TlsConfig())
        assert "ca_file names" in str(caught.value)
        assert await ask(server, TlsConfig(verify=False))


@in_loop
async def test_a_server_of_another_name_is_refused():
    async with ScriptedServer(tls=server_context()) as server:
        with pytest.raises(RemotingConnectError, match=r"broker\.example") as caught:
            await ask(server, TlsConfig(ca_file=CA, server_hostname="broker.example"))
        assert "server_hostname" in str(caught.value)
        assert await ask(server, TlsConfig(ca_file=CA, server_hostname="localhost"))


@in_loop
async def test_a_client_shows_its_certificate_where_it_is_asked_for():
    async with ScriptedServer(tls=server_context(asks_for_certificate=True)) as server:
        known = TlsConfig(CA, CERT, KEY, "opensesame")
        assert await ask(server, known)
        with pytest.raises(RemotingConnectError, match=str(server.port)):
            await ask(server, TRUSTING)


@in_loop
async def test_a_server_without_tls_is_named():
    async def refuse(peer):
        await peer.writer.drain()

    async with ScriptedServer(refuse) as server:
        with pytest.raises(RemotingConnectError, match=f"cannot connect to {server.address}: "):
            await ask(server, TRUSTING)


@in_loop
async def test_a_client_without_tls_is_told_what_came():
    async with ScriptedServer(tls=server_context()) as server:
        asyncio.get_running_loop().set_exception_handler(None)  # the server's own error
        with pytest.raises(RemotingConnectError, match=server.address):
            await ask(server, None)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (TlsConfig(ca_file="/nowhere/ca.pem"), "ca_file /nowhere/ca.pem is not a readable"),
        (TlsConfig(ca_file=KEY), "is not a readable PEM file of certificates"),
        (TlsConfig(CA, "/nowhere/c.pem"), "cert_file /nowhere/c.pem and key_file None are not"),
        (TlsConfig(CA, CERT, KEY, "WRONG-1"), "or key_password does not open the key"),
        (TlsConfig(CA, CERT, KEY), "or key_password does not open the key"),
        (TlsConfig(CA, key_file=KEY), "is given without cert_file"),
    ],
)
def test_files_that_cannot_be_used_are_named(config, complaint):
    with pytest.raises(ClientError) as caught:
        RemotingClient(tls=config)
    assert complaint in str(caught.value)
    assert "WRONG-1" not in str(caught.value)


def test_the_password_is_not_shown():
    assert "opensesame" not in repr(TlsConfig(CA, CERT, KEY, "opensesame"))


def test_a_config_travels_between_processes():
    config = TlsConfig(CA, CERT, KEY, "opensesame", server_hostname="h")
    assert pickle.loads(pickle.dumps(config)) == config


def test_nothing_is_logged_of_the_password(caplog):
    caplog.set_level(logging.DEBUG)

    @in_loop
    async def run():
        async with ScriptedServer(tls=server_context(asks_for_certificate=True)) as server:
            assert await ask(server, TlsConfig(CA, CERT, KEY, "opensesame"))

    run()
    assert "opensesame" not in caplog.text


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_signatures_are_those_of_rocketmq(vector):
    credentials = AclCredentials(
        vector["access_key"], vector["secret_key"], vector["security_token"]
    )
    command = RemotingCommand(310, dict(vector["fields"]), (vector["body"] or "").encode())
    sign(command, credentials)
    assert command.ext_fields["Signature"] == vector["signature"]


def test_signed_are_the_values_in_the_order_of_the_names_then_the_body():
    command = RemotingCommand(310, {"b": "2", "B": "1", "a": "3"}, b"body")
    sign(command, AclCredentials("key", "secret", "token"))
    content = b"key" + b"1" + b"token" + b"3" + b"2" + b"body"  # AccessKey, B, SecurityToken, a, b
    digest = hmac.new(b"secret", content, hashlib.sha1).digest()
    assert command.ext_fields == {
        "a": "3",
        "b": "2",
        "B": "1",
        "AccessKey": "key",
        "SecurityToken": "token",
        "Signature": base64.b64encode(digest).decode(),
    }


def test_signing_again_signs_the_same():
    command = RemotingCommand(34, {"a": "1"}, b"body")
    credentials = AclCredentials("key", "secret")
    sign(command, credentials)
    first = copy.deepcopy(command)
    sign(command, credentials)
    assert command == first


def test_what_says_that_a_unique_key_is_asked_for_is_not_signed():
    query = {"topic": "t", "key": "k"}
    command = RemotingCommand(12, {**query, "_UNIQUE_KEY_QUERY": "true"})
    other = RemotingCommand(12, dict(query))
    for each in (command, other):
        sign(each, AclCredentials("key", "secret"))
    assert command.ext_fields["Signature"] == other.ext_fields["Signature"]
    # A broker of release 5 leaves the field out for clients up to V4_9_3.
    assert (command.version, other.version) == (399, 479)


def test_half_a_surrogate_pair_is_signed_as_java_does():
    command, java = (RemotingCommand(310, {"i": text}, b"b") for text in ("a\ud83d", "a?"))
    for each in (command, java):
        sign(each, AclCredentials("key", "secret"))
    assert command.ext_fields["Signature"] == java.ext_fields["Signature"]


def test_secrets_are_not_shown():
    credentials = AclCredentials("KEY-1", "SECRET-2", "TOKEN-3")
    command = RemotingCommand(34, {"topic": "PRIVATE-4"}, b"BODY-5")
    sign(command, credentials)
    shown = repr(credentials) + repr(command) + str(command) + f"{command}"
    for secret in ["KEY-1", "SECRET-2", "TOKEN-3", "PRIVATE-4", "BODY-5"]:
        assert secret not in shown
    assert command.ext_fields["Signature"] not in shown


def test_credentials_travel_between_processes():
    credentials = AclCredentials("key", "secret", "token")
    assert pickle.loads(pickle.dumps(credentials)) == credentials


@pytest.mark.parametrize(("access_key", "secret_key"), [("", "s"), ("a", ""), (None, "s")])
def test_keys_must_be_there(access_key, secret_key):
    with pytest.raises(ValueError, match="_key must be a text that is not empty"):
        AclCredentials(access_key, secret_key)
