"""`python -m prove.training`: `vit_reset` against `trxl`, from the sweeps to the verdict.

Runs `examples/training/benchmark.sh` in a folder, where the same command resumes. With `--ship`
it then writes the curves into `examples/training/curves/` and the figures into `docs/assets/`.
Prints Markdown for `docs/training-benchmark.md`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.api.training_runs import analysis
from assay.stats.differences import paired_difference
from assay.stats.intervals import Interval, mean_interval
from assay.store.load import load_stored_run
from assay.store.store import Store
from assay.store.training_runs import TrainingRun
from assay.store.training_tables import load_training_runs, runs_of_series

from .parts import markdown

_ROOT: Final = Path(__file__).parents[1]
_EXAMPLE: Final = _ROOT / "examples" / "training"
_ARMS: Final = ("control", "candidate")
_SHIPPED: Final = ("overview/reward", "crafter/score", "eval/reward", "eval/score")
_FIGURES: Final = {
    "variance.png": "training-variance.png",
    "analysis/learning_curves.png": "training-curves.png",
    "analysis/radial.png": "training-radial.png",
}


class Arm(NamedTuple):
    """One side of the benchmark."""

    runs: Sequence[TrainingRun]
    minutes: float
    """From the start of its launch to the end."""

    def final(self, metric: str) -> list[float]:
        """The last value of each run."""
        return [float(run.curves[metric].values_P[-1]) for run in self.runs]

    @property
    def trained(self) -> float:
        """Minutes that the updates of its runs took, added up."""
        return sum(float(run.curves["time/seconds"].values_P.sum()) for run in self.runs) / 60


def read_arms(database: Path) -> list[Arm]:
    """Read both arms from the database."""
    arms = []
    with Store(database).reading() as connection:
        for series in _ARMS:
            names = runs_of_series(connection, series)
            runs = sorted(load_training_runs(connection, names), key=lambda run: run.seed or 0)
            launch = load_stored_run(connection, f"{series}.{runs[0].subject}")
            assert launch.finished_at is not None
            took = launch.finished_at - launch.created_at
            arms.append(Arm(runs, took / 60))
    return arms


def export_run(run: TrainingRun) -> dict[str, Any]:
    """Return a run in the format of `assay curves import`, without machine details."""
    curves = {name: run.curves[name] for name in _SHIPPED}
    points: dict[int, dict[str, float]] = {}
    for name, curve in curves.items():
        for step, value in zip(curve.steps_P.tolist(), curve.values_P.tolist(), strict=True):
            points.setdefault(step, {})[name] = value
    return {
        "id": run.id,
        "series": run.series,
        "subject": run.subject,
        "task": run.task,
        "seed": run.seed,
        "status": str(run.status),
        "configuration": dict(run.configuration),
        "provenance": {name: said for name, said in run.provenance.items() if name != "launch"},
        "points": [{"step": step, **points[step]} for step in sorted(points)],
    }


def export_arms(folder: Path, arms: Sequence[Arm]) -> None:
    """Write the curves and the figures to their places in the clone."""
    target = _EXAMPLE / "curves"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for run in (run for arm in arms for run in arm.runs):
        content = export_run(run)
        points = ",\n".join(f"  {json.dumps(point)}" for point in content.pop("points"))
        head = json.dumps(content, indent=1).removesuffix("\n}")
        (target / f"{run.id}.json").write_text(f'{head},\n "points": [\n{points}\n ]\n}}\n')
    for source, name in _FIGURES.items():
        shutil.copyfile(folder / source, _ROOT / "docs" / "assets" / name)


def format_report(folder: Path, arms: Sequence[Arm]) -> str:
    """Return the report: tuned settings, results and times."""
    control, candidate = arms
    found, deviations = analysis(
        control_series="control",
        candidate_series="candidate",
        pair_by_seed=True,
        plan=_EXAMPLE / "plan.toml",
        database=folder / "benchmark.duckdb",
    )
    held_out = {
        metric: paired_difference(control.final(metric), candidate.final(metric))
        for metric in ("eval/reward", "eval/score")
    }
    rows = [
        [str(arm.runs[0].subject), *(_format_with_interval(arm, metric) for metric in held_out)]
        for arm in arms
    ]
    rows.append(["difference, by pairs", *map(_format_signed_interval, held_out.values())])
    times = [
        f"{arm.runs[0].subject}: {arm.minutes:.1f} minutes for {len(arm.runs)} seeds, "
        f"{arm.trained:.1f} minutes of training, {arm.trained / arm.minutes:.2f} at once"
        for arm in arms
    ]
    return "\n\n".join(
        [
            "\n\n".join(_format_sweep(folder, arm) for arm in arms),
            found.sentence,
            "Deviations from the plan: " + ("; ".join(deviations or ()) or "none") + ".",
            markdown(["held-out worlds", *held_out], rows),
            "\n".join(times),
            f"Commit {control.runs[0].provenance['commit']}.",
        ]
    )


def _format_sweep(folder: Path, arm: Arm) -> str:
    """Describe the result of the sweep of an arm."""
    name = str(arm.runs[0].subject)
    results = json.loads((folder / "sweeps" / name / "results.json").read_text("utf-8"))
    trials, fresh = results["trials"], [trial["value"] for trial in results["fresh"]]
    complete = [trial for trial in trials if trial["value"] is not None]
    best = max(complete, key=lambda trial: trial["value"])
    chosen = ", ".join(f"{key} {value:.3g}" for key, value in best["options"].items())
    return (
        f"{name}: {len(trials)} trials, {len(trials) - len(complete)} pruned; {chosen}; "
        f"{best['value']:.2f} in the search,"
        f" {_format_interval(mean_interval(fresh))} on fresh seeds"
    )


def _format_with_interval(arm: Arm, metric: str) -> str:
    return _format_interval(mean_interval(arm.final(metric)))


def _format_interval(interval: Interval) -> str:
    return f"{interval.point:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _format_signed_interval(interval: Interval) -> str:
    return f"{interval.point:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m prove.training", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("training-benchmark"))
    parser.add_argument("--ship", action="store_true", help="write examples and figures anew")
    chosen = parser.parse_args(arguments)
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools, "ASSAY_DATABASE": "benchmark.duckdb"}
    subprocess.run(
        [_EXAMPLE / "benchmark.sh", chosen.folder.resolve()], env=environment, check=True
    )
    arms = read_arms(chosen.folder / "benchmark.duckdb")
    if chosen.ship:
        export_arms(chosen.folder, arms)
    print(format_report(chosen.folder, arms))
    return 0


if __name__ == "__main__":
    sys.exit(main())
