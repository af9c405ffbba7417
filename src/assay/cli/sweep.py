"""`assay sweep`: search hyperparameters, and train the best trial on new seeds."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli.options import Database, Flag, Given, open_store, option_groups
from assay.cli.output import Show, complain, note, say, say_json
from assay.cli.tables import say_prose, say_table
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.training.sweep import SweepResult, SweepTrial
    from assay.training.sweep_space import SweepPlan

FAILED = 1


@option_groups(options="assay.training.sweep_space:SweepOptions")
def sweep(
    space: Path,
    /,
    *,
    folder: Annotated[Path, Parameter(show_default=False)],
    options: Given,
    dry_run: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Search hyperparameters and train the best trial on new seeds.

    Every trial trains once with the same seed. Trials are compared by the area under the
    last quarter of the metric's curve. The best of many trials is partly best by chance, so it
    is trained again on seeds that the search did not use; report that mean. All runs are
    saved in the database. The same command resumes a sweep. Requires the extra 'train'
    (Optuna, torch); '--dry-run' does not.

    For example:

        assay sweep space.toml --folder sweeps/trxl --trials 20

    Args:
        space: TOML file: [fixed] has options for every run, [space] the options to search,
            each a list of values or {low = 1e-5, high = 1e-2, log = true}.
        folder: Folder for the plan, the results and every run.
        options: Size and objective of the search.
        dry_run: Print the planned number of steps and one command without starting anything.
        database: DuckDB file for the curves, created if missing.
        show: Output options.
    """
    from assay.training.sweep import SWEEP_WINNER, plan_sweep, sweep, sweep_command

    plan = plan_sweep(space, **options)
    first = sweep_command(plan, folder)
    if dry_run:
        return _say_plan(plan, first, show)
    found = sweep(
        plan,
        folder,
        watch=lambda trial: None if show.quiet or show.json else note(_line(trial)),
        database=open_store(database, show),
    )
    if found.winner is None:
        complain(
            f"no trial completed; the last one: {found.trials[-1].note}; what each printed is "
            f"in {str(folder / 'trial-*.log')!r}"
        )
        return FAILED
    if show.json:
        say_json(_as_json(found))
    else:
        _say_result(found, show)
        if (file := folder / SWEEP_WINNER).exists() and not show.quiet:
            say(f"Next: {shlex.join(['assay', 'launch', str(file)])}")
    return 0 if found.fresh_mean is not None else FAILED


def _spending(plan: "SweepPlan") -> str:
    return (
        f"{plan.planned_trials} trials of {plan.total_steps:,} steps, {plan.budget:,} at most "
        f"({plan.sampler}, pruner {plan.pruner}), then what wins on {plan.fresh_seeds} fresh "
        f"seeds, {plan.fresh_seeds * plan.total_steps:,} steps."
    )


def _say_plan(plan: "SweepPlan", first: list[str], show: Show) -> int:
    if show.json:
        budget = {"budget": plan.budget, "fresh_seeds": list(plan.seeds), "command": first}
        say_json({**plan.as_dict(), **budget})
    else:
        say_prose(_spending(plan))
        say(f"Such as: {shlex.join(first)}")
    return 0


def _line(trial: "SweepTrial") -> str:
    told = trial.note if trial.value is None else f"{trial.value:.4g}"
    return f"{trial.folder}: {trial.state}, {told} ({_options(trial)})"


def _options(trial: "SweepTrial") -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in trial.options.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sentence(found: "SweepResult") -> str:
    winner, mean = found.winner, found.fresh_mean
    assert winner is not None
    best = f"{winner.folder} was the best of {len(found.trials)}: {winner.value:.4g}"
    if mean is None:
        return f"{best}. Fewer than two of its fresh runs completed: do not believe it yet."
    return (
        f"{best} with the seed of the search. On {len(found.fresh)} fresh seeds it has "
        f"{mean.point:.4g} (about 95 % interval {mean.low:.4g} to {mean.high:.4g}), which is "
        "the number to believe."
    )


def _say_result(found: "SweepResult", show: Show) -> None:
    assert found.winner is not None
    if not show.quiet:
        sign = 1 if found.plan.minimize else -1
        ranked = sorted(
            found.trials,
            key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)),
        )
        rows = [
            [t.folder, "-" if t.value is None else f"{t.value:.4g}", t.state, _options(t)]
            for t in ranked
        ]
        say_table(("trial", "value", "state", "options"), rows, ("trial", "state", "options"))
        say_prose(f"The search took {found.steps:,} of {found.plan.budget:,} steps at most.")
    say_prose(_sentence(found))
    say_prose(f"Options of the winner: {json.dumps(dict(found.winner.options))}")


def _as_json(found: "SweepResult") -> dict[str, Any]:
    mean = found.fresh_mean
    return {
        "name": found.name,
        "plan": found.plan.as_dict(),
        "budget": found.plan.budget,
        "steps": found.steps,
        "trials": [asdict(trial) for trial in found.trials],
        "winner": None if found.winner is None else asdict(found.winner),
        "fresh": [asdict(trial) for trial in found.fresh],
        "fresh_mean": None if mean is None else mean._asdict(),
    }
