# SPDX-License-Identifier: Apache-2.0
"""``python -m bench``: measure, print the rows of each scenario, write JSON."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.context import Context
from bench.figures import Results, as_table, read_results, write_json
from bench.machine import machine_facts
from bench.scenarios import SCENARIOS

_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen scenarios; return 1 if a figure misses a bound that it must keep, else 0."""
    options = _parser().parse_args(arguments)
    letters = options.only.split(",") if options.only else list(SCENARIOS)
    unknown = sorted(set(letters) - set(SCENARIOS))
    if unknown:
        _parser().error(
            f"--only: no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}"
        )
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = options.resume or options.json or options.work / "results" / f"{stamp}.json"
    results = read_results(path) if options.resume else Results(machine_facts(), options.quick)
    write_json(path, results)
    context = Context(options.work, results.quick)
    try:
        for letter in (one for one in letters if one not in results.scenarios):
            start = time.perf_counter()
            figures = SCENARIOS[letter](context)
            results.add(letter, figures)
            write_json(path, results)
            sys.stdout.write(f"\n{as_table(figures)}\n")
            sys.stdout.flush()
            sys.stderr.write(f"scenario {letter}: {time.perf_counter() - start:.0f} s\n")
    except KeyboardInterrupt:
        sys.stderr.write(f"\ninterrupted; --resume {path} runs the remaining scenarios\n")
        return _INTERRUPTED
    finally:
        context.close()
    facts = ", ".join(f"{name} {value}" for name, value in results.machine.items())
    sys.stdout.write(f"\n{as_table(results.figures)}\n\n{facts}\n{path}\n")
    missed = any(figure.meets(figure.must) is False for figure in results.figures)
    return 1 if missed and not results.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="use small stores, to see whether everything runs"
    )
    parser.add_argument("--only", metavar="a,c", help="letters of scenarios (bench/README.md)")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/bench"),
        help="directory for stores (3 GB), the Java build and results",
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="JSON",
        help="continue an interrupted run, quick or not, without repeating its scenarios",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
