# SPDX-License-Identifier: Apache-2.0
"""Request signatures for brokers with access control.

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
    """Account and key that sign requests; its ``repr`` shows neither.

    Parameters
    ----------
    access_key
        Name of the account.
    secret_key
        Key that signs requests; it is never sent.
    security_token
        Token of a temporary account; optional.
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

    The signature covers the values of all fields, in the order of their names, then the body. It
    leaves out the marker of queries by unique key: brokers of 4.x never include that, later ones
    only for clients newer than 4.9.3. A request with the marker thus states version 4.9.3 at most.
    """
    fields = command.ext_fields
    fields.pop(SIGNATURE, None)  # from an earlier attempt
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    signed = fields
    if _UNIQUE_KEY_QUERY in fields:
        signed = {name: text for name, text in fields.items() if name != _UNIQUE_KEY_QUERY}
        command.version = min(command.version, _V4_9_3)
    fields[SIGNATURE] = signature_of(signed, command.body, credentials.secret_key)


def signature_of(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of a request's body and fields, which contain no signature yet."""
    # Java encodes an unpaired surrogate as a question mark.
    text = "".join([fields[name] for name in sorted(fields)]).encode(errors="replace")
    digest = hmac.new(secret_key.encode(), text + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()
