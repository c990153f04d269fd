"""Signatures of requests, as brokers with access control want them.

Source: RocketMQ ``AclClientRPCHook``, ``AclUtils.combineRequestContent``, ``AclSigner``,
``PlainAccessValidator``, ``DefaultAuthenticationContextBuilder`` (releases 4.9.7 and 5.3.3).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.remoting.remoting_command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_V4_9_3 = 399


@dataclass(frozen=True)
class AclCredentials:
    """Who asks, and what proves it; no part of it is shown.

    Parameters
    ----------
    access_key
        Name of the account.
    secret_key
        Key of its signatures; it never travels.
    security_token
        Of a temporary account; None: none.
    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in (("access_key", self.access_key), ("secret_key", self.secret_key)):
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} must be a text that is not empty")


def sign(command: RemotingCommand, credentials: AclCredentials) -> None:
    """Add access key, token and signature to the fields of a request.

    Signed are the values of all fields in the order of their names, then the body. One field is
    left out, that of queries by key: brokers of 4.x never count it, later ones only of clients
    that are newer than 4.9.3. So the request says that it is as old as that.
    """
    fields = command.ext_fields
    fields.pop(SIGNATURE, None)  # of an earlier attempt
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    signed = fields
    if _UNIQUE_KEY_QUERY in fields:
        signed = {name: text for name, text in fields.items() if name != _UNIQUE_KEY_QUERY}
        command.version = min(command.version, _V4_9_3)
    fields[SIGNATURE] = signature_of(signed, command.body, credentials.secret_key)


def signature_of(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of the fields, which hold none, and the body of a request."""
    # Half a surrogate pair is a question mark to Java.
    text = "".join([fields[name] for name in sorted(fields)]).encode(errors="replace")
    digest = hmac.new(secret_key.encode(), text + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()
