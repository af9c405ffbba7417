"""Rollouts of other machines are copied whole or not at all, and overwrite nothing."""

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
from tests.bench.rollouts import STAMP, lost, manifest, pending, scored, trial, write
from tests.support import run_python

SCORES = {"a": [1.0, 0.0], "b": [0.5]}


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def there(tmp_path: Path) -> Path:
    write(manifest(scored(SCORES)), tmp_path / "there")
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.mark.parametrize(
    "named", ["", "rollouts", "rollouts/my_benchmark", f"rollouts/my_benchmark/{STAMP}"]
)
def test_a_rollout_comes_with_the_folders_of_its_runs(
    there: Path, here: Path, named: str
) -> None:
    before = files(there)
    (one,) = import_rollouts([there / named], here).imported
    assert (one.added, one.rollout.label) == (True, f"my_benchmark@{STAMP}")
    assert files(there) == before
    assert files(here / "runs") == files(there / "runs")
    found = find_rollout("my_benchmark", here)
    assert [result.score for result in found.manifest.results] == [1.0, 0.0, 0.5]
    for result in found.manifest.results:
        run = Path(result.run_dir)
        assert run.is_relative_to(here)
        score = json.loads((run / "evaluation_results.json").read_text("utf-8"))["total_score"]
        assert score == result.score
    assert (here / "rollouts" / "temp" / f"rollout_my_benchmark__{STAMP}.json").is_file()


def test_to_import_twice_adds_nothing(there: Path, here: Path) -> None:
    import_rollouts([there], here)
    before = files(here)
    (again,) = import_rollouts([there], here).imported
    assert not again.added
    assert files(here) == before


def test_a_stamp_that_is_taken_is_left_alone_and_the_next_is_used(
    there: Path, here: Path
) -> None:
    write(manifest(scored({"z": [1.0]}), "other"), here)
    before = files(here)
    (one,) = import_rollouts([there], here).imported
    assert one.rollout.label == "my_benchmark@20250824__12-34-57"
    assert {name: files(here)[name] for name in before} == before
    found = find_rollout("my_benchmark", here).manifest
    assert [result.run_id for result in found.results] == [
        f"20250824__12-34-57-{place}" for place in range(3)
    ]
    assert found.provenance["imported_stamp"] == STAMP
    assert all((Path(result.run_dir) / "artifacts").is_dir() for result in found.results)
    (again,) = import_rollouts([there], here).imported
    assert (again.added, again.rollout.label) == (False, one.rollout.label)


def test_another_rollout_of_the_same_name_and_stamp_is_kept_beside_it(
    there: Path, here: Path
) -> None:
    write(manifest(scored({"z": [1.0]})), here)
    (one,) = import_rollouts([there], here).imported
    assert one.rollout.manifest.created_at == "20250824__12-34-57"
    assert find_rollout(f"my_benchmark@{STAMP}", here).manifest.results[0].task_id == "z"


def test_a_tag_that_is_taken_does_not_come_along(there: Path, here: Path) -> None:
    write(manifest(scored({"z": [1.0]}), "other"), here)
    tag_rollout(find_rollout("other", here), "v1", here)
    for tag in ("v1", "v2"):
        tag_rollout(find_rollout("my_benchmark", there), tag, there)
    (one,) = import_rollouts([there], here).imported
    assert one.rollout.manifest.tags == ("v2",)


def damaged(text: str) -> str:
    return text[: len(text) // 2]


def test_what_is_damaged_or_not_whole_is_refused_by_name_and_the_rest_comes(
    there: Path, here: Path
) -> None:
    broken = write(manifest(scored(SCORES), "broken"), there / "1") / "manifest.json"
    broken.write_text(damaged(broken.read_text("utf-8")), "utf-8")
    write(manifest(scored(SCORES), "partial"), there / "2")
    shutil.rmtree(there / "2" / "runs" / f"{STAMP}-1")
    write(manifest([trial("a"), pending("b")], "unfinished"), there / "3")
    found = import_rollouts([there / "1", there / "2", there / "3", there], here)
    assert [one.rollout.manifest.name for one in found.imported] == ["my_benchmark"]
    reasons = {refused.source.parent.name: refused.reason for refused in found.refused}
    assert "is not valid JSON" in reasons["broken"]
    assert f"the folder of run {STAMP}-1 is missing" in reasons["partial"]
    assert "1 of its 2 trials have not run" in reasons["unfinished"]
    assert sorted(path.name for path in (here / "rollouts").iterdir()) == [
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
def test_a_name_that_leads_elsewhere_is_refused(
    there: Path, here: Path, key: str, value: str
) -> None:
    folder = there / "rollouts" / "my_benchmark" / STAMP
    shutil.rmtree(folder / "task_results")
    said = json.loads((folder / "manifest.json").read_text("utf-8"))
    if key == "run_id":
        said["results"][0][key] = value
    else:
        said[key] = value
    (folder / "manifest.json").write_text(json.dumps(said), "utf-8")
    found = import_rollouts([there], here)
    assert (found.imported, len(found.refused)) == ((), 1)
    assert files(here.parent).keys() == {f"there/{name}" for name in files(there)}


@pytest.mark.parametrize("place", ["runs/{}-0/artifacts", "rollouts/my_benchmark/{}"])
def test_a_symbolic_link_is_refused(
    there: Path, here: Path, tmp_path: Path, place: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s", "utf-8")
    (there / place.format(STAMP) / "link").symlink_to(secret)
    found = import_rollouts([there], here)
    assert [refused.reason.split(" ")[0] for refused in found.refused] == ["'link'"]
    assert not here.exists()


def test_a_trial_that_never_began_needs_no_folder(here: Path, tmp_path: Path) -> None:
    source = tmp_path / "there"
    write(manifest([trial("a"), lost("b", status=LAUNCH_FAILED)]), source)
    assert not RolloutFolder(source, "my_benchmark", STAMP).get_run_dir(f"{STAMP}-1").exists()
    (one,) = import_rollouts([source], here).imported
    assert one.added


def test_a_folder_without_a_rollout_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rollout in"):
        import_rollouts([tmp_path], tmp_path / "here")
    with pytest.raises(UsageError, match=r"folder .* not found"):
        import_rollouts([tmp_path / "none"], tmp_path / "here")


def test_what_is_no_plain_file_or_too_much_is_refused_before_it_is_read(
    there: Path, here: Path
) -> None:
    manifest = there / "rollouts" / "my_benchmark" / STAMP / "manifest.json"
    run = next((there / "runs").iterdir())
    saved = manifest.read_bytes()
    for place, said in ((run / "pipe", "pipe, socket"), (run / "huge", "have 9,")):
        if place.name == "pipe":
            os.mkfifo(place)
        else:
            with place.open("wb") as file:
                file.truncate(9 << 30)
        (refused,) = import_rollouts([there], here).refused
        assert said in refused.reason
        place.unlink()
    with manifest.open("wb") as file:
        file.truncate(1 << 40)
    (refused,) = import_rollouts([there], here).refused
    assert "manifest.json" in refused.reason
    manifest.write_bytes(saved)
    text = "import os\nfor _ in range(2500):\n    os.mkdir('d'); os.chdir('d')"
    run_python("-c", text, folder=run)
    (refused,) = import_rollouts([there], here).refused
    assert "too long" in refused.reason
    remove_folder(run / "d")
    assert import_rollouts([there], here).imported
