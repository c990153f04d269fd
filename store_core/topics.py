"""Topics and properties by which a broker moves messages about, named once.

Source: RocketMQ ``TopicValidator``, ``MixAll``, ``MessageConst``, ``TransactionalMessageUtil``
(release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from store_core.layout.message import SCHEDULE_TOPIC

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["SCHEDULE_TOPIC", "numbers_of", "property_of"]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
PRODUCER_GROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
DELAY_LEVEL = "DELAY"
TIMER_OUT_MS = "TIMER_OUT_MS"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"

_DIGITS = r"^[0-9]{1,18}$"


def property_of(properties: Any, name: str) -> Any:
    """Return the values of a property in a ``properties`` column; null where it is absent."""
    return pc.map_lookup(properties, pa.scalar(name), "first")


def numbers_of(texts: Any, absent: int = -1) -> npt.NDArray[np.int64]:
    """Return the numbers that texts spell; ``absent`` for nulls and for what is no number.

    Only digits count: nothing that a broker writes here has a sign.
    """
    good = pc.match_substring_regex(texts, _DIGITS)
    found = pc.if_else(pc.fill_null(good, False), texts, pa.scalar(str(absent)))
    numbers: npt.NDArray[np.int64] = pc.cast(found, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
