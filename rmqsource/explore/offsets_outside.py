"""Consumer offsets that are outside of their queues, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.arrow import pc

if TYPE_CHECKING:
    from store_core.arrow_types import Table


def offsets_outside(rows: Table) -> list[str]:
    """Return a sentence for each offset beyond the end of its queue, or before its begin.

    Parameters
    ----------
    rows
        Of table ``consumer_offsets``, a ``pa.Table``. Those furthest outside come first.
    """
    outside = rows.filter(pc.or_(pc.less(rows["lag"], 0), pc.greater(rows["expired"], 0)))
    found = outside.to_pylist()
    found.sort(key=lambda row: (row["lag"], -row["expired"], row["group"], row["topic"]))
    return [_text(row) for row in found]


def _text(row: dict[str, object]) -> str:
    where = f"queue {row['queue_id']} of topic {row['topic']!r}"
    if int(str(row["lag"])) < 0:
        return (
            f"group {row['group']!r} is {-int(str(row['lag'])):,} messages beyond the end of "
            f"{where}: its offset is {row['consumer_offset']}, the queue ends at "
            f"{row['broker_offset']}; it gets none of the next messages, until its offset is reset"
        )
    return (
        f"group {row['group']!r} has not consumed {int(str(row['expired'])):,} messages of {where} "
        f"that are deleted: its offset is {row['consumer_offset']}"
    )
