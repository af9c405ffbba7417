"""`python -m prove.faults`: what is lost when files, servers, processes or users' code fail.

Each part attacks real runs in processes of their own, in a folder that is deleted afterwards,
and counts the tries that lost, doubled or hid something. Prints Markdown for
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

from .fault_parts import Tried
from .fault_parts.tried import set_scale
from .parts import markdown

__all__ = ["PARTS", "main"]

PARTS: Final = (
    *("kills", "http", "journals", "power", "full_disk"),
    *("stores", "user_code", "budget", "secrets"),
)
"""Names of modules in `fault_parts`; each has a function `attack(folder, chance)`."""
_SEED: Final = 15


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m prove.faults", description=__doc__)
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="only this; may be repeated (all)"
    )
    parser.add_argument("--seed", type=int, default=_SEED, help=f"of the moments ({_SEED})")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="tries, as a part of the usual number (1)"
    )
    asked = parser.parse_args(arguments)
    set_scale(asked.scale)
    # Whoever ends it leaves no process and no mounted folder behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lost: list[str] = []
    started = time.perf_counter()
    print(markdown(["part", "attack", "tries", "losses", "seen"], []), flush=True)
    for name in asked.part or PARTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        began, cpu = time.perf_counter(), _cpu_seconds()
        for tried in _part(name, asked.seed):
            counts = f"{tried.tries:,} | {tried.losses:,}"
            print(f"| {name} | {tried.attack} | {counts} | {tried.note} |", flush=True)
            if tried.losses:
                lost.append(f"LOST {name}, {tried.attack}: {tried.first_loss}")
        took = f"{time.perf_counter() - began:,.0f} s, {_cpu_seconds() - cpu:,.0f} of CPU"
        print(f"{name}: {took}", file=sys.stderr, flush=True)
    print(
        f"\n{time.perf_counter() - started:,.0f} s, {_cpu_seconds():,.0f} of CPU, "
        f"seed {asked.seed}, scale {asked.scale:g}, {collect_provenance()}"
    )
    print(*lost, sep="\n")
    return 1 if lost else 0


def _cpu_seconds() -> float:
    """Of this process and those it started."""
    return sum(os.times()[:4])


def _part(name: str, seed: int) -> Iterator[Tried]:
    attack: Callable[[Path, random.Random], Iterable[Tried]]
    attack = import_module(f"prove.fault_parts.{name}").attack
    with TemporaryDirectory(prefix="assay-faults-") as folder:
        yield from attack(Path(folder), random.Random(f"{seed} {name}"))


if __name__ == "__main__":
    sys.exit(main())
