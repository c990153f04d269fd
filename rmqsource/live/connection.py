"""Where a cluster is, who asks, and how long: plain values that travel to tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqsource.errors import SourceOptionError

_CREDENTIALS = ("accessKey", "secretKey")


@dataclass(frozen=True)
class Secrets:
    """What must not be seen; it travels to the tasks, and shows nothing of itself."""

    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls_key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TlsFiles:
    """Files of TLS, by their paths on every node; None where none is given."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True


@dataclass(frozen=True)
class Connection:
    """How to reach a cluster."""

    namesrv_addr: str
    """``host:port``, separated by semicolons."""
    consumer_group: str
    tls: TlsFiles | None = None
    """None: without TLS."""
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000
    """How long a request is repeated that fails as while a broker restarts."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)


def check_secrets(secrets: Secrets, tls: TlsFiles | None) -> None:
    """Raise where one of two options is missing, or an option has no effect.

    Raises
    ------
    SourceOptionError
        Names the options, and none of their values.
    """
    given = dict(zip(_CREDENTIALS, (secrets.access_key, secrets.secret_key)))
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == 1:
        (other,) = set(_CREDENTIALS) - set(missing)
        raise SourceOptionError(other, f"needs {missing[0]!r} beside it; give both or neither")
    if secrets.security_token is not None and missing:
        raise SourceOptionError("securityToken", "needs 'accessKey' and 'secretKey' beside it")
    if secrets.tls_key_password is not None and (tls is None or tls.key_file is None):
        raise SourceOptionError("tlsKeyPassword", "needs 'tlsKeyFile' beside it; give it or drop")
