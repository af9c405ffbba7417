"""`python -m prove.statistics`: what the statistics promise, by simulation.

Each part draws data whose truth is known, calls the functions that everyone calls, prints
Markdown, and names the targets that were missed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial as bind
from multiprocessing import get_context

from assay.core.provenance import collect_provenance

from .chosen import chosen
from .designs import designs
from .differences import differences
from .intervals import intervals
from .looks import looks
from .partial import partial
from .parts import Found
from .ranges import ranges
from .score import score
from .shares import shares
from .units import units

__all__ = ["PARTS", "main"]

PARTS: dict[str, Callable[[int], Found]] = {
    "intervals": intervals,
    "score": score,
    "differences": differences,
    "shares": shares,
    "partial": partial,
    "chosen": chosen,
    "looks": looks,
    "units": units,
    "ranges": ranges,
    "designs": designs,
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
    parser.add_argument("--processes", type=int, default=2, help="parts at a time (2)")
    asked = parser.parse_args(arguments)
    if asked.sets < 100:
        parser.error(f"{asked.sets} sets say nothing; give 100 or more")
    missed, started = list[str](), time.perf_counter()
    names = asked.part or list(PARTS)
    with get_context("spawn").Pool(min(asked.processes, len(names))) as pool:
        for name, found, seconds in pool.imap(bind(_run, asked.sets), names):
            print(
                f"## {name}\n\n{found.text}\n\n{seconds:,.0f} s of CPU, "
                f"{collect_provenance()}\n"
            )
            missed += [f"{name}: {sentence}" for sentence in found.missed]
    for sentence in missed:
        print(f"MISSED {sentence}")
    minutes = (time.perf_counter() - started) / 60
    print(f"{minutes:.1f} minutes in {asked.processes} processes, {asked.sets:,} sets a cell")
    print(f"{len(missed)} targets missed" if missed else "all targets met")
    return 1 if missed else 0


def _run(sets: int, name: str) -> tuple[str, Found, float]:
    """What a part found, and the seconds of CPU it took."""
    print(f"{name}: {sets:,} sets a cell", file=sys.stderr)
    started = time.process_time()
    found = PARTS[name](sets)
    return name, found, time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
