"""The run format of commit 557b711: settings added later must not change it."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from assay.crafter import Difficulty
from assay.episodes.config import RunConfig
from assay.episodes.spec import name_difficulty
from tests.golden.files import unpack


@dataclass(frozen=True, slots=True)
class LaterDifficulty(Difficulty):
    fog: float = field(default=0.0, metadata={"added": True})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the configuration of an unfinished run."""
    folder = unpack("configurations", tmp_path_factory.mktemp("golden"))
    path = folder / "unfinished.duckdb.journal" / "usual" / "run.json"
    configuration: dict[str, Any] = json.loads(path.read_text("utf-8"))["configuration"]
    return configuration


def test_default_configuration_is_written_with_its_first_keys(first: dict[str, Any]) -> None:
    stored = RunConfig().stored()
    assert set(stored) == set(first)
    assert set(stored["agent"]) == set(first["agent"])
    assert set(stored["difficulty"]) == set(first["difficulty"])


def test_difficulty_setting_added_later_changes_the_identity_only_if_not_default() -> None:
    plain = RunConfig(difficulty=Difficulty(tree_chance=0.25))
    later = RunConfig(difficulty=LaterDifficulty(tree_chance=0.25))
    foggy = RunConfig(difficulty=LaterDifficulty(tree_chance=0.25, fog=0.5))
    assert plain.identity() == later.identity() != foggy.identity()
    names = [name_difficulty(config.difficulties[0]) for config in (plain, later, foggy)]
    assert names[0] == names[1] == "custom-e54f53f2" != names[2]
