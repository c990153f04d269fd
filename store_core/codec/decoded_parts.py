"""Records cut into parts by what their bodies inflate to, so that memory stays bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.compression import CorruptBodyError, inflate
from store_core.codec.record_crcs import BadBody

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames


class DecodedPart(NamedTuple):
    """Some records with their inflated bodies.

    ``inflated`` maps rows of ``frames`` to bodies; rows of ``bad`` are those of all records, and
    are not in ``frames``.
    """

    frames: RecordFrames
    inflated: dict[int, bytes]
    bad: list[BadBody]


def decoded_parts(
    frames: RecordFrames,
    rows: npt.NDArray[np.int64],
    most_bytes: int,
    max_decoded_bytes: int,
) -> Iterator[DecodedPart]:
    """Yield all records in order; a part ends before the body that has no room in it.

    Parameters
    ----------
    frames
        Only rows that are ``ok``.
    rows
        Those whose bodies are inflated, ascending; all of them are compressed.
    most_bytes
        Of inflated bodies in a part; one that is larger is alone in it.
    max_decoded_bytes
        Most bytes that a body may inflate to.
    """
    start = total = 0
    inflated: dict[int, bytes] = {}
    bad: list[BadBody] = []
    places = (frames.body_start[rows], frames.body_length[rows], frames.column("sys_flag")[rows])
    for row, at, length, flag in zip(rows.tolist(), *(place.tolist() for place in places)):
        try:
            body = inflate(frames.data[at : at + length].tobytes(), flag, max_decoded_bytes)
        except CorruptBodyError as err:
            bad.append(BadBody(row, str(err)))
            continue
        if inflated and total + len(body) > most_bytes:
            yield _part(frames, start, row, inflated, bad)
            start, inflated, bad, total = row, {}, [], 0
        inflated[row] = body
        total += len(body)
    yield _part(frames, start, len(frames), inflated, bad)


def _part(
    frames: RecordFrames, start: int, stop: int, inflated: dict[int, bytes], bad: list[BadBody]
) -> DecodedPart:
    if not bad and stop - start == len(frames):
        return DecodedPart(frames, inflated, bad)
    keep = np.ones(stop - start, np.bool_)
    keep[[item.row - start for item in bad]] = False
    rows = start + np.flatnonzero(keep)
    placed = np.searchsorted(rows, list(inflated)).tolist()
    return DecodedPart(frames.take(rows), dict(zip(placed, inflated.values())), bad)
