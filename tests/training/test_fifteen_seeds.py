"""The main use of `assay launch`: 15 seeds of two architectures, compared.

The first launch is killed in the middle. Programs are real processes; trainings are tiny.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from assay.api.policies import train
from assay.core.provenance import collect_provenance
from assay.store.store import Store
from assay.store.training_runs import TrainingRun
from assay.store.training_tables import load_training_runs
from assay.training.launch.kind import SEEDS
from tests.runs.places import Place, is_alive
from tests.support import run_python

pytestmark = pytest.mark.local

_PATIENCE_S = 600
_FIFTEEN = SEEDS[:15]
_STEPS = [*range(256, 1025, 256)]
_TINY = (
    *("--parallel", "2", "--width", "8", "--total-steps", "1024", "--worlds", "8"),
    *("--rollout", "32", "--epochs", "1", "--minibatches", "2", "--length", "20"),
    *("--eval-worlds", "2", "--checkpoint-every", "256"),
)
CONTROL = ("launch", "--architecture", "vit_reset", "--base-run-name", "control", *_TINY)
CANDIDATE = (
    *("launch", "--architecture", "trxl", "--base-run-name", "candidate"),
    *("--control", "control", *_TINY),
)


def test_fifteen_seeds_of_two_architectures_survive_a_kill_and_can_be_repeated(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    kill_in_the_middle(tmp_path)
    before = control_seeds(tmp_path)
    run_python("-m", "assay", *CONTROL, folder=tmp_path)
    after = control_seeds(tmp_path)
    for old, new in zip(before, after, strict=True):
        check_nothing_is_trained_twice(old, new)
    # Two workers before the kill, and two after it.
    assert len({pid for seed in after for pid in seed.pids}) == 4

    run_python("-m", "assay", *CANDIDATE, folder=tmp_path)
    candidates = [Seed(tmp_path, "candidate.trxl", seed) for seed in _FIFTEEN]
    assert len({pid for seed in candidates for pid in seed.pids}) == 2

    runs = stored(tmp_path / "crafter_multi_model_traces.duckdb")
    assert len(runs) == 30
    for run in runs.values():
        assert [*run.curves["losses/value"].steps_P] == _STEPS
        assert {curve.repeated for curve in run.curves.values()} == {0}
    check_comparison(tmp_path)
    # The workers may take another step before they notice that the launch was killed.
    killed = next(seed for seed in before if seed.checkpoints and seed.state != "finished")
    check_repeated(tmp_path, runs[killed.name], killed.seed)
    record_property("note", f"15 seeds, twice, in {time.monotonic() - began:.0f} s")


def signal_all(processes: Iterable[int], number: int) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_in_the_middle(place: Path) -> None:
    """Launch the control, and kill it once four seeds are trained and another is half done."""
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", *CONTROL],
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def wait_for_seeds(condition: Callable[[list[Seed]], bool]) -> None:
        until(lambda: process.poll() is not None or condition(control_seeds(place)))
        assert process.poll() is None, "it ended before it was killed"

    workers: list[int] = []
    try:
        # Both have written a log, so both have loaded what they train with.
        wait_for_seeds(lambda seeds: len({pid for seed in seeds for pid in seed.pids}) == 2)
        wait_for_seeds(lambda seeds: sum(bool(seed.checkpoints) for seed in seeds) >= 2)
        workers = Place({}).workers(process.pid)
        assert len(workers) == 2
        assert {pid for pid in (process.pid, *workers) if has_torch(pid)} == set(workers)

        def is_time(seeds: list[Seed]) -> bool:
            """Pause the workers when it is time to kill, so that none gets ahead."""
            finished = sum(seed.state == "finished" for seed in seeds)
            if finished < 4 or not any(seed.is_half_done for seed in seeds):
                return False
            signal_all(workers, signal.SIGSTOP)
            if any(seed.is_half_done for seed in control_seeds(place)):
                return True
            signal_all(workers, signal.SIGCONT)
            return False

        wait_for_seeds(is_time)
    finally:
        process.kill()
        process.wait()
        signal_all(workers, signal.SIGCONT)
    until(lambda: not any(map(is_alive, workers)))
    seeds = control_seeds(place)
    assert {pid for seed in seeds for pid in seed.pids} == set(workers)
    assert any(seed.state == "" for seed in seeds), "all seeds had begun"


def control_seeds(place: Path) -> "list[Seed]":
    return [Seed(place, "control.vit_reset", seed) for seed in _FIFTEEN]


class Seed:
    """The current state of a training run, read from its files."""

    def __init__(self, place: Path, launch: str, seed: int) -> None:
        self.seed, self.name = seed, f"{launch}.seed{seed}"
        base = place / "training" / launch.partition(".")[0]
        folder = base / self.name
        status = folder / "status.json"
        self.state: str = json.loads(status.read_bytes())["state"] if status.exists() else ""
        self.checkpoints = [path.name for path in folder.glob("checkpoints/step-*")]
        metrics = folder / "metrics.jsonl"
        self.metrics = metrics.read_text("utf-8") if metrics.exists() else ""
        self.written_at = metrics.stat().st_mtime_ns if metrics.exists() else None
        log = base / "logs" / f"{self.name}.log"
        self.log = log.read_text("utf-8") if log.exists() else ""

    @property
    def is_half_done(self) -> bool:
        """Return whether it has a checkpoint, but not yet the last but one."""
        return bool(self.checkpoints) and {*self.checkpoints} <= {"step-256", "step-512"}

    @property
    def pids(self) -> list[int]:
        """Return the processes that trained it, in order."""
        return [int(pid) for pid in re.findall(r"^process (\d+) on ", self.log, re.MULTILINE)]


def check_nothing_is_trained_twice(before: Seed, after: Seed) -> None:
    assert after.state == "finished"
    assert [json.loads(line)["step"] for line in after.metrics.splitlines()] == _STEPS
    trained = [int(step) for step in re.findall(r"^step (\d+) ", after.log, re.MULTILINE)]
    if before.state == "finished":
        assert (after.metrics, after.written_at) == (before.metrics, before.written_at)
        assert trained == _STEPS
    elif before.checkpoints:
        assert len(after.pids) == 2
        assert trained.count(_STEPS[0]) == 1


def check_comparison(place: Path) -> None:
    """Check that the database has the verdict and the settings of every run."""
    analysis = run_python(
        *("-m", "assay", "analysis", "--control", "control", "--candidate", "candidate"),
        *("--pair-by-seed", "--json"),
        folder=place,
    ).json
    assert analysis["paired"]
    assert analysis["n"] == {"control": 15, "candidate": 15}
    assert analysis["verdict"]["word"] != "unknown", analysis["verdict"]
    for side, base, architecture in (
        ("control", "control", "vit_reset"),
        ("candidate", "candidate", "trxl"),
    ):
        manifest = place / "training" / base / "manifest"
        names = [f"{base}.{architecture}.seed{seed}" for seed in _FIFTEEN]
        commit = (manifest / "benchmark_git_hash.txt").read_text().strip()
        assert commit == (collect_provenance().commit or "unknown")
        assert (manifest / "seeds.txt").read_text().split() == [*map(str, _FIFTEEN)]
        assert (manifest / "run_ids.txt").read_text().split() == names
        versions = json.loads((manifest / "versions.json").read_bytes())
        settings = json.loads((manifest / "config.json").read_bytes())["training"]
        runs = analysis[side]["runs"]
        assert [run["id"] for run in runs] == names
        for run, seed in zip(runs, _FIFTEEN, strict=True):
            assert run["commit"] == collect_provenance().commit
            assert run["configuration"].items() >= {**settings, "seed": seed}.items()
            assert run["provenance"]["torch"] == versions["torch"]
            assert run["provenance"]["launch"]["manifest"] == str(manifest)
    difference = place / "training/candidate/manifest/difference.txt"
    assert difference.read_text() == "architecture: 'vit_reset' -> 'trxl'\n"


def check_repeated(place: Path, run: TrainingRun, seed: int) -> None:
    """Check that a run repeated from its manifest has the same curves."""
    manifest = json.loads((place / "training/control/manifest/config.json").read_bytes())
    again = place / "again.duckdb"
    train(**manifest["training"], seed=seed, folder=place / "again", database=again)
    (repeated,) = stored(again).values()
    assert run.curves.keys() == repeated.curves.keys()
    for metric, curve in run.curves.items():
        if not metric.startswith("time/"):
            assert curve.same_points(repeated.curves[metric]), metric


def stored(database: Path) -> dict[str, TrainingRun]:
    with Store(database).reading() as connection:
        return {run.id: run for run in load_training_runs(connection)}


def has_torch(pid: int) -> bool:
    return "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text("utf-8")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
