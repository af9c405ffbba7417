"""A rollout is found by its name, stamp, tag or path; otherwise an error gives the reason."""

import json
import re
from pathlib import Path

import pytest

from assay.bench.rollouts import find_rollout, tag_rollout
from assay.errors import AmbiguousName, UsageError
from tests.bench.rollouts import manifest, scored, write

FIRST, SECOND, OTHER = "20250824__12-34-56", "20250825__02-00-00", "20250824__13-00-00"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name, stamp in (("nightly", FIRST), ("nightly", SECOND), ("weekly", OTHER)):
        write(manifest(scored({"a": [1.0], "b": [0.0]}), name, stamp), folder)
    return folder


@pytest.mark.parametrize(
    ("text", "label"),
    [
        pytest.param("nightly", f"nightly@{SECOND}", id="a name is its latest"),
        pytest.param(f"nightly@{FIRST}", f"nightly@{FIRST}", id="name and stamp"),
        pytest.param("nightly@20250824", f"nightly@{FIRST}", id="name and start of a stamp"),
        pytest.param("20250825", f"nightly@{SECOND}", id="start of a stamp"),
        pytest.param("20250824__13", f"weekly@{OTHER}", id="start of a stamp of any benchmark"),
        pytest.param("good", f"nightly@{FIRST}", id="tag"),
        pytest.param("DATA/rollouts/nightly/" + FIRST, f"nightly@{FIRST}", id="folder"),
        pytest.param("DATA/rollouts/nightly/202508", None, id="start of two folders"),
        pytest.param("DATA/rollouts/nightly/20250825", f"nightly@{SECOND}", id="of a folder"),
        pytest.param(
            f"DATA/rollouts/weekly/{OTHER}/manifest.json", f"weekly@{OTHER}", id="manifest"
        ),
    ],
)
def test_rollouts_are_found_by_name_stamp_tag_and_path(
    data: Path, text: str, label: str | None
) -> None:
    tag_rollout(find_rollout(f"nightly@{FIRST}", data), "good", data)
    text = text.replace("DATA", str(data))
    if label is None:
        with pytest.raises(AmbiguousName, match="give a longer part of it"):
            find_rollout(text, data)
    else:
        assert find_rollout(text, data).label == label


def test_latest_and_rollout_options_choose_among_rollouts_of_a_name(data: Path) -> None:
    assert find_rollout("nightly", data, latest=True).manifest.created_at == SECOND
    assert find_rollout("nightly", data, stamp="20250824").manifest.created_at == FIRST
    with pytest.raises(UsageError, match="cannot be combined"):
        find_rollout("nightly", data, latest=True, stamp=FIRST)
    with pytest.raises(UsageError, match=r"already selects .* nightly@20250824.* --latest"):
        find_rollout(f"nightly@{FIRST}", data, latest=True)


@pytest.mark.parametrize(
    ("text", "stamp", "said"),
    [
        pytest.param("nigthly", None, "did you mean 'nightly'", id="near name"),
        pytest.param("nigthly@2025", None, "did you mean 'nightly'", id="near name, stamp"),
        pytest.param("nightly", "2024", f"choose from: {SECOND}, {FIRST}", id="no such stamp"),
        pytest.param("nightly@2024", None, "unknown rollout of 'nightly' '2024'", id="with @"),
        pytest.param("20250824", None, "ambiguous", id="two benchmarks"),
        pytest.param("2024", None, "choose from: nightly, weekly", id="no stamp at all"),
    ],
)
def test_unknown_rollout_is_reported_with_the_available_ones(
    data: Path, text: str, stamp: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        find_rollout(text, data, stamp=stamp)


def test_error_without_any_rollout_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no benchmark has run in .*none.*--data-dir"):
        find_rollout("nightly", tmp_path / "none")


def test_results_of_trials_that_ended_after_the_manifest_count(data: Path) -> None:
    path = data / "rollouts" / "nightly" / FIRST
    said = json.loads((path / "manifest.json").read_text("utf-8"))
    said["results"][1]["state"] = said["results"][1]["score"] = None
    (path / "manifest.json").write_text(json.dumps(said), "utf-8")
    assert find_rollout(f"nightly@{FIRST}", data).manifest.results[1].score == 0.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("score", "1"),
        ("score", float("nan")),
        ("state", "finished"),
        ("seconds", [1]),
        ("findings", ["x"]),
        ("rollout", True),
        ("tokens", {"prompt": "7"}),
    ],
)
def test_a_damaged_manifest_is_refused_with_the_trial_and_the_key(
    data: Path, key: str, value: object
) -> None:
    path = data / "rollouts" / "weekly" / OTHER
    (path / "task_results" / f"{OTHER}-1.json").unlink()
    said = json.loads((path / "manifest.json").read_text("utf-8"))
    said["results"][1][key] = value
    (path / "manifest.json").write_text(json.dumps(said), "utf-8")
    with pytest.raises(UsageError, match=rf"'{key}' of trial '{OTHER}-1'"):
        find_rollout("weekly", data)
    assert find_rollout("nightly", data).label == f"nightly@{SECOND}"


def test_tag_belongs_to_one_rollout_and_can_be_removed(data: Path) -> None:
    first, second = (find_rollout(f"nightly@{stamp}", data) for stamp in (FIRST, SECOND))
    assert tag_rollout(first, "v1", data).manifest.tags == ("v1",)
    assert tag_rollout(first, "v1", data).manifest.tags == ("v1",)
    with pytest.raises(UsageError, match=rf"nightly@{FIRST} has the tag 'v1'.*--remove"):
        tag_rollout(second, "v1", data)
    tag_rollout(first, "v1", data, remove=True)
    assert tag_rollout(second, "v1", data).label == f"nightly@{SECOND}"
    with pytest.raises(UsageError, match="has no tag 'v1'; it has none"):
        tag_rollout(first, "v1", data, remove=True)


@pytest.mark.parametrize("tag", ["", "2025", "a b", "a@b", "../x", "-x", "é" * 3, "x" * 65])
def test_ambiguous_tags_are_rejected(data: Path, tag: str) -> None:
    with pytest.raises(UsageError, match="is not a valid tag"):
        tag_rollout(find_rollout("weekly", data), tag, data)


def test_name_of_a_benchmark_cannot_be_a_tag(data: Path) -> None:
    with pytest.raises(UsageError, match="is the name of a benchmark"):
        tag_rollout(find_rollout("weekly", data), "nightly", data)


def test_tagging_changes_nothing_else_in_a_manifest(data: Path) -> None:
    file = data / "rollouts" / "weekly" / OTHER / "manifest.json"
    before = json.loads(file.read_text("utf-8")) | {"of another version": [1]}
    file.write_text(json.dumps(before), "utf-8")
    tag_rollout(find_rollout("weekly", data), "v2", data)
    assert json.loads(file.read_text("utf-8")) == before | {"tags": ["v2"]}


def test_manifest_with_only_the_specified_keys_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts" / "old" / FIRST
    folder.mkdir(parents=True)
    entry = {"task_dir": "tasks/a", "run_id": f"{FIRST}-0", "run_dir": "runs/0"}
    said = {"config": "c.toml", "name": "old", "created_at": FIRST, "results": [entry]}
    (folder / "manifest.json").write_text(json.dumps(said), "utf-8")
    (found,) = find_rollout("old", tmp_path).manifest.results
    assert (found.task_id, found.arm, found.score) == ("a", "unknown", None)


def test_oversized_manifest_is_rejected(data: Path) -> None:
    path = data / "rollouts" / "weekly" / OTHER / "manifest.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(UsageError, match="is not valid JSON: maximum recursion"):
        find_rollout(str(path.parent), data)
    with path.open("ab") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(UsageError, match="268,435,457 bytes, at most 268,435,456 are"):
        find_rollout(str(path.parent), data)
