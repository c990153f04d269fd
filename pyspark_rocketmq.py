# SPDX-License-Identifier: Apache-2.0
"""Makes the source ``rocketmq`` known to Spark wherever this module is installed.

Spark imports every top-level module named ``pyspark_*`` and registers its ``DefaultSource``; one
module that fails hides the sources of all of them. So this one imports pyspark and nothing else:
whatever else may be missing or broken shows when the source is used, to the one who uses it.
Source: pyspark ``sql/worker/lookup_data_sources.py`` (4.0 to 4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The name ``rocketmq``; constructing it gives the source itself.

    Spark pickles this class by reference, so that it is small and works in every process that can
    import this module. The instances are ``rmqsource``'s: Spark pickles and calls nothing of ours
    after construction, and there is no list of methods here to keep in step with Spark's.
    """

    def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]  # see above
        """Return the source, with `options` as Spark hands them over."""
        from rmqsource.spark.live_format import RocketMQDataSource

        return RocketMQDataSource(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "rocketmq"
