"""`assay bench run --dry-run` plans every TOML file of the specification, and runs nothing."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.bench.manifest import claim_rollout, read_manifest, write_tags

from .rollouts import lost, manifest, pending, trial, write
from .runs import calc_task, entry, here, toml

SEED = Path(__file__).parent / "seed_benchmarks.toml.txt"
PREPARED = Path("data/tasks/prepared")


def seed_files() -> Iterator[tuple[str, str]]:
    """Return the complete files of the specification's page, by name."""
    for text in re.split(r"^# -{3,}\n", SEED.read_text("utf-8"), flags=re.MULTILINE):
        name = re.search(r'^name = "(.+)"', text, re.MULTILINE)
        if name is not None:
            yield name[1], text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "SANDBOX_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "trials", "arms"),
    [
        ("my_benchmark", 9, 3),
        ("model_comparison", 15, 3),
        ("parameter_sweep", 6, 2),
        ("mixed_workloads", 8, 3),
        ("large_scale_benchmark", 5, 1),
    ],
)
def test_every_file_of_the_specification_is_planned_with_warnings_for_retired_models(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, trials: int, arms: int
) -> None:
    text = dict(seed_files())[name]
    for prepared in {*re.findall(r'prepared_dir = "(.+)"', text)}:
        calc_task(folder / prepared)
    toml(folder / "configs" / "your_benchmark.toml", text)
    # One file names overrides, which are read before the run starts.
    for overrides in re.findall(r'^overrides = "(.+)"', text, re.MULTILINE):
        (folder / overrides).write_text("{}")
    before = sorted(folder.rglob("*"))
    done = here(capsys, "bench", "run", "configs/your_benchmark.toml", "--dry-run")
    assert done.code == 0, done.errors
    plan = done.output.splitlines()
    count = f"{arms} arms" if arms > 1 else "1 arm"
    assert re.match(
        rf"{name}: {trials} trials of \d tasks? and {count}, \d+ at a time", plan[0]
    )
    assert plan[-1] == "total: unknown; nothing was started"
    for model in {*re.findall(r'model = "(.+)"', text)}:
        assert f"warning: model '{model}' was retired on" in done.errors
        assert f"--model-map {model}=" in done.errors
    assert sorted(folder.rglob("*")) == before, "nothing is written"


def test_a_retired_model_is_replaced_by_model_map(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(model="gpt-4"))
    asked = ("bench", "run", "bench.toml", "--dry-run")
    done = here(capsys, *asked, "--model-map", "gpt-4=gpt-6-luna")
    assert done.code == 0
    assert "retired" not in done.errors
    assert "react-coder+gpt-6-luna" in done.output
    assert "no key for provider 'openai'" in done.errors


def test_retired_model_is_rejected_before_the_run_starts(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(model="gpt-4"))
    done = here(capsys, "bench", "run", "bench.toml")
    assert done.code == 2
    assert "'gpt-4' was retired" in done.errors
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("model", "said"),
    [("gpt-4", "'gpt-4' was retired"), ("gpt-6-luna", "bubblewrap is not installed")],
)
def test_user_errors_are_reported_before_missing_programs(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    model: str,
    said: str,
) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "git").symlink_to(shutil.which("git") or "")
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(model=model))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("PATH", str(folder / "bin"))
    done = here(capsys, "bench", "run", "bench.toml")
    assert done.code != 0
    assert said in done.errors


def test_plan_shows_the_possible_cost(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    calc_task(folder / "task")
    free = entry(agent="nop", rollouts=2)
    bound = entry(model="gpt-6-luna", rollouts=3, cost_limit=0.25)
    toml(folder / "bench.toml", free + bound)
    done = here(capsys, "bench", "run", "bench.toml", "--dry-run")
    assert "nop: 2 trials, $0.00 (no model is called)" in done.output
    assert "react-coder+gpt-6-luna: 3 trials, $0.75 (at most, by cost_limit)" in done.output
    assert "total: $0.75; nothing was started" in done.output


def test_plan_uses_the_previous_cost_of_an_arm(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(model="gpt-6-luna", rollouts=4), name="my_benchmark")
    arm = "react-coder+gpt-6-luna"
    write(manifest([trial("task", arm=arm, model_calls=3)]), folder / "data")
    done = here(capsys, "bench", "run", "bench.toml", "--dry-run")
    assert f"{arm}: 4 trials, $1.00 (mean of 1 earlier trial)" in done.output


def test_plan_is_printed_as_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(agent="oracle", rollouts=2))
    done = here(capsys, "bench", "run", "bench.toml", "--dry-run", "--json")
    plan = json.loads(done.output)
    assert (plan["trials"], plan["parallel"]) == (2, 1)
    assert plan["tasks"][0]["task_id"] == "task"


def test_plan_shows_how_disk_space_is_limited(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", entry(agent="nop", sandbox="none"))
    asked = ("bench", "run", "bench.toml", "--dry-run")
    assert "  disk in sandbox none: none\n" in here(capsys, *asked).output
    assert json.loads(here(capsys, *asked, "--json").output)["disk"] == {"none": "none"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry(agent="oracel"), "unknown agent 'oracel'; did you mean 'oracle'?"),
        (entry(), "agent 'react-coder' needs a model, but the task has none"),
        (entry(model="gpt-6-lunar"), "did you mean 'gpt-6-luna'"),
        (entry(agent="nop", sandbox="modul"), "unknown sandbox 'modul'"),
        (entry(model="builtin/forager"), "builtin/forager plays Crafter"),
    ],
    ids=["agent", "no model", "model", "sandbox", "player"],
)
def test_plan_that_cannot_run_is_rejected(
    capsys: pytest.CaptureFixture[str], folder: Path, text: str, said: str
) -> None:
    calc_task(folder / "task")
    toml(folder / "bench.toml", text)
    done = here(capsys, "bench", "run", "bench.toml", "--dry-run")
    assert done.code == 2
    assert said in done.errors
    assert not (folder / "data").exists()


def test_two_folders_with_the_same_task_id_are_rejected(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    calc_task(folder / "a", task_id="same")
    calc_task(folder / "b", task_id="same")
    toml(folder / "bench.toml", entry("a", agent="nop") + entry("b", agent="nop"))
    done = here(capsys, "bench", "run", "bench.toml", "--dry-run")
    assert done.code == 2
    assert "both contain a task 'same'" in done.errors


def test_the_agents_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    done = here(capsys, "bench", "agents")
    names = [line.split()[0] for line in done.output.splitlines()]
    assert names[:4] == ["react-coder", "command", "oracle", "nop"]
    assert "cheat/fork-bomb" in names


def test_a_manifest_is_read_as_it_was_written(folder: Path) -> None:
    made = manifest(
        [
            trial("a", 0.5, findings=(("left_processes", "2"),), rubrics={"x": None}),
            lost("b"),
            pending("c"),
        ],
        provenance={"version": "1"},
        configuration={"name": "x"},
    )
    path = write(made, folder / "data")
    read = read_manifest(path)
    assert read == read_manifest(path / "manifest.json")
    assert [(r.task_id, r.score, r.state, r.outcome) for r in read.results] == [
        (r.task_id, r.score, r.state, r.outcome) for r in made.results
    ]
    assert read.results[0].findings == (("left_processes", "2"),)
    assert (read.arms, read.provenance, read.configuration) == (
        made.arms,
        made.provenance,
        made.configuration,
    )
    written = json.loads((path / "manifest.json").read_text())
    assert list(written)[:4] == ["config", "name", "created_at", "results"]
    seed_keys = ["task_dir", "run_dir", "run_id", "status", "launch_rc"]
    assert list(written["results"][0])[:5] == seed_keys
    write_tags(path, ("v1",))
    assert read_manifest(path).tags == ("v1",)


def test_rollouts_started_in_the_same_second_have_different_stamps(folder: Path) -> None:
    taken: list[str] = []
    stamp = time.strftime("%Y%m%d__%H-%M-%S", time.gmtime())

    def claim(name: str) -> None:
        taken.append(claim_rollout(folder / "data", name, stamp).stamp)

    threads = [threading.Thread(target=claim, args=(name,)) for name in ("a", "a", "b", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*taken}) == 4
    shutil.rmtree(folder / "data")
