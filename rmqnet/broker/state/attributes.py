# SPDX-License-Identifier: Apache-2.0
"""Attributes of topics and groups, and how requests change them.

Source: RocketMQ ``AttributeParser``, ``AttributeUtil``, ``TopicAttributes``,
``SubscriptionGroupAttributes`` (release 5.3.3); errors have its words, which clients show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.config.config_files import BATCH_QUEUE_TYPE, QUEUE_TYPE_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADD, _DELETE = "+", "-"


@dataclass(frozen=True)
class Attribute:
    """Values that an attribute may have."""

    choices: frozenset[str] = frozenset()
    """Allowed texts; if empty, any whole number of at least -1."""
    is_changeable: bool = True
    """Whether it may change after the topic is created."""

    def check(self, value: str) -> None:
        """Raise ValueError if a value is not allowed."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"value is not in set: [{', '.join(sorted(self.choices))}]")
        elif not value.removeprefix("-").isdecimal() or not -1 <= int(value) < 1 << 63:
            raise ValueError(f"value is not in range(-1, {(1 << 63) - 1})")


MESSAGE_TYPE_ATTRIBUTE = "message.type"
TOPIC_ATTRIBUTES = {
    QUEUE_TYPE_ATTRIBUTE: Attribute(frozenset((BATCH_QUEUE_TYPE, "SimpleCQ")), False),
    "cleanup.policy": Attribute(frozenset(("DELETE", "COMPACTION")), False),
    MESSAGE_TYPE_ATTRIBUTE: Attribute(
        frozenset(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"))
    ),
    "reserve.time": Attribute(),
}
GROUP_ATTRIBUTES: dict[str, Attribute] = {}
"""Release 5.3.3 has none."""


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Return the changes in a header, separated by commas: ``+name=value`` sets, ``-name`` removes.

    Raises
    ------
    ValueError
        The text is malformed, or names an attribute twice.
    """
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, has_value, value = part.partition("=")
        kind, sign = ("add/alter", _ADD) if has_value else ("delete", _DELETE)
        if sign not in key:
            raise ValueError(f"{kind} attribute format is wrong: {key:.80}")
        if key in changes:
            raise ValueError(f"key duplication: {key:.80}")
        changes[key] = value
    return changes


def changed_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after changes from `parse_attribute_changes`.

    Parameters
    ----------
    current
        Current attributes; None if the topic or group is new.

    Raises
    ------
    ValueError
        A change is not allowed.
    """
    names = set()
    after = dict(current or {})
    for key, value in changes.items():
        name = _name(key)
        if name in names:
            raise ValueError(f"alter duplication key. key: {name}")
        names.add(name)
        _check_change(known, current, key, value)
        if key[0] == _ADD:
            after[name] = value
        else:
            del after[name]
    return after


def _name(key: str) -> str:
    name = key[1:]
    if not name or _ADD in name or _DELETE in name:
        raise ValueError("kv string format wrong.")
    return name


def _check_change(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, key: str, value: str
) -> None:
    sign, name = key[0], key[1:]
    if current is None and sign != _ADD:
        raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in (_ADD, _DELETE):
        raise ValueError(f"wrong format key: {name}")
    if sign == _DELETE and name not in (current or {}):
        raise ValueError(f"attempt to delete a nonexistent key: {name}")
    attribute = known.get(name)
    if attribute is None:
        raise ValueError(f"unsupported key: {name}")
    if current is not None and not attribute.is_changeable:
        raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")
    if sign == _ADD:
        attribute.check(value)
