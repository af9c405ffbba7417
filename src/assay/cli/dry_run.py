"""Output of `assay run --dry-run`: the plan, with estimates of tokens, cost and time."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.cli.output import Show, say_json
from assay.cli.tables import say_prose, say_table
from assay.core.text import counted

if TYPE_CHECKING:
    from assay.episodes.estimate import ModelEstimate, RunEstimate
    from assay.runs.kind import PreparedRun

_HEADS = ("model", "calls", "prompt tokens", "reply tokens", "dollars", "at most", "time")


def describe(prepared: "PreparedRun[Any]", estimate: "RunEstimate", show: Show) -> None:
    """Print the plan and the estimate of a run."""
    if show.json:
        say_json(_plain(prepared, estimate))
        return
    for line in (*_plan(prepared, estimate), ""):
        say_prose(line, indent=12)
    _say_table(estimate)
    for line in (
        "",
        *_explained(prepared, estimate),
        *_budget(estimate),
        *_missing(estimate),
        *_chosen(prepared),
    ):
        say_prose(line)


def opening(prepared: "PreparedRun[Any]") -> Iterator[str]:
    """Yield lines with the models, episodes and worlds of a run."""
    config = prepared.config
    played = [arm.label for arm in prepared.arms if not arm.tags.get("baseline")]
    beside = [arm.label for arm in prepared.arms if arm.tags.get("baseline")]
    first, last = _seeds(config)
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    again = f", each world {config.replicates} times" if config.replicates > 1 else ""
    if config.forks:
        again = ""
    where = config.environment or "Crafter"
    if config.environment is None:
        where += f" ({', '.join(config.difficulty_names)})"
    verb = "Starting run" if prepared.resumed is None else "Resuming run"
    yield f"{verb} {prepared.record.id}"
    yield f"  Models:   {', '.join(played) or 'none'}"
    if beside:
        yield f"  Baseline: {', '.join(beside)}"
    turns = counted(config.max_turns, "turn")
    if config.forks:
        states = counted(len(config.forks), "state")
        stored = counted(len({point.session for point in config.forks}), "stored episode")
        futures = counted(config.replicates, "future")
        yield f"  Forks:    {states} of {stored}, {futures} each"
    common = ", those in common included" if config.forks else ""
    yield f"  Episodes: {config.trials} per model, at most {turns} each{common}"
    yield f"  Worlds:   {where}, {seeds}{again}"


def _seeds(config: Any) -> tuple[int, int]:
    """Return the smallest and the largest seed of a run."""
    if not config.forks:
        return config.seed, config.seed + config.episodes - 1
    seeds = [point.seed for point in config.forks]
    return min(seeds), max(seeds)


def _plan(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> Iterator[str]:
    config, resumed = prepared.config, prepared.resumed is not None
    names = [one.model for one in estimate.models]
    first, *rest = opening(prepared)
    yield f"Dry run, nothing is started: {first if resumed else 'a new run'}"
    yield from rest
    yield f"  At most {estimate.calls:,} model calls{' are left' if resumed else ''}."
    if config.until_decided is not None:
        yield (
            f"until {config.until_decided} tells each model from {names[0]}: these are "
            "the most, and it stops as soon as all are decided"
        )


def _say_table(estimate: "RunEstimate") -> None:
    from assay.cli.progress_text import big, cost, duration

    def cells(name: str, one: "ModelEstimate | RunEstimate") -> tuple[str, ...]:
        return (
            name,
            f"{one.calls:,}",
            big(one.prompt_tokens),
            big(one.completion_tokens),
            cost(one.dollars),
            cost(one.dollars_at_most),
            duration(one.seconds),
        )

    rows = [cells(one.model, one) for one in estimate.models]
    say_table(_HEADS, [*rows, cells("in all", estimate)], ("model",))


def _explained(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> Iterator[str]:
    from assay.episodes.estimate import BYTES_PER_TOKEN

    config = prepared.config
    alone = [one.model for one in estimate.models if one.asked_by == "nobody"]
    asking = [one.model for one in estimate.models if one.asked_by == "own"]
    if alone:
        yield f"no model is called by: {', '.join(alone)}; the time they take is not known"
    if not estimate.calls:
        return
    yield "An estimate for episodes that take all their turns; those that end early cost less."
    if asking:
        yield (
            f"calls of your own agents: {', '.join(asking)}; assumed is one call per turn, as "
            "our agent makes, which may be far off; --budget is a firm limit"
        )
    yield (
        f"tokens: 1 per {BYTES_PER_TOKEN} bytes, measured on {estimate.sample_turns} turns of "
        f"{estimate.sampled}; models that write or think more cost more"
    )
    yield (
        "at most: 1 token per byte, and every reply as long as --max-tokens "
        f"({config.agent.max_tokens:,}) allows; retries come on top"
    )
    remote = [one.at_once for one in estimate.models if one.provider != "builtin"]
    if remote:
        yield (
            f"time: assumed are {estimate.latency_s:g} s per call over the network, and "
            f"{max(remote):,} calls at the same time"
        )
    if estimate.unpriced:
        yield (
            f"no known price: {', '.join(estimate.unpriced)}, not in the dollars; give --price "
            "IN/OUT in dollars per million tokens"
        )
    if config.cache is not None:
        yield f"replies in {config.cache} cost nothing; they are not subtracted here"


def _budget(estimate: "RunEstimate") -> Iterator[str]:
    from assay.cli.progress_text import cost
    from assay.episodes.estimate import BudgetFit

    if estimate.budget is None:
        return
    spent = f", of which {cost(estimate.spent)} are spent" if estimate.spent else ""
    words = {
        BudgetFit.SURELY: "enough in any case",
        BudgetFit.LIKELY: "enough by the estimate; if not, the run stops and can be resumed",
        BudgetFit.NO: "not enough by the estimate: the run would stop, and can be resumed",
        BudgetFit.UNKNOWN: "cannot tell, because a price is not known",
    }
    if estimate.fit is not None:
        yield f"budget {cost(estimate.budget)}{spent}: {words[estimate.fit]}"


def _missing(estimate: "RunEstimate") -> Iterator[str]:
    problems = dict.fromkeys(problem for one in estimate.models for problem in one.missing)
    for problem in problems:
        yield f"before it can start: {problem}"


def _chosen(prepared: "PreparedRun[Any]") -> Iterator[str]:
    config = prepared.config
    for name, source in prepared.sources.items():
        if source != "default":
            yield f"  {name}: from {source}"
    yield f"traces go to {config.database}, files to {config.traces_dir}; nothing was started"


def _plain(prepared: "PreparedRun[Any]", estimate: "RunEstimate") -> dict[str, Any]:
    config = prepared.config
    return {
        "run": prepared.record.id,
        "resumes": prepared.resumed is not None,
        "models": [one.model for one in estimate.models],
        "episodes": config.trials * len(estimate.models),
        "seeds": [*_seeds(config)],
        "calls_at_most": estimate.calls,
        "estimate": {
            "models": [asdict(one) for one in estimate.models],
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
