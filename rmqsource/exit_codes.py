# SPDX-License-Identifier: Apache-2.0
"""Exit codes of ``rocketmq-store``: one meaning each, in all commands."""

from __future__ import annotations

GOOD = 0
FOUND = 1
NOT_DONE = 2
TAIL_CUT = 3
INTERRUPTED = 130
"""As in shells: 128 plus the number of the signal."""

MEANINGS = {
    GOOD: "done; nothing is wrong",
    FOUND: "damage, a difference between stores, more than `--fail-above` allows, or a request "
    "without a result: no message matches, or a topic or id is unknown",
    NOT_DONE: "not done, or only in part: wrong usage; a path that is missing, is not a store, or "
    "may not be read or written; a store that a broker has open; a cluster that cannot "
    "be reached or refuses the request",
    TAIL_CUT: "`recover` only: the store was recovered, and readable records that a crash left "
    "after the end of the log were cut off",
    INTERRUPTED: "interrupted by Ctrl-C, which is also how `messages --follow` ends; `follow`, "
    "`serve` and `tail` then stop cleanly with 0",
}
"""Code -> meaning; the documentation has the same table. If two apply, the greater one counts."""

EXIT_CODES = (
    "Exit codes: 0 success; 1 damage, a difference, an alert, or nothing found; 2 wrong "
    "usage, or the store or cluster cannot be read or reached; 3 recovered, but records "
    "after the end of the log were cut off; 130 interrupted. JSON output has one object per "
    "line. Times in tables are UTC unless --tz is given."
)
"""The same, for the end of every help text."""
