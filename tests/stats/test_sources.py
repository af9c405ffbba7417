"""Every number that a report shows comes from a function whose docstring names its source."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/statistics.md"
HEADING = "## Where a number comes from"
READERS = ("judge/*.py", "report/**/*.py", "training/*.py", "episodes/*.py", "cli/*.py")
"""The files that make numbers for reports, within the package."""
NO_NUMBER = {
    "denominator_note": "a sentence about `ratio_of_means`",
    "check_size": "refuses what cannot be added up",
    "deviation_of": "a standard deviation that does not overflow",
    "looks": "makes each look by `decide`",
    "pair_differences": "a subtraction",
    "summarize_curve": "picks one of the five summaries, which are in the table",
}


class Row(NamedTuple):
    """A row of the table."""

    function: str
    """Its module within `assay.stats`, and its name."""
    source: str


def rows() -> list[Row]:
    """The table at the end of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"{HEADING}\n")[1]
    section = re.split(r"^## ", section, flags=re.MULTILINE)[0]
    lines = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line[1:-1]] for line in lines[2:]]
    return [Row(function.strip("`"), source) for _, _, function, source in cells]


def imported() -> Iterator[str]:
    """The functions of `assay.stats` that reports use."""
    for pattern in READERS:
        for path in sorted((ROOT / "src/assay").glob(pattern)):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                    "assay.stats"
                ):
                    yield from (one.name for one in node.names if one.name.islower())


def found(function: str) -> Any:
    module, *names = function.split(".")
    return reduce(getattr, names, importlib.import_module(f"assay.stats.{module}"))


def stated(function: str) -> str:
    """What a function and its module say about themselves."""
    one = found(function)
    return f"{inspect.getdoc(one)}\n{inspect.getmodule(one).__doc__}"


def test_the_table_has_rows_and_names_each_function_once() -> None:
    names = [row.function for row in rows()]

    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.function)
def test_a_function_of_the_table_names_its_author_and_year(row: Row) -> None:
    said = stated(row.function)

    assert inspect.getdoc(found(row.function))
    names, years = re.findall(r"[A-Z][a-z]+", row.source), re.findall(r"\d{4}", row.source)
    assert names
    assert years
    assert [word for word in (*names, *years) if word not in said] == []


def test_every_function_that_a_report_uses_is_in_the_table() -> None:
    names = {row.function.split(".")[-1] for row in rows()}

    assert set(imported()) - names - set(NO_NUMBER) == set()
    assert not names & set(NO_NUMBER)
