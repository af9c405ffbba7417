"""A configuration keeps its fingerprints, its ids and its unfinished run."""

import json
from pathlib import Path
from typing import Any

import pytest

from .commands import CONFIGURATIONS, ELSEWHERE
from .files import command, unpack
from .make import ids_of
from .player import playing

pytestmark = pytest.mark.usefixtures("compiled_engine")

_LATER = ("address", "baseline")
"""Tags that experiments have since then."""


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_keeps_its_fingerprints_and_ids(name: str, tmp_path: Path) -> None:
    folder = unpack("configurations", tmp_path)
    expected: dict[str, Any] = json.loads((folder / "ids.json").read_text("utf-8"))[name]
    options = ("--run-id", name, "--database", "whole.duckdb", "--json")
    try:
        with playing(address=ELSEWHERE if name == "chosen" else "127.0.0.1:0") as player:
            done = command(folder, "run", *CONFIGURATIONS[name], *options, base_url=player.url)
    except OSError as error:
        pytest.skip(f"{ELSEWHERE} cannot be listened on: {error.strerror}")
    assert done.code == 0, done.errors
    found = ids_of(folder / "whole.duckdb", name)
    assert unmarked(found["experiments"]) == unmarked(expected["experiments"])
    assert found["sessions"] == expected["sessions"]
    assert found["configuration"] == expected["configuration"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_repeated_command_finds_its_unfinished_run(name: str, tmp_path: Path) -> None:
    folder = unpack("configurations", tmp_path)
    options = (*CONFIGURATIONS[name], "--database", "unfinished.duckdb")
    done = command(folder, "run", *options, "--dry-run", "--json")
    assert done.code == 0, done.errors
    plan = json.loads(done.output)
    assert (plan["run"], plan["resumes"]) == (name, True)
    other = command(folder, "run", *options, "--seed", "8", "--dry-run", "--json")
    assert not json.loads(other.output)["resumes"]


def unmarked(experiments: list[list[str]]) -> list[list[Any]]:
    """Return the experiments without tags that were added since."""
    return [
        [*rest, {name: value for name, value in json.loads(tags).items() if name not in _LATER}]
        for *rest, tags in experiments
    ]
