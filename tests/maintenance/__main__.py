# SPDX-License-Identifier: Apache-2.0
"""Run sequences of maintenance again: ``python -m tests.maintenance SEED [LAST]``.

``--keep DIRECTORY`` leaves the stores of a sequence there.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.maintenance.sequences import run_sequence


def main() -> None:
    """Print the steps of each sequence, and failures."""
    logging.disable(logging.WARNING)
    arguments, kept = sys.argv[1:], None
    if "--keep" in arguments:
        at = arguments.index("--keep")
        kept = Path(arguments[at + 1])
        del arguments[at : at + 2]
    first, last = int(arguments[0]), int(arguments[-1])
    for seed in range(first, last + 1):
        run = run_sequence(seed, place=kept)
        shown = first == last or run.failure
        print(run.text if shown else f"{seed}: held", flush=True)


if __name__ == "__main__":
    main()
