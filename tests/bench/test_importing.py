"""Rollouts of other machines are copied completely or not at all, and overwrite nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest

from assay.bench.manifest import LAUNCH_FAILED, RolloutFolder
from assay.bench.rollout_imports import import_rollouts
from assay.bench.rollouts import find_rollout, tag_rollout
from assay.core.files import remove_folder
from assay.errors import UsageError
from tests.bench.rollouts import (
    STAMP,
    lost,
    manifest,
    pending,
    scored,
    trial,
    write,
)
from tests.support import run_python

SCORES = {"a": [1.0, 0.0], "b": [0.5]}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(manifest(scored(SCORES)), tmp_path / "there")
    return tmp_path / "there"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.mark.parametrize(
    "named", ["", "rollouts", "rollouts/my_benchmark", f"rollouts/my_benchmark/{STAMP}"]
)
def test_rollout_is_imported_with_the_folders_of_its_runs(
    source: Path, target: Path, named: str
) -> None:
    before = files(source)
    (one,) = import_rollouts([source / named], target).imported
    assert (one.added, one.rollout.label) == (True, f"my_benchmark@{STAMP}")
    assert files(source) == before
    assert files(target / "runs") == files(source / "runs")
    found = find_rollout("my_benchmark", target)
    assert [result.score for result in found.manifest.results] == [1.0, 0.0, 0.5]
    for result in found.manifest.results:
        run = Path(result.run_dir)
        assert run.is_relative_to(target)
        score = json.loads((run / "evaluation_results.json").read_text("utf-8"))["total_score"]
        assert score == result.score
    assert (target / "rollouts" / "temp" / f"rollout_my_benchmark__{STAMP}.json").is_file()


def test_importing_twice_adds_nothing(source: Path, target: Path) -> None:
    import_rollouts([source], target)
    before = files(target)
    (again,) = import_rollouts([source], target).imported
    assert not again.added
    assert files(target) == before


def test_existing_stamp_is_kept_and_the_next_is_used(source: Path, target: Path) -> None:
    write(manifest(scored({"z": [1.0]}), "other"), target)
    before = files(target)
    (one,) = import_rollouts([source], target).imported
    assert one.rollout.label == "my_benchmark@20250824__12-34-57"
    assert {name: files(target)[name] for name in before} == before
    found = find_rollout("my_benchmark", target).manifest
    assert [result.run_id for result in found.results] == [
        f"20250824__12-34-57-{place}" for place in range(3)
    ]
    assert found.provenance["imported_stamp"] == STAMP
    assert all((Path(result.run_dir) / "artifacts").is_dir() for result in found.results)
    (again,) = import_rollouts([source], target).imported
    assert (again.added, again.rollout.label) == (False, one.rollout.label)


def test_rollout_with_an_existing_name_and_stamp_is_imported_separately(
    source: Path, target: Path
) -> None:
    write(manifest(scored({"z": [1.0]})), target)
    (one,) = import_rollouts([source], target).imported
    assert one.rollout.manifest.created_at == "20250824__12-34-57"
    assert find_rollout(f"my_benchmark@{STAMP}", target).manifest.results[0].task_id == "z"


def test_existing_tag_is_not_imported(source: Path, target: Path) -> None:
    write(manifest(scored({"z": [1.0]}), "other"), target)
    tag_rollout(find_rollout("other", target), "v1", target)
    for tag in ("v1", "v2"):
        tag_rollout(find_rollout("my_benchmark", source), tag, source)
    (one,) = import_rollouts([source], target).imported
    assert one.rollout.manifest.tags == ("v2",)


def damaged(text: str) -> str:
    return text[: len(text) // 2]


def test_damaged_rollout_is_rejected_by_name_and_the_rest_is_imported(
    source: Path, target: Path
) -> None:
    broken = write(manifest(scored(SCORES), "broken"), source / "1") / "manifest.json"
    broken.write_text(damaged(broken.read_text("utf-8")), "utf-8")
    write(manifest(scored(SCORES), "partial"), source / "2")
    shutil.rmtree(source / "2" / "runs" / f"{STAMP}-1")
    write(manifest([trial("a"), pending("b")], "unfinished"), source / "3")
    found = import_rollouts([source / "1", source / "2", source / "3", source], target)
    assert [copy.rollout.manifest.name for copy in found.imported] == ["my_benchmark"]
    reasons = {refused.source.parent.name: refused.reason for refused in found.refused}
    assert "is not valid JSON" in reasons["broken"]
    assert f"the folder of run {STAMP}-1 is missing" in reasons["partial"]
    assert "1 of its 2 trials have not run" in reasons["unfinished"]
    assert sorted(path.name for path in (target / "rollouts").iterdir()) == [
        "my_benchmark",
        "temp",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../../outside"),
        ("name", "temp"),
        ("created_at", "../x"),
        ("created_at", "yesterday"),
        ("run_id", "../../outside"),
        ("run_id", "/tmp/outside"),
    ],
)
def test_name_outside_the_folder_is_rejected(
    source: Path, target: Path, key: str, value: str
) -> None:
    folder = source / "rollouts" / "my_benchmark" / STAMP
    shutil.rmtree(folder / "task_results")
    said = json.loads((folder / "manifest.json").read_text("utf-8"))
    if key == "run_id":
        said["results"][0][key] = value
    else:
        said[key] = value
    (folder / "manifest.json").write_text(json.dumps(said), "utf-8")
    found = import_rollouts([source], target)
    assert (found.imported, len(found.refused)) == ((), 1)
    assert files(target.parent).keys() == {f"there/{name}" for name in files(source)}


@pytest.mark.parametrize("place", ["runs/{}-0/artifacts", "rollouts/my_benchmark/{}"])
def test_a_symbolic_link_is_refused(
    source: Path, target: Path, tmp_path: Path, place: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s", "utf-8")
    (source / place.format(STAMP) / "link").symlink_to(secret)
    found = import_rollouts([source], target)
    assert [refused.reason.split(" ")[0] for refused in found.refused] == ["'link'"]
    assert not target.exists()


def test_trial_that_did_not_start_needs_no_folder(target: Path, tmp_path: Path) -> None:
    source = tmp_path / "there"
    write(manifest([trial("a"), lost("b", status=LAUNCH_FAILED)]), source)
    assert not RolloutFolder(source, "my_benchmark", STAMP).get_run_dir(f"{STAMP}-1").exists()
    (one,) = import_rollouts([source], target).imported
    assert one.added


def test_folder_without_a_rollout_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rollout in"):
        import_rollouts([tmp_path], tmp_path / "here")
    with pytest.raises(UsageError, match=r"folder .* not found"):
        import_rollouts([tmp_path / "none"], tmp_path / "here")


def test_special_and_oversized_files_are_rejected_before_they_are_read(
    source: Path, target: Path
) -> None:
    manifest = source / "rollouts" / "my_benchmark" / STAMP / "manifest.json"
    run = next((source / "runs").iterdir())
    saved = manifest.read_bytes()
    for place, said in ((run / "pipe", "pipe, socket"), (run / "huge", "have 9,")):
        if place.name == "pipe":
            os.mkfifo(place)
        else:
            with place.open("wb") as file:
                file.truncate(9 << 30)
        (refused,) = import_rollouts([source], target).refused
        assert said in refused.reason
        place.unlink()
    with manifest.open("wb") as file:
        file.truncate(1 << 40)
    (refused,) = import_rollouts([source], target).refused
    assert "manifest.json" in refused.reason
    manifest.write_bytes(saved)
    text = "import os\nfor _ in range(2500):\n    os.mkdir('d'); os.chdir('d')"
    run_python("-c", text, folder=run)
    (refused,) = import_rollouts([source], target).refused
    assert "too long" in refused.reason
    remove_folder(run / "d")
    assert import_rollouts([source], target).imported
