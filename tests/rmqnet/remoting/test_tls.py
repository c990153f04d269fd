import asyncio
import logging
import pickle
import ssl
from pathlib import Path

import pytest

from rmqnet.errors import ClientError, RemotingConnectError
from rmqnet.remoting.remoting_client import RemotingClient, RemotingClientConfig
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.tls import TlsConfig
from tests.rmqnet.remoting.scripted_server import ScriptedServer, in_loop

FILES = Path(__file__).parent / "certificates"
CA, CERT, KEY = (str(FILES / name) for name in ("ca.pem", "client.pem", "client.key"))
TRUSTING = TlsConfig(ca_file=CA)


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
        asyncio.get_running_loop().set_exception_handler(None)  # the server's own complaint
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
