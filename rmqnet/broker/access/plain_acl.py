# SPDX-License-Identifier: Apache-2.0
"""Access control by a file of accounts, ``plain_acl.yml``.

Source: RocketMQ ``PlainPermissionManager``, ``PlainAccessConfig`` (release 4.9.7).
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqnet.client.heartbeat_data import parse_heartbeat
from rmqnet.errors import ClientError
from rmqnet.remoting.acl import ACCESS_KEY, SIGNATURE, signature_of
from rmqnet.remoting.codes import RequestCode
from store_core.config.lenient_json import json_object, parse_lenient_json
from store_core.errors import StoreConfigError
from store_core.topics import (
    DISCARD_TOPIC,
    HALF_TOPICS,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.remoting.remoting_command import RemotingCommand

DENY, PUB, SUB = 1, 4, 8
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        # RocketMQ has only those above; the following change a broker as well.
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        # Requests to a name server.
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Requests that only administrators may make."""
READ_ALL_CODES = frozenset({RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUME_MESSAGE_DIRECTLY})
"""Requests for a log offset, where the message may belong to any topic."""
MIXED_TOPICS = frozenset({SCHEDULE_TOPIC, *HALF_TOPICS, TIMER_TOPIC, DISCARD_TOPIC})
"""Topics that store messages of any other topic, or messages that wait to be put there."""
_SENDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.RECALL_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
}
_PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_MIN_KEY_CHARACTERS = 7
_MAX_FILE_BYTES = 16 << 20
_SHOWN_CHARACTERS = 80
_SOMETIMES_SIGNED = "_UNIQUE_KEY_QUERY"
"""Clients of 4.x do not sign this field, those of 5.x do."""
_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
_ACCOUNT_KEYS = (
    *("accessKey", "secretKey", "whiteRemoteAddress", "admin"),
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),
)
_IPV4_PARTS, _IPV6_PARTS = 4, 8
_ANY = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
Range = tuple[int, int]


# Source: RocketMQ ``PlainAccessValidator``, ``Permission`` (release 4.9.7). RocketMQ checks only
# sends by 10 and 310, pulls, queries by key, send-backs, heartbeats and commits, and five codes
# require an administrator; any account may do the rest. Here, other requests that put or return
# messages, or change what others see, are checked as well.
class _Read(NamedTuple):
    """The fields of a request that name a topic and a group."""

    topic: str | None
    group: str | None


_READS = {
    RequestCode.PULL_MESSAGE: _Read("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _Read("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _Read("topic", None),
    RequestCode.UPDATE_CONSUMER_OFFSET: _Read("topic", "consumerGroup"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _Read(None, "group"),
    RequestCode.UNREGISTER_CLIENT: _Read(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _Read(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _Read(None, "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _Read(None, "consumerGroup"),
}


_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)


def wanted_permissions(command: RemotingCommand) -> Mapping[str, int]:
    """Return the permission, `PUB` or `SUB`, that a request requires on each of its topics.

    A group is represented by its retry topic.

    Raises
    ------
    ValueError
        The body, which names them, cannot be parsed.
    """
    code, fields = command.code, command.ext_fields
    if code == RequestCode.HEART_BEAT:
        return _of_heartbeat(command.body)
    if code in _LOCKS:
        data = json_object(parse_lenient_json(command.body.decode()), "body")
        return {RETRY_PREFIX + str(data.get("consumerGroup", "")): SUB}
    if code in _SENDS:
        topic = fields.get(_SENDS[RequestCode(code)], "")
        return {topic: SUB if topic.startswith(RETRY_PREFIX) else PUB}
    if code not in _READS:
        return {}
    topic_field, group_field = _READS[RequestCode(code)]
    wanted = {}
    if topic_field is not None:
        wanted[fields.get(topic_field, "")] = SUB
    if group_field is not None and group_field in fields:
        wanted[RETRY_PREFIX + fields[group_field]] = SUB
    return wanted


def _of_heartbeat(body: bytes) -> Mapping[str, int]:
    wanted = {}
    for consumer in parse_heartbeat(body).consumers:
        wanted[RETRY_PREFIX + consumer.group_name] = SUB
        for subscription in consumer.subscriptions:
            wanted[subscription.topic] = SUB
    return wanted


class AccessDeniedError(Exception):
    """A request that is not allowed; the text gives the reason, without a secret."""


@dataclass(frozen=True)
class Account:
    """One account of the file."""

    access_key: str
    secret_key: str = field(repr=False)
    trusted: AddressPattern
    is_admin: bool
    default_topic: int
    default_group: int
    resources: Mapping[str, int]

    def check(self, code: int, wanted: Mapping[str, int]) -> None:
        """Raise AccessDeniedError unless the account may make the request."""
        if code in ADMIN_CODES and not self.is_admin:
            raise AccessDeniedError(
                f"Need admin permission for request code={code}, but accessKey="
                f"{self.access_key} is not"
            )
        if self.is_admin and not self.resources:
            return
        if code in READ_ALL_CODES and not self._may_at_all_topics(SUB):
            raise AccessDeniedError(
                f"request code={code} may read messages of any topic, but accessKey="
                f"{self.access_key} may not"
            )
        for resource, needed in wanted.items():
            owned = self.resources.get(resource, self._default(resource))
            if resource in MIXED_TOPICS and resource not in self.resources:
                owned = needed if self._may_at_all_topics(needed) else DENY
            if owned & DENY or not owned & needed:
                raise AccessDeniedError(f"No default permission for {_shown(resource)}")

    def _may_at_all_topics(self, needed: int) -> bool:
        owned = [permission for name, permission in self.resources.items() if not _is_group(name)]
        return all(permission & needed for permission in (self.default_topic, *owned))

    def _default(self, resource: str) -> int:
        return self.default_group if _is_group(resource) else self.default_topic


class PlainAcl:
    """The accounts of a file.

    Raises
    ------
    StoreConfigError
        The content is invalid; the text names the entry, and no secret.
    """

    def __init__(self, content: Any, source: str) -> None:
        try:
            entries = _checked(content, "the file", _KEYS)
            self._trusted = [
                AddressPattern(str(each)) for each in _list(entries, "globalWhiteRemoteAddresses")
            ]
            accounts = [_account(each) for each in _list(entries, "accounts")]
            self._accounts = _by_key(accounts)
        except StoreConfigError as err:
            raise StoreConfigError(f"{source}: {err}") from err

    def check(self, host: str, command: RemotingCommand) -> None:
        """Check a request of a client.

        Raises
        ------
        AccessDeniedError
            The request is not allowed.
        """
        if any(pattern.matches(host) for pattern in self._trusted):
            return
        access_key = command.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise AccessDeniedError("No accessKey is configured")
        account = self._accounts.get(access_key)
        if account is None:
            raise AccessDeniedError(f"No acl config for {access_key:.{_SHOWN_CHARACTERS}}")
        if account.trusted.matches(host):
            return
        _check_signature(account, command)
        try:
            wanted = wanted_permissions(command)
        except ValueError as err:
            raise AccessDeniedError(f"the request cannot be understood: {err}") from err
        if wanted.get(TRACE_TOPIC) != PUB:  # any account may send traces
            account.check(command.code, wanted)


def load_plain_acl(path: str) -> PlainAcl:
    """Return the accounts of a file.

    Raises
    ------
    StoreConfigError
        The file cannot be read, or its content is invalid.
    ClientError
        PyYAML is not installed.
    """
    try:
        import yaml  # noqa: PLC0415 (needed only with accounts)
    except ModuleNotFoundError as err:
        raise ClientError("accounts require the Python package pyyaml (extra serve)") from err
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MAX_FILE_BYTES)
        content = yaml.safe_load(text)
    except OSError as err:
        raise StoreConfigError(f"{path} cannot be read: {err.strerror}") from err
    except yaml.MarkedYAMLError as err:
        # Its own text shows the line, which may contain a secret.
        mark = err.problem_mark
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise StoreConfigError(f"{path} is not valid YAML: there is an error{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise StoreConfigError(f"{path} is not valid YAML: expected text in UTF-8") from None
    return PlainAcl(content, path)


def _check_signature(account: Account, command: RemotingCommand) -> None:
    signed = dict(command.ext_fields)
    given = signed.pop(SIGNATURE, "")
    expected = [signature_of(signed, command.body, account.secret_key)]
    if signed.pop(_SOMETIMES_SIGNED, None) is not None:
        expected.append(signature_of(signed, command.body, account.secret_key))
    given_bytes = given.encode(errors="replace")  # replaced characters are not in base64
    if not any(hmac.compare_digest(each.encode(), given_bytes) for each in expected):
        raise AccessDeniedError(f"Check signature failed for accessKey={account.access_key}")


def _is_group(resource: str) -> bool:
    return resource.startswith(RETRY_PREFIX)


def _shown(resource: str) -> str:
    kind, name = "topic", resource
    if _is_group(resource):
        kind, name = "group", resource[len(RETRY_PREFIX) :]
    return f"{kind}: {name:.{_SHOWN_CHARACTERS}}"


def _checked(entry: Any, what: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return an entry, whose keys must all be known: a misspelt permission has no effect."""
    if not isinstance(entry, dict):
        raise StoreConfigError(f"{what}: expected the keys {', '.join(known)}, as in plain_acl.yml")
    for key in entry:
        if key not in known:
            raise StoreConfigError(
                f"{what}: unknown key {key!r:.{_SHOWN_CHARACTERS}}; known keys are "
                f"{', '.join(known)}"
            )
    return entry


def _list(entries: Mapping[str, Any], name: str) -> list[Any]:
    found = entries.get(name) or []
    if not isinstance(found, list):
        raise StoreConfigError(f"{name}: a list was expected (lines that begin with -)")
    return found


def _by_key(accounts: list[Account]) -> dict[str, Account]:
    found: dict[str, Account] = {}
    for account in accounts:
        if account.access_key in found:
            raise StoreConfigError(f"account {account.access_key!r} is listed twice")
        found[account.access_key] = account
    return found


def _account(entry: Any) -> Account:
    fields = _checked(entry, "an entry of accounts", _ACCOUNT_KEYS)
    key, secret = _text(fields, "accessKey"), _text(fields, "secretKey")
    if min(len(key), len(secret)) < _MIN_KEY_CHARACTERS:
        raise StoreConfigError(
            f"account {key!r}: accessKey and secretKey have at least {_MIN_KEY_CHARACTERS} "
            "characters"
        )
    try:
        return Account(
            key,
            secret,
            AddressPattern(_text(fields, "whiteRemoteAddress")),
            _text(fields, "admin").lower() == "true",
            _default(fields, "defaultTopicPerm"),
            _default(fields, "defaultGroupPerm"),
            {
                **_resources(fields, "topicPerms", ""),
                **_resources(fields, "groupPerms", RETRY_PREFIX),
            },
        )
    except StoreConfigError as err:
        raise StoreConfigError(f"account {key!r}: {err}") from err


def _text(fields: Mapping[str, Any], name: str) -> str:
    """Return a value as text, as YAML reads keys of digits as numbers."""
    value = fields.get(name)
    return "" if value is None else str(value)


def _default(fields: Mapping[str, Any], name: str) -> int:
    """Return the default permission of an account; `DENY` if it is not given."""
    text = _text(fields, name).strip()
    return _permission(name, text) if text else DENY


def _resources(fields: Mapping[str, Any], name: str, prefix: str) -> dict[str, int]:
    found = {}
    for entry in _list(fields, name):
        resource, equals, permission = str(entry).partition("=")
        if not equals:
            raise StoreConfigError(f"{name}: expected NAME=PERMISSION; found {entry!r:.100}")
        found[prefix + resource.strip()] = _permission(name, permission.strip())
    return found


def _permission(name: str, text: str) -> int:
    if text not in _PERMISSIONS:
        raise StoreConfigError(
            f"{name}: {text!r:.100} is not a permission; expected one of {', '.join(_PERMISSIONS)}"
        )
    return _PERMISSIONS[text]


# Source: RocketMQ ``RemoteAddressStrategyFactory`` (release 4.9.7).
class AddressPattern:
    """The addresses that a text stands for.

    ``*`` all; ``10.0.0.7`` one; ``10.0.0.7,10.0.0.8`` and ``10.0.0.{7,8}`` several;
    ``10.0.*.*`` and ``10.0.0.1-9`` ranges; IPv6 alike. A blank text matches none.

    Raises
    ------
    StoreConfigError
        The text is not a pattern of addresses.
    """

    def __init__(self, text: str) -> None:
        text = text.strip()
        self._matches_all = text in _ANY
        try:
            self._patterns = [] if self._matches_all else [_parts(each) for each in _each(text)]
        except ValueError as err:
            raise StoreConfigError(
                f"{text!r} is not a pattern of addresses ({err}); examples: 10.0.0.7, 10.0.*.*, "
                "10.0.0.1-9, 10.0.0.{7,8}, *"
            ) from err

    def matches(self, host: str) -> bool:
        """Return whether the pattern matches the host, an IP address."""
        if self._matches_all:
            return True
        if not self._patterns:
            return False
        numbers = _numbers_of(host)
        return any(
            len(pattern) == len(numbers)
            and all(low <= number <= high for number, (low, high) in zip(numbers, pattern))
            for pattern in self._patterns
        )


@functools.lru_cache(maxsize=4096)
def _numbers_of(host: str) -> list[int]:
    """Return the parts of an address; cached, as each request needs those of its client."""
    return _numbers(ipaddress.ip_address(host))


def _numbers(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[int]:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return _numbers(address.ipv4_mapped)
        return [int(part, 16) for part in address.exploded.split(":")]
    return list(address.packed)


def _each(text: str) -> list[str]:
    """Return the single patterns of a text."""
    if not text:
        return []
    if text.endswith("}"):
        head, brace, tail = text[:-1].rpartition("{")
        if not brace:
            raise ValueError("there is no { before the }")
        return [head + last.strip() for last in tail.split(",")]
    return [each.strip() for each in text.split(",")]


def _parts(text: str) -> list[Range]:
    """Return the lowest and highest value of each part of an address."""
    if "*" not in text and "-" not in text:
        return [(number, number) for number in _numbers(ipaddress.ip_address(text))]
    separator, count = (":", _IPV6_PARTS) if ":" in text else (".", _IPV4_PARTS)
    most = 0xFFFF if separator == ":" else 0xFF
    parts = text.split(separator)
    if "" in parts:  # ::
        at = text.index("::")
        head = [part for part in text[:at].split(separator) if part]
        tail = [part for part in text[at + 2 :].split(separator) if part]
        parts = [*head, *["0"] * (count - len(head) - len(tail)), *tail]
    if len(parts) != count:
        raise ValueError(f"{len(parts)} parts, expected {count}")
    return [_range(part.strip(), 16 if separator == ":" else 10, most) for part in parts]


def _range(part: str, base: int, most: int) -> Range:
    if part == "*":
        return 0, most
    low, _, high = part.partition("-")
    found = int(low, base), int(high or low, base)
    if not 0 <= found[0] <= found[1] <= most:
        raise ValueError(f"{part!r} is not a range within 0 to {most}")
    return found
