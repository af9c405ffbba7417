"""`python -m prove.statistics`: what the statistics promise, by simulation.

Each part draws data whose truth is known, calls the functions that everyone calls, prints
Markdown, and names the targets that were missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from assay._util.provenance import provenance

from .differences import differences
from .intervals import intervals
from .looks import looks
from .parts import Found
from .score import score
from .units import units

__all__ = ["PARTS", "main"]

PARTS: dict[str, Callable[[int], Found]] = {
    "intervals": intervals,
    "score": score,
    "differences": differences,
    "looks": looks,
    "units": units,
}
"""Each takes the number of sets or simulations a cell."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m prove.statistics", description=__doc__)
    parser.add_argument(
        "--sets",
        type=int,
        default=20_000,
        help="sets a cell (20000); far fewer miss targets by chance",
    )
    parser.add_argument(
        "--part", action="append", choices=list(PARTS), help="only this; may be repeated (all)"
    )
    asked = parser.parse_args(arguments)
    if asked.sets < 100:
        parser.error(f"{asked.sets} sets say nothing; give 100 or more")
    missed = list[str]()
    for name in asked.part or list(PARTS):
        print(f"{name}: {asked.sets:,} sets a cell", file=sys.stderr)
        started = time.perf_counter()
        found = PARTS[name](asked.sets)
        seconds = time.perf_counter() - started
        print(f"## {name}\n\n{found.text}\n\n{seconds:,.0f} s, {provenance()}\n")
        missed += [f"{name}: {sentence}" for sentence in found.missed]
    for sentence in missed:
        print(f"MISSED {sentence}")
    print(f"{len(missed)} targets missed" if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
