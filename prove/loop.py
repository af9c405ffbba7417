"""`python -m prove.loop`: what `local/tiny` learns from the expert in about 20 minutes.

Runs the loop of `examples/loop/proof.toml` with a separate service, then trains on parts of the
same rows for a small curve, and lets the student answer without a grammar to count calls that
cannot be read. Prints Markdown for `docs/design/local-models.md`. What is done is kept in the
folder, and the same command resumes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import assay
from assay.api.loop import LoopResult, LoopWatch, plan_loop
from assay.core.provenance import collect_provenance
from assay.finetune.loop import Stage, StageEvent, StageLog, run_stages
from assay.stats.differences import paired_difference
from assay.stats.intervals import Interval
from assay.store.queries import EpisodeRow, episodes
from assay.store.store import Store

from .parts import markdown

_CONFIG: Final = Path(__file__).parents[1] / "examples" / "loop" / "proof.toml"
_PARTS: Final = (8, 4, 2)
_WANTED: Final = 3.0
_RANDOM: Final = "builtin/random"
_TEACHING: Final = ("teach", "filter", "pupil", "practice", "relabel", "finetune")


@contextmanager
def running_service(folder: Path, port: int, *, free_calls: bool = False) -> Iterator[None]:
    """Run a service in a separate process during the block."""
    command = [sys.executable, "-m", "assay", "serve-finetune"]
    command += ["--port", str(port), "--folder", str(folder / "service")]
    with subprocess.Popen(
        [*command, *(["--free-calls"] if free_calls else [])], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if "http" not in process.stdout.readline():
            raise SystemExit(
                f"no service could be started at port {port}; choose another --port"
            )
        try:
            yield
        finally:
            process.terminate()


def measure_row_curve(done: LoopResult, worlds: int, watch: LoopWatch) -> Mapping[str, Any]:
    """Train models on parts of the rows, and evaluate them in one run."""
    config = done.plan.config
    database = done.plan.database
    data = _last_result(done, "data")

    def trained(part: int, key: str, before: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = data["rows"] // part
        chosen: dict[str, Any] = {} if config.epochs is None else {"epochs": config.epochs}
        plan = assay.finetune_plan(
            data["data"],
            model=config.student,
            backend=config.backend,
            subset=rows,
            seed=config.training_seed,
            database=database,
            **chosen,
        )
        jobs = assay.finetune_start(plan, database=database, command="prove.loop")
        [job] = watch.follow(jobs, database, 5.0)
        return {"model": job.result_model, "rows": rows, "job": job.id}

    stages = [
        *(
            Stage(
                f"part-{part}",
                f"{config.student} is trained on 1/{part} of the rows",
                {"part": part},
                partial(trained, part),
            )
            for part in _PARTS
        ),
        Stage(
            "curve",
            f"those play {worlds} worlds of the exam",
            {"worlds": worlds},
            lambda key, before: {
                "run": _evaluate_models(
                    done, [result["model"] for result in before.values()], worlds
                )
            },
        ),
    ]
    log = StageLog(config.folder / f"curve-{done.stages['finetune'].key[:12]}.json")
    made = run_stages(stages, log, watch.stage)
    return {name: result.result for name, result in made.items()}


def _evaluate_models(done: LoopResult, models: Sequence[str], worlds: int) -> str:
    """Evaluate models in the first worlds of the exam."""
    config = done.plan.config
    names = ("difficulty", "view", "history", "actions_per_turn", "step_limit", "max_turns")
    played = assay.run(
        models=list(models),
        episodes=worlds,
        seed=config.exam_seed,
        baselines=False,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        max_concurrent_episodes=config.concurrent,
        database=done.plan.database,
        traces_dir=config.folder / "traces",
        **{name: getattr(config, name) for name in names},
    )
    return played.run_id


def _last_result(done: LoopResult, key: str) -> Mapping[str, Any]:
    return [stage.result for stage in done.stages.values() if key in stage.result][-1]


class ExamScores(NamedTuple):
    """Achievements of a model in the exam."""

    achievements: dict[int, int]
    """By world."""
    steps: float
    calls: int
    malformed: int

    @property
    def mean(self) -> float:
        """Achievements of an episode."""
        return sum(self.achievements.values()) / len(self.achievements)

    def over(self, other: "ExamScores") -> Interval:
        """Return the difference in the worlds that both played."""
        both = sorted(self.achievements.keys() & other.achievements.keys())
        return paired_difference(
            [other.achievements[seed] for seed in both],
            [self.achievements[seed] for seed in both],
        )


def read_exam_scores(database: Path, run: str) -> dict[str, ExamScores]:
    """Read the exam scores of each model of a run."""
    with Store(database).reading() as connection:
        rows = episodes(connection, run_id=run)
    by_model: dict[str, list[EpisodeRow]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    return {
        model: ExamScores(
            {row.seed or 0: len(row.achievements) for row in played},
            sum(row.steps for row in played) / len(played),
            sum(row.turns for row in played),
            sum(row.malformed_replies for row in played),
        )
        for model, played in by_model.items()
    }


def _format_interval(interval: Interval) -> str:
    return f"{interval.point:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"


def format_report(
    done: LoopResult, curve: Mapping[str, Any], free: ExamScores
) -> tuple[str, list[str]]:
    """Markdown, and a sentence for each target that was missed."""
    config = done.plan.config
    exam = read_exam_scores(done.plan.database, done.stages["exam"].result["run"])
    student, untrained, random = exam[done.student], exam[config.student], exam[_RANDOM]
    lines = [
        markdown(
            ["model", "worlds", "achievements", "steps", "malformed calls"],
            [
                [
                    name,
                    f"{len(result.achievements)}",
                    f"{result.mean:.2f}",
                    f"{result.steps:.0f}",
                    f"{result.malformed:,} of {result.calls:,}",
                ]
                for name, result in (*exam.items(), (f"{done.student}, free calls", free))
            ],
        ),
        f"Over {_RANDOM}: {_format_interval(student.over(random))}. Over its untrained self:"
        f" {_format_interval(student.over(untrained))}.",
    ]
    points = [
        point.metrics["full_valid_loss"]
        for point in assay.finetune_events(
            done.stages["finetune"].result["job"], database=done.plan.database
        )
        if "full_valid_loss" in point.metrics
    ]
    lines.append(f"Held-out loss: {points[0]:.3f} before, {points[-1]:.3f} after.")
    took = {name: stage.seconds for name, stage in done.stages.items()}
    taught = sum(s for name, s in took.items() if name.split("-")[0] in _TEACHING)
    lines.append(
        f"Data and training took {taught / 60:.1f} minutes, the exam {took['exam'] / 60:.1f}: "
        + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items())
        + "."
    )
    rows = _last_result(done, "data")["rows"]
    by_rows = [
        (curve[f"part-{part}"]["rows"], curve[f"part-{part}"]["model"]) for part in _PARTS
    ]
    parts = read_exam_scores(done.plan.database, curve["curve"]["run"])
    played = next(iter(parts.values())).achievements
    whole = student._replace(achievements={w: student.achievements[w] for w in played})
    learned = [*((count, parts[model]) for count, model in by_rows), (rows, whole)]
    lines.append(
        markdown(
            ["rows", "achievements", f"over {_RANDOM}, 95 %"],
            [
                [f"{count:,}", f"{result.mean:.2f}", _format_interval(result.over(random))]
                for count, result in learned
            ],
        )
    )
    draw_curve(
        [(count, result.over(random)) for count, result in learned],
        config.folder / "achievements-by-rows.svg",
    )
    missed = [
        f"the interval over {name} is not clear of zero"
        for name, other in ((_RANDOM, random), (config.student, untrained))
        if student.over(other).low <= 0
    ]
    if student.over(random).point < _WANTED:
        lines.append(f"+{_WANTED:g} over {_RANDOM} was not reached.")
    lines.append(f"`python -m prove.loop`, {collect_provenance()}")
    return "\n\n".join(lines), missed


def draw_curve(points: Sequence[tuple[int, Interval]], path: Path) -> None:
    """The curve: achievements over those of random play, against rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    rows = [count for count, _ in points]
    means = [over.point for _, over in points]
    below = [over.point - over.low for _, over in points]
    above = [over.high - over.point for _, over in points]
    axes.errorbar(rows, means, (below, above), marker="o", capsize=3)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(rows, [f"{count:,}" for count in rows])
    axes.set_xlabel("rows trained on")
    axes.set_ylabel(f"achievements over {_RANDOM}")
    figure.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if an interval is not clear of zero."""
    parser = argparse.ArgumentParser(prog="python -m prove.loop", description=__doc__)
    parser.add_argument("--config", type=Path, default=_CONFIG, help="another loop")
    parser.add_argument("--folder", type=Path, help="where all is kept (the loop's own)")
    parser.add_argument("--port", type=int, default=8951, help="of the service (8951)")
    parser.add_argument("--curve-worlds", type=int, default=50, help="of the exam (50)")
    parser.add_argument("--free-worlds", type=int, default=20, help="of the exam (20)")
    asked = parser.parse_args(arguments)
    os.environ["ASSAY_FINETUNE_URL"] = f"http://127.0.0.1:{asked.port}/v1"
    chosen = {} if asked.folder is None else {"folder": asked.folder}
    plan = plan_loop(asked.config, **chosen)
    folder = plan.config.folder
    folder.mkdir(parents=True, exist_ok=True)
    watch = LoopWatch(stage=_print_event)
    with running_service(folder, asked.port):
        done = assay.run_loop(plan, watch=watch)
        curve = measure_row_curve(done, asked.curve_worlds, watch)
    with running_service(folder, asked.port, free_calls=True):
        run = _evaluate_models(done, [done.student], asked.free_worlds)
    [free] = read_exam_scores(plan.database, run).values()
    text, missed = format_report(done, curve, free)
    print(text)
    for sentence in missed:
        print(sentence, file=sys.stderr)
    return 1 if missed else 0


def _print_event(event: StageEvent) -> None:
    if event.done is None:
        now = time.strftime("%H:%M:%S")
        print(f"{now} {event.stage.name}: {event.stage.about}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
