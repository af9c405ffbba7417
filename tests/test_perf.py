"""`python -m perf`: a failed row is shown, does not stop other rows, and fails the command."""

from pathlib import Path

import pytest

from perf.measure import Row, Topic, measure
from perf.table import as_json, format_verdict, print_results
from tests.support import ROOT, run_python

MISSING = {"absent": "skipped, it is not there: make install-peers"}


def row(name: str, ours: str, peer: str = "slow") -> Row:
    return Row(name=name, what=name, ours=ours, peer=peer, against="the slow side")


def fail(turn: int) -> float:
    raise ZeroDivisionError("float division by zero")


TOPIC = Topic(
    name="tried",
    unit="call",
    sides={
        "quick": lambda _: 1.0,
        "slow": lambda _: 2.0,
        "zero": lambda _: 0.0,
        "broken": fail,
    },
    rows=(
        row("before", "quick"),
        row("failing", "broken"),
        row("nothing", "zero"),
        row("missing", "quick", "absent"),
        row("after", "quick"),
    ),
    notes=(),
)


@pytest.fixture
def rows() -> dict[str, Row]:
    measured = measure(TOPIC, TOPIC.rows, 3, MISSING, lambda _: None)
    return {row.name: row for row in measured}


def test_an_exception_fails_only_its_row(rows: dict[str, Row]) -> None:
    assert rows["failing"].problem == "ZeroDivisionError: float division by zero"
    assert rows["before"].ratios == rows["after"].ratios == [2.0, 2.0, 2.0]
    assert rows["before"].problem is rows["after"].problem is None


def test_a_missing_measurement_fails_its_row(rows: dict[str, Row]) -> None:
    assert rows["nothing"].problem == "a ratio to 0: nothing was measured"


def test_a_row_with_a_missing_peer_is_skipped_without_failing(
    rows: dict[str, Row],
) -> None:
    assert (rows["missing"].skipped, rows["missing"].problem) == (MISSING["absent"], None)


def test_the_table_gives_the_reason_for_every_row_without_values(
    rows: dict[str, Row], capsys: pytest.CaptureFixture[str]
) -> None:
    results = [(TOPIC, [*rows.values()])]
    print_results(results)
    lines = capsys.readouterr().out.splitlines()
    assert "2x" in lines[1]
    assert "failed: ZeroDivisionError: float division by zero" in lines[2]
    assert MISSING["absent"] in lines[4]
    assert format_verdict(results).endswith("; failed: failing, nothing")
    assert [as_json(TOPIC, row)["ratio_median"] for row in rows.values()] == [
        *(2.0, None, None, None),
        2.0,
    ]


def test_the_command_prints_the_other_rows_and_exits_with_1(tmp_path: Path) -> None:
    path = path_with_broken_bubblewrap(tmp_path)
    done = run_python(
        *("-m", "perf", "--quick", "--json", "--only", "bca", "proxy-call", "bench-graded"),
        folder=ROOT,
        expected=1,
        variables={
            "ASSAY_CACHE_DIR": str(tmp_path),
            "PATH": path,
        },
    )
    rows = {row["name"]: row for row in done.json["rows"]}
    assert rows["bca"]["ratio_median"] > 0
    assert rows["proxy-call"]["ratio_median"] > 0
    assert rows["bench-graded"]["problem"]


def path_with_broken_bubblewrap(folder: Path) -> str:
    """Return a path with a bubblewrap that does not work, so that a row fails."""
    binary = folder / "bin" / "bwrap"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\nexit 1\n")
    binary.chmod(0o755)
    return f"{binary.parent}:/usr/bin:/bin"
