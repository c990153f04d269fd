"""``python -m bench``: measure, print a table, write JSON."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.context import Context
from bench.figures import Figure, as_table, write_json
from bench.machine import machine_facts
from bench.scenarios import SCENARIOS


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen scenarios; return 1 if a bound is missed that must be kept, else 0."""
    options = _parser().parse_args(arguments)
    letters = options.only.split(",") if options.only else list(SCENARIOS)
    unknown = sorted(set(letters) - set(SCENARIOS))
    if unknown:
        _parser().error(
            f"--only: no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}"
        )
    machine = machine_facts()
    context = Context(options.work, options.quick)
    figures: list[Figure] = []
    try:
        for letter in letters:
            start = time.perf_counter()
            figures += SCENARIOS[letter](context)
            taken = time.perf_counter() - start
            sys.stderr.write(f"scenario {letter}: {taken:.0f} s\n")
    finally:
        context.close()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = options.json or options.work / "results" / f"{stamp}.json"
    write_json(path, figures, machine, options.quick)
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    sys.stdout.write(f"\n{as_table(figures)}\n\n{facts}\n{path}\n")
    missed = any(figure.meets(figure.must) is False for figure in figures)
    return 1 if missed and not options.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small stores: does it all run?")
    parser.add_argument("--only", metavar="a,c", help="letters of scenarios (bench/README.md)")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/bench"),
        help="where stores are kept (3 GB), Java is built, results are written",
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
