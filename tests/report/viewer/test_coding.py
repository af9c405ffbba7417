"""Coding trials in the viewer: the patch in colours, and the tests one by one."""

from pathlib import Path

import pytest

import assay
from assay.cli import main
from tests.report.viewer.conftest import client_of
from tests.report.viewer.test_server import get

ROOT = Path(__file__).parents[3]
TASK = '[[tasks]]\nprepared_dir = "examples/bench/tasks/split-bill"\nsandbox = "none"\n'


def test_a_coding_trial_shows_its_patch_and_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    agents = "".join(f'{TASK}agent = "{agent}"\n' for agent in ("oracle", "nop"))
    (tmp_path / "bench.toml").write_text(f'name = "small"\n{agents}', "utf-8")
    assert main(["bench", "run", "bench.toml", "--quiet"]) == 0
    with assay.view(port=0) as viewer, client_of(viewer) as client:
        rows = {row["model"]: row["id"] for row in get(client, "/api/episodes")["rows"]}
        trials = {
            model: get(client, f"/api/episodes/{key}/coding") for model, key in rows.items()
        }
        episode = get(client, f"/api/episodes/{rows['oracle']}")
    assert episode["coding"]
    assert episode["film"]["frames"] == 0
    oracle, nop = trials["oracle"], trials["nop"]
    assert oracle["tests"]
    assert {test["outcome"] for test in oracle["tests"]} == {"passed"}
    assert nop["tests"] == [], "without a patch no test runs"
    assert sorted(
        {kind for line in oracle["patch"] for kind, _ in line} & {"gi", "gd"}, reverse=True
    ) == ["gi", "gd"]
    assert nop["patch"] is None
    assert "".join(text for line in oracle["patch"] for _, text in line).startswith(
        "diff --git"
    )
