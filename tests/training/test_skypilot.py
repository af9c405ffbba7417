"""SkyPilot tasks, checked by its library, and by assay if the library is missing."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.training.launch.run import launch_on_skypilot, prepare_launch, skypilot_tasks
from assay.training.launch.skypilot import check_tasks, format_yaml
from tests.support import run_python

ROOT = Path(__file__).parents[2]
SKY = Path(os.environ.get("ASSAY_SKYPILOT_BIN") or ROOT / ".venv-skypilot/bin")
needs_skypilot = pytest.mark.skipif(
    not (SKY / "sky").exists(), reason="SkyPilot is not there: make install-skypilot"
)


@pytest.fixture
def no_skypilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def skypilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home folder of a user who has SkyPilot on the path and never used it."""
    monkeypatch.setenv("PATH", str(SKY), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def tasks(**settings: Any) -> tuple[Any, ...]:
    prepared = prepare_launch({"seeds": (2,), **settings}, base_run_name="cloud")
    return skypilot_tasks(prepared, gpus=8, accelerator="A100").tasks


@pytest.mark.usefixtures("no_skypilot")
def test_a_task_is_checked_and_written_as_yaml() -> None:
    first, second = tasks()
    assert [first["name"], second["name"]] == [
        *("cloud.vit_reset.seed1072", "cloud.vit_reset.seed2043")
    ]
    text = format_yaml(first)
    assert 'accelerators: "A100:8"' in text
    assert "--seed 1072" in text
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(text) == first
    with pytest.raises(UsageError, match="cpu 4 is not valid"):
        check_tasks([{**first, "cpu": 4}])


@pytest.mark.usefixtures("no_skypilot")
def test_a_task_installs_the_packages_of_its_environment() -> None:
    assert "'.[train]'" in tasks()[0]["setup"]
    assert "'.[mettagrid]'" in tasks(environment="mettagrid")[0]["setup"]


@pytest.mark.usefixtures("no_skypilot")
@pytest.mark.parametrize(
    ("base", "gpus", "accelerator", "words"),
    [
        ("cloud", 0, "L4", "--gpus 0 is not allowed; give at least 1"),
        ("cloud", 8, "L 4", "--accelerator 'L 4' is not a GPU type; give one such as L4"),
        ("cloud", 8, "", "--accelerator '' is not a GPU type"),
        (
            "2cloud",
            8,
            "L4",
            "'2cloud.vit_reset.seed1072' is not a valid name.* with a letter first",
        ),
    ],
)
def test_invalid_tasks_that_the_library_accepts_are_rejected(
    base: str, gpus: int, accelerator: str, words: str
) -> None:
    prepared = prepare_launch({}, base_run_name=base)
    with pytest.raises(UsageError, match=words):
        skypilot_tasks(prepared, gpus=gpus, accelerator=accelerator)


@pytest.mark.usefixtures("no_skypilot")
def test_a_launch_without_skypilot_prints_how_to_install_it(tmp_path: Path) -> None:
    prepared = prepare_launch({"folder": tmp_path / "training"}, base_run_name="cloud")
    planned = skypilot_tasks(prepared, gpus=1, accelerator="L4")
    assert "SkyPilot is not installed" in planned.checked
    with pytest.raises(UsageError, match=r"program 'sky' was not found.*pipx install skypilot"):
        launch_on_skypilot(prepared, planned, notice=lambda _: None)
    assert not (tmp_path / "training").exists()


def test_a_sky_program_without_the_library_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sky").touch(mode=0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="does not work: ModuleNotFoundError: No module"):
        tasks()


@pytest.mark.extras
@needs_skypilot
def test_the_library_checks_the_tasks_and_starts_nothing(skypilot: Path) -> None:
    words = ["launch", "--architecture", "trxl", "--skypilot", "--gpus", "8", "--dry-run"]
    done = run_python("-m", "assay", *words, "--json", folder=skypilot)
    assert done.errors == ""
    result = json.loads(done.output)
    assert len(result["tasks"]) == 15
    assert result["checked"].startswith("checked by SkyPilot 0.")
    assert [path.name for path in skypilot.iterdir()] == [".sky"]
    assert not (skypilot / ".sky/api_server").exists()


@pytest.mark.extras
@needs_skypilot
@pytest.mark.usefixtures("skypilot")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": 4}, "seed1072: .*unsupported field 'cpu'"),
        ({"resources": {"accelerators": "L4:x:8"}}, "memory size"),
    ],
    ids=["field", "kind of GPU"],
)
def test_a_task_that_the_library_rejects_is_reported_with_its_message(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=f"SkyPilot 0.* rejects task cloud.*{words}"):
        check_tasks([{**tasks()[0], **change}])
