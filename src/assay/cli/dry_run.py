"""Output of `assay run --dry-run`: the plan, with estimates of tokens, cost and time."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.cli.output import OutputOptions, print_json
from assay.cli.tables import print_table, print_wrapped
from assay.core.text import counted

if TYPE_CHECKING:
    from assay.episodes.estimate import ModelEstimate, RunEstimate
    from assay.runs.kind import PreparedRun

_HEADS = ("model", "calls", "prompt tokens", "reply tokens", "dollars", "at most", "time")


def print_dry_run(
    prepared: "PreparedRun[Any]", estimate: "RunEstimate", show: OutputOptions
) -> None:
    """Print the plan and the estimate of a run."""
    if show.json:
        print_json(_to_json(prepared, estimate))
        return
    for line in (*_describe_plan(prepared, estimate), ""):
        print_wrapped(line, indent=12)
    _print_estimates(estimate)
    for line in (
        "",
        *_explain_estimate(prepared, estimate),
        *_explain_budget(estimate),
        *_list_problems(estimate),
        *_list_changed_settings(prepared),
    ):
        print_wrapped(line)


def describe_run(prepared: "PreparedRun[Any]") -> Iterator[str]:
    """Yield lines with the models, episodes and worlds of a run."""
    config = prepared.config
    models = [arm.label for arm in prepared.arms if not arm.tags.get("baseline")]
    baselines = [arm.label for arm in prepared.arms if arm.tags.get("baseline")]
    first, last = _find_seed_range(config)
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    repeats = f", each world {config.replicates} times" if config.replicates > 1 else ""
    if config.forks:
        repeats = ""
    where = config.environment or "Crafter"
    if config.environment is None:
        where += f" ({', '.join(config.difficulty_names)})"
    verb = "Starting run" if prepared.resumed is None else "Resuming run"
    yield f"{verb} {prepared.record.id}"
    yield f"  Models:   {', '.join(models) or 'none'}"
    if baselines:
        yield f"  Baseline: {', '.join(baselines)}"
    turns = counted(config.max_turns, "turn")
    if config.forks:
        states = counted(len(config.forks), "state")
        stored = counted(len({point.session for point in config.forks}), "stored episode")
        futures = counted(config.replicates, "future")
        yield f"  Forks:    {states} of {stored}, {futures} each"
    shared = ", including copied turns" if config.forks else ""
    yield f"  Episodes: {config.trials} per model, at most {turns} each{shared}"
    yield f"  Worlds:   {where}, {seeds}{repeats}"


def _find_seed_range(config: Any) -> tuple[int, int]:
    """Return the smallest and the largest seed of a run."""
    if not config.forks:
        return config.seed, config.seed + config.episodes - 1
    seeds = [point.seed for point in config.forks]
    return min(seeds), max(seeds)


def _describe_plan(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> Iterator[str]:
    config, resumed = prepared.config, prepared.resumed is not None
    names = [model.model for model in estimate.models]
    first, *rest = describe_run(prepared)
    yield f"Dry run, nothing is started: {first if resumed else 'a new run'}"
    yield from rest
    yield f"  At most {estimate.calls:,} model calls{' are left' if resumed else ''}."
    if config.until_decided is not None:
        yield (
            f"These are maximums: the run stops as soon as {config.until_decided} separates "
            f"every model from {names[0]}."
        )


def _print_estimates(estimate: "RunEstimate") -> None:
    from assay.cli.progress_text import format_cost, format_count, format_duration

    def format_cells(name: str, item: "ModelEstimate | RunEstimate") -> tuple[str, ...]:
        return (
            name,
            f"{item.calls:,}",
            format_count(item.prompt_tokens),
            format_count(item.completion_tokens),
            format_cost(item.dollars),
            format_cost(item.dollars_at_most),
            format_duration(item.seconds),
        )

    rows = [format_cells(item.model, item) for item in estimate.models]
    print_table(_HEADS, [*rows, format_cells("total", estimate)], ("model",))


def _explain_estimate(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> Iterator[str]:
    from assay.episodes.estimate import BYTES_PER_TOKEN

    config = prepared.config
    without_calls = [model.model for model in estimate.models if model.asked_by == "nobody"]
    user_agents = [model.model for model in estimate.models if model.asked_by == "own"]
    if without_calls:
        yield f"agents without model calls: {', '.join(without_calls)}; their time is unknown"
    if not estimate.calls:
        return
    yield "Estimated for episodes that use all their turns; shorter episodes cost less."
    if user_agents:
        yield (
            f"your own agents: {', '.join(user_agents)}; the estimate assumes one call per "
            "turn, which may be far off; --budget is a hard limit"
        )
    yield (
        f"tokens: 1 per {BYTES_PER_TOKEN} bytes, measured on {estimate.sample_turns} turns of "
        f"{estimate.sampled}; models that write or think more cost more"
    )
    yield (
        "at most: 1 token per byte, and every reply as long as --max-tokens "
        f"({config.agent.max_tokens:,}) allows; retries cost extra"
    )
    remote = [model.at_once for model in estimate.models if model.provider != "builtin"]
    if remote:
        yield (
            f"time: assumes {estimate.latency_s:g} s per call over the network and "
            f"{max(remote):,} concurrent calls"
        )
    if estimate.unpriced:
        yield (
            f"unknown price: {', '.join(estimate.unpriced)}; not included in the dollars. Give "
            "--price IN/OUT in dollars per million tokens"
        )
    if config.cache is not None:
        yield f"replies in {config.cache} cost nothing; the estimate does not subtract them"


def _explain_budget(estimate: "RunEstimate") -> Iterator[str]:
    from assay.cli.progress_text import format_cost
    from assay.episodes.estimate import BudgetFit

    if estimate.budget is None:
        return
    spent = f", of which {format_cost(estimate.spent)} are spent" if estimate.spent else ""
    words = {
        BudgetFit.SURELY: "enough in any case",
        BudgetFit.LIKELY: "enough by the estimate; if not, the run stops and can be resumed",
        BudgetFit.NO: "not enough by the estimate: the run would stop, and can be resumed",
        BudgetFit.UNKNOWN: "cannot be checked, because a price is unknown",
    }
    if estimate.fit is not None:
        yield f"budget {format_cost(estimate.budget)}{spent}: {words[estimate.fit]}"


def _list_problems(estimate: "RunEstimate") -> Iterator[str]:
    problems = dict.fromkeys(problem for model in estimate.models for problem in model.missing)
    for problem in problems:
        yield f"needed before the run: {problem}"


def _list_changed_settings(prepared: "PreparedRun[Any]") -> Iterator[str]:
    config = prepared.config
    for name, source in prepared.sources.items():
        if source != "default":
            yield f"  {name}: from {source}"
    yield f"database: {config.database}; files: {config.traces_dir}; nothing was started"


def _to_json(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> dict[str, Any]:
    config = prepared.config
    return {
        "run": prepared.record.id,
        "resumes": prepared.resumed is not None,
        "models": [model.model for model in estimate.models],
        "episodes": config.trials * len(estimate.models),
        "seeds": [*_find_seed_range(config)],
        "calls_at_most": estimate.calls,
        "estimate": {
            "models": [asdict(model) for model in estimate.models],
            "calls": estimate.calls,
            "prompt_tokens": estimate.prompt_tokens,
            "completion_tokens": estimate.completion_tokens,
            "dollars": estimate.dollars,
            "dollars_at_most": estimate.dollars_at_most,
            "unpriced": list(estimate.unpriced),
            "seconds": estimate.seconds,
            "latency_s": estimate.latency_s,
            "sample_turns": estimate.sample_turns,
            "budget": estimate.budget,
            "spent": estimate.spent,
            "fit": estimate.fit,
        },
        "config": config.stored(),
        "sources": dict(prepared.sources),
    }
