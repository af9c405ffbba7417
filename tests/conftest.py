"""What all tests share.

`record_property("note", "3 of 5 seen")` prints that line after the results, whichever
worker ran the test.
"""

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from assay._util import secret
from assay.crafter import warmup
from tests.runs.places import Place, two_nodes


def pytest_configure() -> None:
    # First come, last called: nobody uses DuckDB after that.
    atexit.register(_drop_duckdb)
    # A shell that starts tests in the background has them ignore Ctrl-C, and programs that
    # tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _drop_duckdb() -> None:
    """Let go of the types that DuckDB's modules hold, which it would list as leaked."""
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("duckdb", "_duckdb")
    ]:
        vars(sys.modules[name]).clear()


@pytest.fixture(autouse=True, scope="session")
def no_terminal() -> None:
    """Workers of xdist tell programs how wide a terminal is, and there is none."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def unknown_secrets() -> None:
    """No test takes the keys of another one out of its texts."""
    secret._known.clear()
    secret._in_environment.cache_clear()


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """No program that a test starts has to compile the engine first."""
    warmup()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """One cluster of two nodes for all tests: to start it takes seconds."""
    with two_nodes() as started:
        yield started


@pytest.fixture(
    params=[
        pytest.param("processes", marks=pytest.mark.extras),
        pytest.param("ray", marks=pytest.mark.ray),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    """Each place where workers can be."""
    if request.param == "processes":
        return Place({"executor": "processes"})
    nodes = request.getfixturevalue("cluster")
    return Place({"executor": "ray", "ray_address": nodes.address}, nodes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "note"
    ]
    if notes:
        terminalreporter.section("notes")
    for test, note in sorted(notes):
        terminalreporter.line(f"{test}: {note}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest test goes first, so that nobody waits for it alone at the end.
    items.sort(key=lambda item: item.path.name != "test_makefile.py")
