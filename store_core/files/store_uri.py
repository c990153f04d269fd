# SPDX-License-Identifier: Apache-2.0
"""The URI of a remote store: complete to open it, without secrets to show it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^?]*)(?:\?(.*))?", re.DOTALL)
_PASSWORD = re.compile(r"[^/@:]*:(?![0-9]*(?:/|$))[^@]*@|[^/@]*@")
"""Credentials before a host or bucket. A secret may contain "/"; a port is only digits."""
_NAME_BEFORE_HOST = frozenset(
    ("hdfs", "viewfs", "webhdfs", "swebhdfs", "abfs", "abfss", "wasb", "wasbs", "gs", "gcs")
)
"""Schemes that have a user or a container there; others may have a key."""
_HARMLESS = frozenset(
    (
        *("region", "scheme", "endpoint_override", "smart_defaults", "tls_ca_file_path"),
        *("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open"),
        *("check_directory_existence_before_creation", "tls_verify_certificates"),
        *("force_virtual_addressing", "background_writes", "retry_limit_seconds", "project_id"),
        *("replication", "buffer_size", "default_block_size", "user", "enable_tls"),
        *("blob_storage_authority", "dfs_storage_authority", "credential_kind"),
        *("blob_storage_scheme", "dfs_storage_scheme", "default_bucket_location"),
    )
)
"""Parameters of ``pyarrow.fs`` that are not secret; unknown ones may be."""
_SHORTEST_SECRET = 4  # shorter ones are parts of other words
_HIDDEN = "***"


class StoreUri(str):
    """A remote URI as it is shown: without keys, passwords and parameters that may be secret.

    As a string it is that text; only `location` still has everything, even after pickling.
    """

    __slots__ = ("location",)
    location: str

    def __new__(cls, location: str) -> StoreUri:  # noqa: D102 (described by the class)
        given = location.location if isinstance(location, StoreUri) else location
        uri = super().__new__(cls, _shown(given))
        uri.location = given
        return uri

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreUri, (self.location,)

    def hide_in(self, text: str) -> str:
        """Return a text, such as a library's error, without the secrets of this URI."""
        text = text.replace(self.location, str(self))
        for secret in sorted(_secrets(self.location), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text


def _shown(location: str) -> str:
    found = _PARTS.fullmatch(location)
    if found is None:
        return location
    scheme, place, query = found.groups()
    user = _PASSWORD.match(place)
    if user is not None:
        name = user.group()[:-1].partition(":")[0]
        kept = f"{name}@" if name and scheme.lower() in _NAME_BEFORE_HOST else ""
        place = kept + place[user.end() :]
    shown = [part for part in (query or "").split("&") if part and _is_harmless(part)]
    return f"{scheme}://{place}{'?' * bool(shown)}{'&'.join(shown)}"


def _is_harmless(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return unquote(name).lower() in _HARMLESS and "@" not in unquote(value)


def _secrets(location: str) -> set[str]:
    """Return the hidden parts of a URI, both as written and percent-decoded."""
    found = _PARTS.fullmatch(location)
    if found is None:
        return set()
    scheme, place, query = found.groups()
    user = _PASSWORD.match(place)
    hidden = list(user.group()[:-1].partition(":")[::2]) if user else []
    if user and scheme.lower() in _NAME_BEFORE_HOST:
        hidden = hidden[1:]
    hidden += [p.partition("=")[2] for p in (query or "").split("&") if not _is_harmless(p)]
    both = {*hidden, *map(unquote, hidden)}
    return {text for text in both if len(text) >= _SHORTEST_SECRET}
