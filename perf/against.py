"""This tree against another commit's: `python -m perf --against COMMIT`.

Both trees take turns in one run, each measured by its own `perf` in a separate process, so
that a row stands for the same thing where modules have moved. A ratio is the old value over
the new one, of seconds or of bytes: above 1 this tree is quicker or smaller. Only our side of
a row is measured, so no peer need be installed. A row is worse where its median ratio is below
0.9, or where all of its ratios are below 1; equal trees come to that in one row of 32 with
five rounds.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .measure import Row, Topic
from .processes import ROOT, PeerFailed
from .table import format_amount, format_ratio_number

__all__ = ["ROUNDS", "ROWS", "Comparison", "as_json", "compare", "print_comparisons"]

ROWS: Final = ("turn", "turn-http", "open-memory", "store", "step")
"""Rows measured by default."""
ROUNDS: Final = 5
_LEAST: Final = 0.9
_HEADINGS: Final = ("row", "this tree", "old tree", "old/new", "spread", "rounds", "verdict")


@dataclass
class Comparison:
    """A row of both trees, with a value for each round."""

    topic: Topic
    row: Row
    new: list[float] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    problem: str | None = None
    """Reason why it could not be measured completely."""

    @property
    def ratios(self) -> list[float]:
        """Ratios of the old value to the new one, by round; above 1 is an improvement."""
        return [old / new for old, new in zip(self.old, self.new, strict=True)]

    @property
    def worse(self) -> bool:
        """Whether this tree is clearly slower or larger."""
        return statistics.median(self.ratios) < _LEAST or max(self.ratios) < 1

    @property
    def failed(self) -> bool:
        """Whether it is worse, or could not be measured."""
        return self.problem is not None or self.worse


def compare(
    commit: str, names: Sequence[str], rounds: int, report: Callable[[str], None]
) -> list[Comparison]:
    """Measure rows of both trees in turns; raise ValueError for an invalid request."""
    from .topics import (
        choose_topics,
    )  # late, as it gives the engine of this process an entry more

    comparisons = [
        Comparison(topic, row)
        for name in names or ROWS
        for topic, rows in choose_topics([name])
        for row in rows
        # A topic may have the name of one of its rows, which is then the one that is meant.
        if row.name == name or name not in {other.name for other in topic.rows}
    ]
    with ExitStack() as stack:
        old = stack.enter_context(_checkout(commit))
        ask_new = stack.enter_context(_start_measuring(ROOT))
        ask_old = stack.enter_context(_start_measuring(old))
        for turn in range(rounds):
            for comparison in comparisons:
                if comparison.problem is None:
                    name = comparison.row.name
                    report(f"{name}: round {turn + 1} of {rounds}")
                    sides = [(ask_old, comparison.old), (ask_new, comparison.new)]
                    try:
                        # Who comes second finds the machine warmer, so they take turns in that.
                        for ask, values in sides if turn % 2 == 0 else reversed(sides):
                            values.append(ask(name, turn))
                    except PeerFailed as error:
                        comparison.problem = str(error)
    return comparisons


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary folder."""
    git = ["git", "-C", str(ROOT)]
    done = subprocess.run([*git, "archive", commit, "--"], capture_output=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip()
        raise ValueError(f"no tree of {commit!r}: {reason}; give a commit of this repository")
    with tempfile.TemporaryDirectory(prefix="assay-perf-tree-") as name:
        folder = Path(name)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            # Python 3.11.2 has no filters; this is a tree of our own repository.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
        # Its processes look for packages in its root; without this they would find ours.
        (folder / "assay").symlink_to(folder / "src" / "assay")
        yield folder


@contextmanager
def _start_measuring(tree: Path) -> Iterator[Callable[[str, int], float]]:
    """Start a process in a tree; yield a function that measures a row in a round."""
    with tempfile.TemporaryDirectory(prefix="assay-perf-cache-") as cache:
        process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "perf" / "sides" / "rows_of_tree.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]),
                "ASSAY_CACHE_DIR": cache,
            },
        )
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(row: str, turn: int) -> float:
            try:
                stdin.write(json.dumps({"row": row, "round": turn}) + "\n")
                stdin.flush()
            except BrokenPipeError:
                raise PeerFailed(f"the process in {tree} has ended") from None
            line = stdout.readline()
            answer: Mapping[str, Any] = json.loads(line) if line else {}
            if "value" not in answer:
                raise PeerFailed(answer.get("problem", f"the process in {tree} has ended"))
            return float(answer["value"])

        try:
            yield ask
        except BaseException:
            process.kill()
            raise
        finally:
            process.communicate()


def print_comparisons(commit: str, comparisons: Sequence[Comparison]) -> None:
    """Print a line for each row, and the verdict on all of them."""
    lines = [_HEADINGS, *map(_format_cells, comparisons)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())
    failed = [comparison.row.name for comparison in comparisons if comparison.failed]
    print(
        "\nabove 1 this tree is quicker or smaller; a row fails whose median is below "
        f"{_LEAST}, or whose ratios are all below 1"
    )
    print(f"against {commit}: {'failed: ' + ', '.join(failed) if failed else 'passed'}")


def _format_cells(comparison: Comparison) -> tuple[str, ...]:
    if comparison.problem is not None:
        return (comparison.row.name, "-", "-", "-", "-", "-", f"none: {comparison.problem}")
    topic, ratios = comparison.topic, comparison.ratios
    return (
        comparison.row.name,
        format_amount(topic, comparison.new, topic.unit),
        format_amount(topic, comparison.old, topic.unit),
        format_ratio_number(statistics.median(ratios)),
        f"{format_ratio_number(min(ratios))}-{format_ratio_number(max(ratios))}",
        str(len(ratios)),
        "worse" if comparison.worse else "good",
    )


def as_json(commit: str, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return all results for programs, with the values of every round."""
    return {
        "against": commit,
        "passed": not any(comparison.failed for comparison in comparisons),
        "rows": [
            {
                "name": comparison.row.name,
                "unit": comparison.topic.unit,
                "ratio_is": "old over new",
                "new_values": comparison.new,
                "old_values": comparison.old,
                "ratios": comparison.ratios if comparison.problem is None else [],
                "failed": comparison.failed,
                "problem": comparison.problem,
            }
            for comparison in comparisons
        ],
    }
