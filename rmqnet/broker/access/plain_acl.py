"""Access control by a file of accounts, ``plain_acl.yml``.

Source: RocketMQ ``PlainPermissionManager``, ``PlainAccessValidator``, ``Permission`` (release
4.9.7). What changes the broker, and sends of batches and replies, are looked at here too, which
4.9.7 lets any account do.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqnet.broker.access.address_pattern import AddressPattern
from rmqnet.remoting.acl import ACCESS_KEY, SIGNATURE, signature_of
from rmqnet.remoting.codes import RequestCode
from store_core.errors import StoreConfigError
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqnet.remoting.remoting_command import RemotingCommand

_DENY, _PUB, _SUB = 1, 4, 8
_PERMISSIONS = {
    "DENY": _DENY,
    "PUB": _PUB,
    "SUB": _SUB,
    "PUB|SUB": _PUB | _SUB,
    "SUB|PUB": _PUB | _SUB,
}
_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
_MIN_KEY_CHARACTERS = 7
_NOT_SIGNED = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))
_ADMIN_CODES = frozenset(
    int(code)
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    )
)
_SENDS = {
    RequestCode.SEND_MESSAGE: ("topic", "producerGroup"),
    RequestCode.SEND_REPLY_MESSAGE: ("topic", "producerGroup"),
    RequestCode.SEND_MESSAGE_V2: ("b", "a"),
    RequestCode.SEND_BATCH_MESSAGE: ("b", "a"),
    RequestCode.SEND_REPLY_MESSAGE_V2: ("b", "a"),
}
_READS = {
    RequestCode.PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: ("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: ("topic", None),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    RequestCode.CONSUMER_SEND_MSG_BACK: (None, "group"),
    RequestCode.UNREGISTER_CLIENT: (None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (None, "consumerGroup"),
}
_KNOWN_KEYS = frozenset(("globalWhiteRemoteAddresses", "accounts", "dataVersion"))


class AccessDeniedError(Exception):
    """A request that is not allowed; the text says why, without a secret."""


@dataclass(frozen=True)
class Account:
    """One account of the file.

    Attributes
    ----------
    access_key, secret_key
        Its name, and the key of its signatures.
    trusted
        Addresses from which it needs no signature.
    is_admin
        It may change the broker.
    default_topic, default_group
        Permissions where nothing else is said.
    resources
        Permissions by topic, and of groups by the name of their retry topic.
    """

    access_key: str
    secret_key: str = field(repr=False)
    trusted: AddressPattern
    is_admin: bool
    default_topic: int
    default_group: int
    resources: Mapping[str, int]

    def check(self, code: int, wanted: Mapping[str, int]) -> None:
        """Raise AccessDeniedError unless the account may do what is asked for."""
        if code in _ADMIN_CODES and not self.is_admin:
            raise AccessDeniedError(
                f"Need admin permission for request code={code}, but accessKey="
                f"{self.access_key} is not"
            )
        if self.is_admin and not self.resources:
            return
        for resource, needed in wanted.items():
            is_group = resource.startswith(RETRY_PREFIX)
            default = self.default_group if is_group else self.default_topic
            owned = self.resources.get(resource, default)
            if owned & _DENY or not owned & needed:
                kind = "group" if is_group else "topic"
                name = resource[len(RETRY_PREFIX) :] if is_group else resource
                raise AccessDeniedError(f"No default permission for {kind}: {name}")


class PlainAcl:
    """The accounts of a file.

    Parameters
    ----------
    content
        The file, parsed.
    source
        Its path, for errors.

    Raises
    ------
    StoreConfigError
        It is not what it must be; the text names the entry.
    """

    def __init__(self, content: Any, source: str) -> None:
        if not isinstance(content, dict) or not content.keys() & _KNOWN_KEYS:
            raise StoreConfigError(
                f"{source}: expected accounts and globalWhiteRemoteAddresses, as in plain_acl.yml"
            )
        try:
            self._trusted = [
                AddressPattern(str(each))
                for each in content.get("globalWhiteRemoteAddresses") or ()
            ]
            accounts = [_account(each) for each in content.get("accounts") or ()]
        except StoreConfigError as err:
            raise StoreConfigError(f"{source}: {err}") from err
        self._accounts = {account.access_key: account for account in accounts}

    def check(self, host: str, command: RemotingCommand) -> None:
        """Look at a request of a client.

        Parameters
        ----------
        host
            IP address of the client.
        command
            Its request.

        Raises
        ------
        AccessDeniedError
            It is not allowed.
        """
        if any(pattern.matches(host) for pattern in self._trusted):
            return
        fields = command.ext_fields
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise AccessDeniedError("No accessKey is configured")
        account = self._accounts.get(access_key)
        if account is None:
            raise AccessDeniedError(f"No acl config for {access_key}")
        if account.trusted.matches(host):
            return
        signed = {name: text for name, text in fields.items() if name not in _NOT_SIGNED}
        expected = signature_of(signed, command.body, account.secret_key)
        if not hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode()):
            raise AccessDeniedError(f"Check signature failed for accessKey={access_key}")
        wanted = _wanted(command)
        if wanted.get(_TRACE_TOPIC) != _PUB:
            account.check(command.code, wanted)


def load_plain_acl(path: str) -> PlainAcl:
    """Return the accounts of a file.

    Raises
    ------
    StoreConfigError
        It cannot be read, or is not what it must be.
    """
    import yaml  # noqa: PLC0415 (only those who have accounts need it)

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as err:
        raise StoreConfigError(f"{path} is not a readable YAML file: {err}") from err
    return PlainAcl(content, path)


def _account(entry: Any) -> Account:
    if not isinstance(entry, dict):
        raise StoreConfigError(f"accounts: an account was expected, not {type(entry).__name__}")
    key = str(entry.get("accessKey") or "")
    secret = str(entry.get("secretKey") or "")
    if min(len(key), len(secret)) < _MIN_KEY_CHARACTERS:
        raise StoreConfigError(
            f"account {key!r}: accessKey and secretKey have at least {_MIN_KEY_CHARACTERS} "
            "characters"
        )
    resources = {
        **_resources(key, "topicPerms", entry.get("topicPerms"), ""),
        **_resources(key, "groupPerms", entry.get("groupPerms"), RETRY_PREFIX),
    }
    return Account(
        key,
        secret,
        AddressPattern(str(entry.get("whiteRemoteAddress") or "")),
        entry.get("admin") is True,
        _permission(entry.get("defaultTopicPerm")),
        _permission(entry.get("defaultGroupPerm")),
        resources,
    )


def _resources(
    account: str, name: str, entries: Iterable[Any] | None, prefix: str
) -> dict[str, int]:
    found = {}
    for entry in entries or ():
        resource, equals, permission = str(entry).partition("=")
        if not equals or permission.strip() not in _PERMISSIONS:
            raise StoreConfigError(
                f"account {account!r}: {name}: {entry!r} must be NAME=PERMISSION, with one of "
                f"{', '.join(_PERMISSIONS)}"
            )
        found[prefix + resource.strip()] = _PERMISSIONS[permission.strip()]
    return found


def _permission(text: Any) -> int:
    """Return a permission; what is none, or absent, allows nothing."""
    return _PERMISSIONS.get(str(text).strip(), _DENY)


def _wanted(command: RemotingCommand) -> dict[str, int]:
    """Return the topics, and the retry topics of groups, that a request needs rights for."""
    fields = command.ext_fields
    if command.code == RequestCode.HEART_BEAT:
        return _of_heartbeat(command.body)
    send = _SENDS.get(RequestCode(command.code)) if command.code in _SENDS else None
    if send is not None:
        topic = fields.get(send[0], "")
        if topic.startswith(RETRY_PREFIX):
            return {topic: _SUB}
        return {topic: _PUB}
    names = _READS.get(RequestCode(command.code)) if command.code in _READS else None
    if names is None:
        return {}
    wanted = {}
    topic_name, group_name = names
    if topic_name is not None and topic_name in fields:
        wanted[fields[topic_name]] = _SUB
    if group_name is not None and group_name in fields:
        wanted[RETRY_PREFIX + fields[group_name]] = _SUB
    return wanted


def _of_heartbeat(body: bytes) -> dict[str, int]:
    try:
        content = json.loads(body)
        consumers = content.get("consumerDataSet") or ()
        wanted = {RETRY_PREFIX + str(each["groupName"]): _SUB for each in consumers}
        for each in consumers:
            for subscription in each.get("subscriptionDataSet") or ():
                wanted[str(subscription["topic"])] = _SUB
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise AccessDeniedError(f"a heartbeat that is not understood: {err}") from err
    return wanted
