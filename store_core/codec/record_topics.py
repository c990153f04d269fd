"""Which records are of a topic, compared as bytes where that is enough."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.gather import gather_binary
from store_core.codec.java_string import is_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames

_REPLACEMENT = "\ufffd"


def are_of_topic(
    frames: RecordFrames, rows: npt.NDArray[np.int64], topic: str
) -> npt.NDArray[np.bool_]:
    """Return for each of some rows whether its record is of a topic (`is_name`)."""
    found = np.zeros(len(rows), bool)
    length = frames.topic_length[rows]
    # What Java reads as a replacement character may be of another length in the record.
    at = np.flatnonzero((length == len(os.fsencode(topic))) | (_REPLACEMENT in topic))
    names = gather_binary(frames.data, frames.topic_start[rows[at]], length[at])
    encoded = names.dictionary_encode()
    same = np.array([is_name(name, topic) for name in encoded.dictionary.to_pylist()], bool)
    found[at] = same[encoded.indices.to_numpy()] if len(at) else False
    return found
