# SPDX-License-Identifier: Apache-2.0
"""Questions about a store, answered as pandas data frames: see `rmqsource.explore.questions`."""

from rmqsource.explore import questions
from rmqsource.explore.questions import *  # noqa: F403 (its __all__ lists the names)

__all__ = questions.__all__
