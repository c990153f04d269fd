# SPDX-License-Identifier: Apache-2.0
"""Run one mutated store again, or several: ``python -m tests.hostile SEED NUMBER [NUMBER]``.

``--keep DIRECTORY`` leaves the store there in the state before its commands.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.hostile.cases import draw_case
from tests.hostile.running import commands_of, run_store


def main() -> None:
    """Print what happens to the stores."""
    arguments = sys.argv[1:]
    if "--keep" in arguments:
        at = arguments.index("--keep")
        kept = Path(arguments[at + 1])
        del arguments[at : at + 2]
        case = draw_case(int(arguments[0]), int(arguments[1]), kept)
        print(f"{kept}: {case.base.name}, {case.done}")
        return
    seed, first = int(arguments[0]), int(arguments[1])
    last = int(arguments[2]) if len(arguments) > 2 else first
    for number in range(first, last + 1):
        with tempfile.TemporaryDirectory() as place:
            done, failures = run_store(
                seed, number, Path(place, "case"), begin=lambda name: print("begin", name)
            )
        print(number, commands_of(seed, number), [(d.command, d.end, d.seconds) for d in done])
        for failure in failures:
            print(failure.command, failure.kind, failure.text, *failure.mutations, sep="\n  ")


if __name__ == "__main__":
    main()
