"""`python -m prove.mutants`: what share of small faults in a package its tests notice.

Every operator of Cosmic Ray is put to every place of the package; none of them touches text.
Left out are annotations and the flags of dataclasses and zip, which only guard. A sample of
these mutants is drawn by a seed, and for each the tests of the package run on a copy of the
source until one fails. A mutant that hangs is noticed, too.
Runs in a separate environment (`make mutants`) and prints Markdown.
"""

import argparse
import ast
import compileall
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from .parts import markdown

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "assay"
FILES: Final = {
    "judge": ("judge/*.py",),
    "engine": ("runs/engine.py", "runs/plan.py", "runs/control.py", "runs/events.py"),
}
"""The files of each part, within the package."""
TESTS: Final = {
    "judge": ("tests/judge", "tests/report/test_comparison_words.py"),
    "engine": (
        *("tests/runs/test_run.py", "tests/runs/test_stop.py"),
        *("tests/runs/test_admission.py", "tests/runs/test_parts.py"),
        "tests/runs/test_any_plan.py",
    ),
}
"""Parts, and the tests that have to notice; those that tell most come first."""
_GUARDS: Final = {"frozen", "kw_only", "slots", "strict"}
_PATIENCE_S: Final = 120
_PRELOADED: Final = """
import os, sys
import numpy, scipy.special, scipy.stats, rich.console, rich.table, duckdb, pytest
for line in sys.stdin:
    source, *arguments = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        sys.path.insert(0, source)
        os._exit(int(pytest.main(arguments)))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has imported what takes long and is not ours; it forks for each mutant."""


class Mutant(NamedTuple):
    """One fault."""

    path: Path
    """Within `src/assay`."""
    line: int
    kind: str
    before: str
    """The line as it is."""
    after: str
    code: str
    """The whole file."""


class Tester:
    """Runs tests on a copy of the source, one mutant after the other."""

    def __init__(self, package: str, folder: Path) -> None:
        self._source = folder / "src"
        shutil.copytree(
            SOURCE, self._source / "assay", ignore=shutil.ignore_patterns("__pycache__")
        )
        # What is not mutated is compiled once; a mutant never: its bytecode would be taken
        # for that of the next one of the same size and second.
        compileall.compile_dir(self._source, quiet=2)
        for path in list_files(package, self._source / "assay"):
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        self._arguments = [
            *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"),
            *TESTS[package],
        ]
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._server = subprocess.Popen(
            [sys.executable, "-c", _PRELOADED],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def passes(self) -> bool:
        """Whether no test fails on what the copy holds; one that hangs has failed."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(
            str(self._source), *self._arguments, sep="\t", file=self._server.stdin, flush=True
        )
        child = int(self._server.stdout.readline())
        with ThreadPoolExecutor(1) as waiting:
            code = waiting.submit(self._server.stdout.readline)
            try:
                return int(code.result(_PATIENCE_S)) == 0
            except TimeoutError:
                os.killpg(child, signal.SIGKILL)
                code.result()
                return False

    def survives(self, mutant: Mutant) -> bool:
        """Whether all tests pass with this mutant in place."""
        place = self._source / "assay" / mutant.path
        original = place.read_text("utf-8")
        place.write_text(mutant.code, "utf-8")
        try:
            return self.passes()
        finally:
            place.write_text(original, "utf-8")

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


def list_files(package: str, source: Path) -> list[Path]:
    """The files that are mutated."""
    return sorted(path for pattern in FILES[package] for path in source.glob(pattern))


def find_mutants(package: str) -> Iterator[tuple[Path, str, int]]:
    """Every mutant of a package: the file, the operator, and which of its places it is."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    names = sorted(name for name in operator_names() if not get_operator(name).arguments())
    for path in list_files(package, SOURCE):
        text = path.read_text("utf-8")
        mute, nodes = list(_find_inert_ranges(text)), list(ast_nodes(get_ast(text)))
        for name in names:
            operator = get_operator(name)()
            places = (place for node in nodes for place in operator.mutation_positions(node))
            for occurrence, (start, stop) in enumerate(places):
                if not any(first <= start and stop <= last for first, last in mute):
                    yield path, name, occurrence


def _find_inert_ranges(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the ranges of annotations and guards, which do not affect behaviour."""
    for node in ast.walk(ast.parse(text)):
        for name in ("annotation", "returns", "value"):
            written = getattr(node, name, None)
            guards = isinstance(node, ast.keyword) and node.arg in _GUARDS
            if isinstance(written, ast.expr) and (name != "value" or guards):
                assert written.end_lineno is not None
                assert written.end_col_offset is not None
                yield (
                    (written.lineno, written.col_offset),
                    (written.end_lineno, written.end_col_offset),
                )


def sample_mutants(package: str, count: int, seed: int) -> tuple[list[Mutant], int]:
    """Return a sample of the valid mutants of a package, and their total number."""
    everything = list(find_mutants(package))
    random.Random(seed).shuffle(everything)
    chosen = list[Mutant]()
    for path, operator, occurrence in everything:
        if len(chosen) == count:
            break
        mutant = _apply_mutation(path, operator, occurrence)
        if mutant is not None:
            chosen.append(mutant)
    return chosen, len(everything)


def _apply_mutation(path: Path, name: str, occurrence: int) -> Mutant | None:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = path.read_text("utf-8")
    code = mutate_code(text, get_operator(name)(), occurrence)
    if code is None or code == text:
        return None
    try:
        compile(code, str(path), "exec")
    except (SyntaxError, ValueError):
        return None
    before, after = text.splitlines(), code.splitlines()
    line = next(
        (at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new),
        min(len(before), len(after)) - 1,
    )
    kind = name.removeprefix("core/").split("_")[0]
    return Mutant(path.relative_to(SOURCE), line + 1, kind, before[line], after[line], code)


def measure_package(package: str, count: int, seed: int, jobs: int) -> str:
    """Run the tests on a sample of the mutants of a package; return the results."""
    chosen, total = sample_mutants(package, count, seed)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        testers = [Tester(package, Path(folder) / str(job)) for job in range(jobs)]
        if not testers[0].passes():
            raise SystemExit(
                f"the tests of {package} fail without any mutant: {TESTS[package]}"
            )

        def work(job: int) -> list[Mutant]:
            own = chosen[job::jobs]
            alive = []
            for number, mutant in enumerate(own, start=1):
                if testers[job].survives(mutant):
                    alive.append(mutant)
                    print(
                        f"{mutant.path}:{mutant.line} {mutant.after.strip()}", file=sys.stderr
                    )
                if number % 25 == 0:
                    print(f"{package}: {number} of {len(own)} in job {job}", file=sys.stderr)
            return alive

        with ThreadPoolExecutor(jobs) as pool:
            survivors = [mutant for alive in pool.map(work, range(jobs)) for mutant in alive]
        for tester in testers:
            tester.close()
    caught = len(chosen) - len(survivors)
    kinds, alive = Counter(m.kind for m in chosen), Counter(m.kind for m in survivors)
    rows = [
        [kind, str(number), str(number - alive[kind])] for kind, number in kinds.most_common()
    ]
    lines = [
        f"- `{m.path}:{m.line}` {m.kind}: `{m.before.strip()}` became `{m.after.strip()}`"
        for m in sorted(survivors, key=lambda m: (m.path, m.line))
    ]
    return "\n\n".join(
        [
            f"### {package}: {caught} of {len(chosen)} caught ({caught / len(chosen):.1%})",
            f"{len(chosen)} of {total:,} mutants, seed {seed}, {' '.join(TESTS[package])};"
            f" {time.perf_counter() - started:,.0f} s.",
            markdown(["kind", "mutants", "caught"], rows),
            "\n".join(lines) or "None survived.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m prove.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants of each package (300)")
    parser.add_argument("--seed", type=int, default=11, help="of the sample (11)")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (2)")
    parser.add_argument(
        "--package",
        action="append",
        choices=list(TESTS),
        help="only this; may be repeated (all)",
    )
    asked = parser.parse_args(arguments)
    for package in asked.package or list(TESTS):
        print(
            measure_package(package, asked.count, asked.seed, asked.jobs),
            end="\n\n",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
