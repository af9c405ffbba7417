"""`assay sweep`: search hyperparameters, and train the best trial on new seeds."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli.options import Database, Flag, Given, open_store, option_groups
from assay.cli.output import OutputOptions, print_error, print_json, print_line, print_note
from assay.cli.tables import print_table, print_wrapped
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
    show: OutputOptions = OutputOptions(),
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
        return _print_plan(plan, first, show)
    result = sweep(
        plan,
        folder,
        watch=lambda trial: (
            None if show.quiet or show.json else print_note(_format_trial(trial))
        ),
        database=open_store(database, show),
    )
    if result.winner is None:
        print_error(
            f"no trial completed; last trial: {result.trials[-1].note}; logs: "
            f"{str(folder / 'trial-*.log')!r}"
        )
        return FAILED
    if show.json:
        print_json(_to_json(result))
    else:
        _print_result(result, show)
        if (file := folder / SWEEP_WINNER).exists() and not show.quiet:
            print_line(f"Next: {shlex.join(['assay', 'launch', str(file)])}")
    return 0 if result.fresh_mean is not None else FAILED


def _describe_plan(plan: "SweepPlan") -> str:
    return (
        f"{plan.planned_trials} trials of {plan.total_steps:,} steps, {plan.budget:,} at most "
        f"({plan.sampler}, pruner {plan.pruner}), then the best one on {plan.fresh_seeds} new "
        f"seeds, {plan.fresh_seeds * plan.total_steps:,} steps."
    )


def _print_plan(plan: "SweepPlan", first: list[str], show: OutputOptions) -> int:
    if show.json:
        budget = {"budget": plan.budget, "fresh_seeds": list(plan.seeds), "command": first}
        print_json({**plan.as_dict(), **budget})
    else:
        print_wrapped(_describe_plan(plan))
        print_line(f"Example: {shlex.join(first)}")
    return 0


def _format_trial(trial: "SweepTrial") -> str:
    value = trial.note if trial.value is None else f"{trial.value:.4g}"
    return f"{trial.folder}: {trial.state}, {value} ({_format_options(trial)})"


def _format_options(trial: "SweepTrial") -> str:
    return ", ".join(f"{name} {_format_value(value)}" for name, value in trial.options.items())


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _format_conclusion(result: "SweepResult") -> str:
    winner, mean = result.winner, result.fresh_mean
    assert winner is not None
    best = f"{winner.folder} was the best of {len(result.trials)}: {winner.value:.4g}"
    if mean is None:
        return f"{best}. Fewer than two of its runs on new seeds completed: not reliable."
    return (
        f"{best} with the seed of the search. On {len(result.fresh)} new seeds its mean is "
        f"{mean.point:.4g} (approximate 95 % CI {mean.low:.4g} to {mean.high:.4g}); report "
        "this mean."
    )


def _print_result(result: "SweepResult", show: OutputOptions) -> None:
    assert result.winner is not None
    if not show.quiet:
        sign = 1 if result.plan.minimize else -1
        ranked = sorted(
            result.trials,
            key=lambda trial: (trial.value is None, sign * (trial.value or 0.0)),
        )
        rows = [
            [
                t.folder,
                "-" if t.value is None else f"{t.value:.4g}",
                t.state,
                _format_options(t),
            ]
            for t in ranked
        ]
        print_table(("trial", "value", "state", "options"), rows, ("trial", "state", "options"))
        print_wrapped(
            f"The search used {result.steps:,} of at most {result.plan.budget:,} steps."
        )
    print_wrapped(_format_conclusion(result))
    print_wrapped(f"Best options: {json.dumps(dict(result.winner.options))}")


def _to_json(result: "SweepResult") -> dict[str, Any]:
    mean = result.fresh_mean
    return {
        "name": result.name,
        "plan": result.plan.as_dict(),
        "budget": result.plan.budget,
        "steps": result.steps,
        "trials": [asdict(trial) for trial in result.trials],
        "winner": None if result.winner is None else asdict(result.winner),
        "fresh": [asdict(trial) for trial in result.fresh],
        "fresh_mean": None if mean is None else mean._asdict(),
    }
