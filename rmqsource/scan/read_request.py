"""What a task has to know of a read beside its split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqsource.scan.splits import COMMIT_LOG, COMPACTION

if TYPE_CHECKING:
    from rmqsource.damage import OnDamage
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate


@dataclass(frozen=True)
class ReadRequest:
    """Travels between processes, as long as ``on_damage`` is a function of a module."""

    predicate: ScanPredicate
    columns: tuple[str, ...]
    """Canonical names, in the order asked for."""
    table: str
    mode: str
    check_crc: bool
    raw_body: bool
    batch_rows: int
    batch_bytes: int
    max_decoded_bytes: int
    fail_on_data_loss: bool
    undispatched: bool
    """Return records that RocketMQ never dispatches too."""
    on_damage: OnDamage
    drops_reported: bool

    @classmethod
    def of(
        cls, options: SourceOptions, predicate: ScanPredicate, columns: tuple[str, ...]
    ) -> ReadRequest:
        """Return what these options ask of a task."""
        return cls(
            predicate=predicate,
            columns=columns,
            table=options.table,
            mode=options.mode,
            check_crc=options.check_crc,
            raw_body=options.body == "raw",
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            max_decoded_bytes=options.max_decoded_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
            undispatched=options.access in (COMMIT_LOG, COMPACTION),
            on_damage=options.on_damage,
            drops_reported=options.drops_reported,
        )
