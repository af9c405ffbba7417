"""Unpack the golden files, run commands on them, and compare outputs."""

import csv
import json
import math
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb

from tests.support import Finished, call_assay

from .inputs import BASE_URL, ENVIRONMENT

__all__ = ["command", "differences", "file_differences", "unpack"]

_GOLDEN: Final = Path(__file__).parent / "557b711"

REWORDED: Final[tuple[tuple[str, str], ...]] = (
    ("(95 % interval", "(about 95 % interval"),
    (", 95 % interval", ", about 95 % interval"),
    *(
        (f"Only {metric} decides.", f"The verdict rests on {metric} alone.")
        for metric in ("achievements", "idle")
    ),
)
"""Words of the golden files that were changed on purpose since, with their replacements."""

HEADINGS: Final = {
    "## What made this report": "## Provenance",
    "## Cost beside quality": "## Cost and quality",
    "## Everybody against everybody": "## Ranking",
}
"""Headings of reports that were renamed since, with their new names."""
ADDED: Final[frozenset[str]] = frozenset(
    {
        *("arm", "experiments.arm", "runs.sessions.outcomes", "session.trial_kind"),
        *("trials.parquet", "unfinished", "passes", "## Leaderboard", "## Episodes"),
        *("## Endings", "subjects.endings"),
        *("differences", "score_differences", "scores.limit", "standings.order.shrunken"),
        *(
            f"{where}.{name}"
            for where in ("contrasts", "standings.pairs")
            for name in ("design", "losses", "same", "shrunken", "standardised", "fewest")
        ),
        *(f"instances.{name}" for name in ("horizon", "mean_time", "p_value", "unit")),
        *("instances.times.steps", "experiments.configuration", "experiments.run_id"),
        *("capacity", "contrasts.tests.equivalence_needs"),
        "standings.pairs.tests.equivalence_needs",
    }
)
"""Keys and columns that were added on purpose since, such as `subjects.task`."""

CHANGED: Final = re.compile(
    "|".join(
        (
            # A verdict names its assumptions, and a plan the next seeds.
            r"answers\.lines\.answer",
            r"(contrasts|standings\.pairs)\.(skewness|pairing\.(hurts|sentence))",
            # Intervals stay within what is possible, and have width; shares are exact.
            r"(contrasts|standings\.pairs)\.(mean_\w+|difference|naive)\.(low|high)",
            r"(subjects\.metrics\.\w+\.mean|instances\.success|scores\.interval)\.(low|high)",
            r"(mean_baseline|mean_candidate|difference)_(low|high)",
            r"(metrics\.[\w/]+|result)\.(low|high)",
            # All pairs on a page share one correction, and plans aim at a shrunken effect.
            r"contrasts\.(tests\.p_adjusted|detectable|settle\.\w+(\.\w+)?)",
            # Time to success ends at the step that succeeded.
            r"instances\.median_time",
            # A results file is paired by task and seed, and an export names its run.
            r"contrasts\.pairs\.pair|subjects\.run_id",
            # Steps have no direction, and four pairs are too few for a verdict.
            r"((answers|contrasts|standings\.pairs)\.)?verdict|verdict\.(word|sentence)",
            r"contrasts\.settle|standings\.order\.(groups|rank|shared)",
            # An analysis names the option that pairs runs.
            r"note",
        )
    )
)
"""Keys and columns whose values were changed on purpose since."""

_VERSIONS: Final = frozenset({"made", "versions"})
"""Keys that name the program that made an output."""


def unpack(part: str, folder: Path) -> Path:
    """Unpack a part of the golden files into a folder."""
    with tarfile.open(_GOLDEN / f"{part}.tar.xz") as archive:
        # Python 3.11.2 has no filters; these files are our own.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


def command(folder: Path, *arguments: str, base_url: str = "http://127.0.0.1:9/v1") -> Finished:
    """Return the program in a folder, in this process."""
    with _variables({**ENVIRONMENT, BASE_URL: base_url}):
        return call_assay(folder, *arguments)


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def file_differences(golden: Path, now: Path) -> list[str]:
    """Yield the differences of two files, or of all files in two folders."""
    if golden.is_dir():
        names = sorted(path.name for path in golden.iterdir())
        found = sorted(path.name for path in now.iterdir())
        added = [name for name in found if name not in names and name not in ADDED]
        return [f"{now.name}: there is {name}" for name in added] + [
            line for name in names for line in file_differences(golden / name, now / name)
        ]
    if not now.exists():
        return [f"{now.name} is missing"]
    return [f"{now.name}{line}" for line in differences(_read(golden), _read(now))]


def differences(golden: Any, now: Any, place: str = "") -> list[str]:
    """Yield the differences of two values, except for program version and last digits."""
    if isinstance(golden, dict) and isinstance(now, dict):
        keys = golden.keys() | now.keys()
        path = place.lstrip(".")
        return [
            line
            for key in sorted(keys - _VERSIONS)
            if not _on_purpose(f"{path}.{key}" if path else key)
            for line in differences(
                golden.get(key, "(nothing)"), now.get(key, "(nothing)"), f"{place}.{key}"
            )
        ]
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = zip(golden, now, strict=True)
        return [line for old, new in pairs for line in differences(old, new, place)]
    if isinstance(golden, float) and isinstance(now, float):
        # Another processor may add up in another order.
        if math.isclose(golden, now, rel_tol=1e-9, abs_tol=1e-12):
            return []
        if math.isnan(golden) and math.isnan(now):
            return []
    if isinstance(golden, str):
        for old, new in REWORDED:
            golden = golden.replace(old, new)
    if golden == now:
        return []
    return [f"{place}: {str(golden)[:200]} -> {str(now)[:200]}"]


def _on_purpose(path: str) -> bool:
    return path in ADDED or CHANGED.fullmatch(path) is not None


def _read(path: Path) -> Any:
    match path.suffix:
        case ".json":
            return json.loads(path.read_text("utf-8"))
        case ".jsonl":
            return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        case ".csv":
            return list(map(_cells, csv.DictReader(StringIO(path.read_text("utf-8")))))
        case ".md":
            lines = path.read_text("utf-8").splitlines()
            # The JSON file has the content; a page is compared by its headings.
            headings = [HEADINGS.get(line, line) for line in lines if line.startswith("#")]
            assert headings[-1] == "## Provenance"
            return [heading for heading in headings[:-1] if heading not in ADDED]
        case ".parquet":
            return _rows(path)
    raise AssertionError(f"no way to read {path}")


def _cells(row: dict[str, str]) -> dict[str, Any]:
    return {
        name: _number(cell)
        for name, cell in row.items()
        if name not in ("assay", "assay_commit") and not name.startswith("analysed_by_")
    }


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _rows(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        found = connection.execute(f"FROM '{path}' ORDER BY ALL")
        names = [column[0] for column in found.description or ()]
        # Hashes were UUIDs once, and are the same as text.
        return [
            {
                name: str(value) if isinstance(value, UUID) else value
                for name, value in zip(names, row, strict=True)
            }
            for row in found.fetchall()
        ]
