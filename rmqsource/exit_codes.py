"""Exit codes of ``rocketmq-store``: one meaning each, in all commands."""

from __future__ import annotations

GOOD = 0
FOUND = 1
NOT_DONE = 2
TAIL_CUT = 3
INTERRUPTED = 130
"""As in shells: 128 plus the number of the signal."""

MEANINGS = {
    GOOD: "done, and nothing is wrong",
    FOUND: "damage, a difference between stores, more than `--fail-above` allows, or something "
    "asked for is not there: no message matches, or a topic or an id is unknown",
    NOT_DONE: "not done: wrong use; a path that is missing, holds no store, or may not be read or "
    "written; a store that a broker has open; a cluster that cannot be reached, or refuses",
    TAIL_CUT: "`recover` only: recovered, and what a crash left behind the end of the log was cut",
    INTERRUPTED: "interrupted by Ctrl-C, which is also how `messages --follow` ends; `follow`, "
    "`serve` and `tail` stop cleanly then, with 0",
}
"""Code -> meaning; the documentation has the same table. If two apply, the greater one counts."""

EXIT_CODES = (
    "Exit codes: 0 good, 1 found damage, a difference, an alert or nothing, 2 wrong use or not "
    "readable or reachable, 3 recovered by a cut, 130 interrupted. JSON is one object per line; "
    "times in tables are UTC, or of --tz."
)
"""The same, for the end of every help text."""
