"""`python -m prove.faults`: losses when files, servers, processes or user code fail.

Each part attacks real runs in separate processes, in a temporary folder, and counts the tries
that lost, duplicated or hid something. Prints Markdown for
`docs/design/faults.md`. A part is a function from a folder and a random generator to lines of
the table; `fault_parts/` has a file for each.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from assay.core.provenance import collect_provenance

from .fault_parts import FaultRow
from .fault_parts.tried import set_scale
from .parts import markdown

__all__ = ["PARTS", "main"]

PARTS: Final = (
    *("kills", "http", "journals", "power", "full_disk"),
    *("stores", "user_code", "budget", "secrets"),
)
"""Names of modules in `fault_parts`; each has a function `attack(folder, chance)`."""
_DEFAULT_SEED: Final = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m prove.faults", description=__doc__)
    parser.add_argument(
        "--part",
        action="append",
        choices=PARTS,
        help="only this part; may be repeated (default: all)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=_DEFAULT_SEED,
        help=f"seed of the random moments ({_DEFAULT_SEED})",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of tries (1)"
    )
    options = parser.parse_args(arguments)
    set_scale(options.scale)
    # SIGTERM must leave no process and no mounted folder behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lost: list[str] = []
    started = time.perf_counter()
    print(markdown(["part", "attack", "tries", "losses", "seen"], []), flush=True)
    for name in options.part or PARTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        began, cpu = time.perf_counter(), _cpu_seconds()
        for row in _run_part(name, options.seed):
            counts = f"{row.tries:,} | {row.losses:,}"
            print(f"| {name} | {row.attack} | {counts} | {row.note} |", flush=True)
            if row.losses:
                lost.append(f"LOST {name}, {row.attack}: {row.first_loss}")
        took = f"{time.perf_counter() - began:,.0f} s, {_cpu_seconds() - cpu:,.0f} of CPU"
        print(f"{name}: {took}", file=sys.stderr, flush=True)
    print(
        f"\n{time.perf_counter() - started:,.0f} s, {_cpu_seconds():,.0f} of CPU, "
        f"seed {options.seed}, scale {options.scale:g}, {collect_provenance()}"
    )
    print(*lost, sep="\n")
    return 1 if lost else 0


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its children."""
    return sum(os.times()[:4])


def _run_part(name: str, seed: int) -> Iterator[FaultRow]:
    run_attack: Callable[[Path, random.Random], Iterable[FaultRow]]
    run_attack = import_module(f"prove.fault_parts.{name}").attack
    with TemporaryDirectory(prefix="assay-faults-") as folder:
        yield from run_attack(Path(folder), random.Random(f"{seed} {name}"))


if __name__ == "__main__":
    sys.exit(main())
