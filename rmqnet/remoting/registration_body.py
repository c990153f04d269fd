# SPDX-License-Identifier: Apache-2.0
"""The body of REGISTER_BROKER, with a broker's topics, as JSON or compressed.

Source: RocketMQ ``RegisterBrokerBody``, ``TopicConfigAndMappingSerializeWrapper``,
``TopicConfig.encode`` and ``UtilAll.crc32`` (release 5.3.3); 4.9.7 leaves out the mappings.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.config_ranges import check_topic_ranges
from store_core.config.config_files import TopicConfig, config_json, parse_topic_configs
from store_core.config.data_version import DataVersion, parse_data_version
from store_core.config.lenient_json import json_object, parse_lenient_json

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_REGISTRATION_BYTES = 256 << 20
"""Limit on an inflated body; a frame of 16 MiB can inflate to a thousand times its size."""

_LENGTH = struct.Struct(">i")
_BEST_COMPRESSION = 9
_ZLIB_BEGIN = b"x"  # no JSON begins with it
_CRC_MASK = 0x7FFF_FFFF
_TOPIC_WORDS = 5  # before the attributes


@dataclass(frozen=True)
class RegistrationBody:
    """Topics of a broker and their version.

    Parameters
    ----------
    filter_servers
        Addresses; only releases before 5.0 have any.
    """

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    filter_servers: tuple[str, ...] = ()
    queue_mappings: Mapping[str, Any] = field(default_factory=dict)


def body_crc32(body: bytes) -> int:
    """Return a body's checksum for the header of a registration, where 0 means none."""
    return zlib.crc32(body) & _CRC_MASK


def encode_registration_body(body: RegistrationBody, *, compressed: bool = False) -> bytes:
    """Return the body as a broker of 5.3.3 sends it.

    The compressed form omits ``order`` and ``topic_sys_flag`` of topics, as in RocketMQ.
    """
    if compressed:
        return zlib.compress(b"".join(map(_prefixed, _pieces(body))), _BEST_COMPRESSION)
    wrapper = {
        "dataVersion": body.data_version.to_json(),
        "mappingDataVersion": DataVersion().to_json(),
        "topicConfigTable": {name: config_json(topic) for name, topic in body.topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": body.queue_mappings,
    }
    content = {"filterServerList": body.filter_servers, "topicConfigSerializeWrapper": wrapper}
    return _json_bytes(content)


def decode_registration_body(body: bytes, *, compressed: bool = False) -> RegistrationBody:
    """Return the content of a body that a broker sent; an empty body has no topics.

    Brokers of 5.3.3 with ``compressedRegister=true`` send a compressed body without marking it
    (RocketMQ's own name server refuses it), so a body that begins like zlib counts as compressed.

    Raises
    ------
    RemotingFormatError
        The body is not a registration, or a topic has a value out of range.
    """
    if not body:
        return RegistrationBody()
    compressed = compressed or body.startswith(_ZLIB_BEGIN)
    try:
        found = _from_stream(_inflated(body)) if compressed else _from_json(body)
        for topic in found.topics.values():
            check_topic_ranges(topic)
    except (ValueError, zlib.error, struct.error) as err:
        raise RemotingFormatError(f"the body of the registration of a broker: {err}") from err
    return found


def _from_json(body: bytes) -> RegistrationBody:
    content = json_object(parse_lenient_json(body.decode()), "registration")
    name = "topicConfigSerializeWrapper"
    wrapper = json_object(content.get(name), name)
    return RegistrationBody(
        parse_topic_configs(wrapper),
        parse_data_version(wrapper.get("dataVersion")),
        _addresses(content.get("filterServerList")),
        json_object(wrapper.get("topicQueueMappingInfoMap"), "topicQueueMappingInfoMap"),
    )


def _addresses(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, type(None))):
        raise ValueError(  # noqa: TRY004 (one kind of failure)
            f"filterServerList: a list was expected, not {value!r:.80}"
        )
    return tuple(map(str, value or ()))


# The compressed form: data version; number of topics, each topic as text; filter servers; number of
# queue mappings, each mapping. Everything but the numbers is prefixed with its length.


def _pieces(body: RegistrationBody) -> list[bytes | int]:
    return [
        _json_bytes(body.data_version.to_json()),
        len(body.topics),
        *(_topic_text(topic).encode() for topic in body.topics.values()),
        _json_bytes(body.filter_servers),
        len(body.queue_mappings),
        *(_json_bytes(mapping) for mapping in body.queue_mappings.values()),
    ]


def _prefixed(piece: bytes | int) -> bytes:
    return _LENGTH.pack(piece) if isinstance(piece, int) else _LENGTH.pack(len(piece)) + piece


def _from_stream(data: bytes) -> RegistrationBody:
    reader = _Reader(data)
    version = parse_data_version(parse_lenient_json(reader.text()))
    topics = [_parse_topic_text(reader.text()) for _ in range(reader.number())]
    filter_servers = _addresses(parse_lenient_json(reader.text()))
    # Brokers of 4.x send no mappings.
    count = 0 if reader.is_at_end else reader.number()
    mappings = [json_object(parse_lenient_json(reader.text()), "mapping") for _ in range(count)]
    return RegistrationBody(
        {topic.topic_name: topic for topic in topics},
        version,
        filter_servers,
        {str(mapping.get("topic")): mapping for mapping in mappings},
    )


class _Reader:
    """Reads numbers and texts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def number(self) -> int:
        (number,) = _LENGTH.unpack_from(self._data, self._at)
        self._at += _LENGTH.size
        if not 0 <= number <= len(self._data):
            raise ValueError(f"a length or number of {number} in {len(self._data)} bytes")
        return int(number)

    def text(self) -> str:
        end = self.number() + self._at
        if end > len(self._data):
            raise ValueError(f"a text that ends at byte {end} of {len(self._data)}")
        text, self._at = self._data[self._at : end].decode(), end
        return text


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, MAX_REGISTRATION_BYTES)
    if not inflater.eof:
        reason = (
            f"more than {MAX_REGISTRATION_BYTES} bytes" if inflater.unconsumed_tail else "cut short"
        )
        raise ValueError(f"a zlib stream that is {reason}")
    return data


def _topic_text(topic: TopicConfig) -> str:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} {json.dumps(topic.attributes, separators=(',', ':'))}"
    )


def _parse_topic_text(text: str) -> TopicConfig:
    words = text.split(" ", _TOPIC_WORDS)
    if len(words) < _TOPIC_WORDS or not words[0]:
        raise ValueError(f"a topic was expected, not {text!r:.200}")
    name, read_queues, write_queues, perm, filter_type, *rest = words
    try:
        attributes = json_object(parse_lenient_json(rest[0]), "attributes") if rest else {}
    except ValueError:
        attributes = {}  # RocketMQ also reads invalid attributes as none
    return TopicConfig(
        name,
        int(read_queues),
        int(write_queues),
        int(perm),
        filter_type,
        attributes={str(key): str(value) for key, value in attributes.items()},
    )


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
