"""Questions to a store, answered as pandas data frames: see `rmqsource.explore.questions`."""

from rmqsource.explore import questions
from rmqsource.explore.questions import *  # noqa: F403 (what it offers is said there, once)

__all__ = questions.__all__
