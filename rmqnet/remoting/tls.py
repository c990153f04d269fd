# SPDX-License-Identifier: Apache-2.0
"""TLS settings of servers and clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqnet.errors import ClientError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class ServerTls:
    """How a server proves its identity, and which clients it accepts.

    Parameters
    ----------
    ca_file
        PEM file of the authorities that sign the certificates of clients; clients need no
        certificate if None.
    """

    cert_file: str | Path
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    ca_file: str | Path | None = None

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context to accept connections with.

        Raises
        ------
        ClientError
            A file cannot be read or used; the message names it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_certificate(context, self.cert_file, self.key_file, self.key_password)
        if self.ca_file is not None:
            _load_authorities(context, self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True)
class TlsConfig:
    """How a client verifies servers, and proves its own identity.

    Parameters
    ----------
    ca_file
        PEM file of the authorities whose certificates are accepted; the system's if None.
    cert_file, key_file
        PEM files of this client's own certificate and key, for servers that require them; the key
        may be in ``cert_file``.
    key_password
        Password of the key; never shown.
    verify
        If False, any certificate is accepted, and connections can be intercepted.
    server_hostname
        The name that certificates must be for; the host of the address if None.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    server_hostname: str | None = None

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context to open connections with.

        Raises
        ------
        ClientError
            A file cannot be read or used; the message names it.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.ca_file is None:
            context.load_default_certs()
        else:
            _load_authorities(context, self.ca_file)
        if self.cert_file is not None:
            _load_certificate(context, self.cert_file, self.key_file, self.key_password)
        elif self.key_file is not None:
            raise ClientError(f"key_file {self.key_file} is given without cert_file")
        return context


def _load_authorities(context: ssl.SSLContext, ca_file: str | Path) -> None:
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as err:
        raise ClientError(
            f"ca_file {ca_file} is not a readable PEM file of certificates: {err}"
        ) from err


def _load_certificate(
    context: ssl.SSLContext,
    cert_file: str | Path,
    key_file: str | Path | None,
    key_password: str | None,
) -> None:
    try:
        context.load_cert_chain(cert_file, key_file, key_password or "")
    except (OSError, ValueError) as err:
        raise ClientError(
            f"cert_file {cert_file} and key_file {key_file} are not a certificate and its key in "
            f"PEM, or key_password does not open the key: {err}"
        ) from err
