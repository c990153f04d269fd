import base64
import copy
import hashlib
import hmac
import json
import pickle

import pytest

from rmqnet.remoting.acl import AclCredentials, sign
from rmqnet.remoting.remoting_command import RemotingCommand
from tests.rmqnet.remoting.golden_frames import GOLDEN

VECTORS = json.loads((GOLDEN / "signatures.json").read_text("utf-8"))


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
    # A broker of release 5 leaves the field out for clients that are no newer than V4_9_3.
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
