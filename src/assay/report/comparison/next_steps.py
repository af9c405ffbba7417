"""Next steps after a comparison: sample size, conditions of a verdict, and commands to type.

Only a pre-registered comparison is called *settled*. New trials are compared separately:
pooling them with the trials that prompted them and testing all again would double the
false-positive rate. Names in these sentences are untrusted; the caller makes them safe before
printing.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from assay.judge.looks import looked_before
from assay.judge.results import Comparison, Contrast, PowerPlan, TaskRule
from assay.judge.subjects import Subject
from assay.report.numbers import format_dollars, format_hours, format_value, level_text
from assay.stats.intervals import Interval
from assay.types import Verdict


def suggest_new_worlds(comparison: Comparison, contrast: Contrast, trials: int) -> str:
    """Return the commands that play this many new worlds and compare them separately."""
    pair = [comparison.of(side).subject for side in (contrast.baseline, contrast.candidate)]
    if any(subject.facts.get("forks") for subject in pair):
        return (
            "Fork episodes of other worlds and compare those alone: added to these, they would"
            " test these twice."
        )
    first = comparison.next_seed
    if first is None:
        return (
            "Play new trials and compare those alone: added to these, they would test these"
            " twice."
        )
    alone = f"--seeds {first}-{first + trials - 1}"
    commands = _run_commands(pair, first, trials)
    if not commands:
        return (
            f"Play seeds from {first} on, which none of these has played, and compare those"
            f" alone, with {alone}."
        )
    what = " and ".join(f"'{command}'" for command in commands)
    compare = ["assay", "compare", "latest", *alone.split(), *database_option(pair[0])]
    again = (
        f"'{shlex.join(compare)}'"
        if len(commands) == 1
        else f"compare the two new experiments with {alone}"
    )
    return f"Play new worlds: {what}; then {again}."


def database_option(subject: Subject) -> list[str]:
    """Return the option with which a command finds the database of a subject."""
    return [] if subject.database is None else ["--database", subject.database]


class _Player(NamedTuple):
    """An agent, a model, or both, with the settings of the run."""

    agent: str | None
    model: str | None


def _run_commands(pair: list[Subject], first: int, trials: int) -> list[str]:
    """Return the commands that run more trials: one for both if their settings are equal.

    The list is empty if a command cannot express the settings.
    """
    options = [_setting_options(subject) for subject in pair]
    players = [_find_player(subject) for subject in pair]
    if options[0] == options[1] and players[0] != players[1]:
        groups = [(players, options[0])]
    else:
        groups = [([player], own) for player, own in zip(players, options, strict=True)]
    where = ["--seed", str(first), "--episodes", str(trials), "--no-baselines"]
    where += database_option(pair[0])
    commands = []
    for together, own in groups:
        player_options = _player_options(together)
        if player_options is None or own is None:
            return []
        commands.append(shlex.join(["assay", "run", *player_options, *where, *own]))
    return commands


def _find_player(subject: Subject) -> _Player | None:
    """Return the agent and model of a subject; None if no option of `assay run` can name it."""
    from assay.episodes.environments import RANDOM

    agent = None if subject.agent == RANDOM else subject.agent
    model = RANDOM if subject.agent == RANDOM else subject.asked_model
    if agent is None:
        return None if model is None else _Player(None, model)
    return _Player(agent, model) if ".py:" in agent else None


def _player_options(players: Sequence[_Player | None]) -> list[str] | None:
    """Return the options that run exactly these players; None if there are none."""
    known = [player for player in players if player is not None]
    models = [*dict.fromkeys(player.model for player in known if player.model)]
    agents = [*dict.fromkeys(player.agent for player in known if player.agent)]
    # Each model also plays without an agent, and each agent that calls a model plays with all
    # of them.
    calling = {player.agent for player in known if player.agent and player.model}
    resulting = [
        *(_Player(None, model) for model in models),
        *(_Player(agent, None) for agent in agents if agent not in calling),
        *(_Player(agent, model) for agent in calling for model in models),
    ]
    if len(known) < len(players) or {*resulting} != {*known}:
        return None
    return [
        *(["--models", *models] if models else []),
        *(["--agents", *agents] if agents else []),
    ]


def _setting_options(subject: Subject) -> list[str] | None:
    """Return the options for a stored configuration; None if it needs a file."""
    from assay.core.settings import Counts, to_stored
    from assay.crafter.difficulty import DIFFICULTIES
    from assay.episodes.config import SETTINGS

    if "max_turns" not in subject.facts:
        return None
    options: list[str] = []
    for name, setting in SETTINGS.items():
        section: Any = subject.facts.get(setting.section) if setting.section else subject.facts
        value = (section or {}).get(name, setting.default)
        if setting.counts is not Counts.VERSION:
            continue
        if name == "difficulty" and value != setting.default:
            named = (
                label
                for label, difficulty in DIFFICULTIES.items()
                if value == to_stored(difficulty)
            )
            value = next(named, None)
        if value == setting.default:
            continue
        if not isinstance(value, (str, int, float)) or setting.given is not None:
            return None
        if name == "environment" and "@" in str(value):  # a class passed by a program
            return None
        options += [setting.option, str(value)]
    return options


def answer_next_step(comparison: Comparison, contrast: Contrast) -> str:
    """Return the next step for a contrast, or the conditions of its verdict."""
    plan = contrast.settle
    if contrast.confounds:
        names = " ".join(
            f"--allow-different {confound.name}" for confound in contrast.confounds
        )
        return f"Let both do the same task; or say that this is what you compare: {names}."
    if contrast.same is not None:
        return "Other trials: these tell nothing about a difference."
    if contrast.withheld:
        return "Run the lost trials again, or find out why they have no value."
    if contrast.verdict is not Verdict.UNDECIDED:
        return _describe_settled(comparison, contrast)
    if contrast.look is not None and contrast.look.decision is None:
        return "Its run has not ended: resume it."
    if contrast.fewest is not None:
        if comparison.next_seed is None:
            return f"Play at least {contrast.fewest:,} {contrast.unit_counts[3]}s."
        return suggest_new_worlds(
            comparison, contrast, plan.trials if plan else contrast.fewest
        )
    if plan is None:
        if contrast.naive.point and contrast.tests and not contrast.tests.spread_known:
            return "All differences are equal, so nothing tells how many more it takes."
        return (
            "No difference was seen, so there is none to plan for; say which one would matter"
            " with --min-effect."
        )
    what = "new pairs" if contrast.paired else "new trials of each"
    units = contrast.units
    if units.rule is TaskRule.SAMPLE:
        tasks = plan.trials // units.worlds_per_task
        what += f" on {tasks:,} new tasks, of {units.worlds_per_task} worlds each,"
    size = "the one asked for" if plan.asked else "the one seen, less luck"
    text = (
        f"About {plan.trials:,} {what} ({_describe_range(plan)}) would find a difference of"
        f" {format_value(contrast.outcome, plan.effect)} ({size}) with a power of 80 %"
    )
    price = _describe_cost(plan)
    text += f": {price}." if price else "."
    return f"{text} {suggest_new_worlds(comparison, contrast, plan.trials)}"


def _describe_settled(comparison: Comparison, contrast: Contrast) -> str:
    """Describe the strength of a clear verdict, and its conditions."""
    level, alpha = level_text(comparison.setup.level), comparison.setup.alpha
    against = [*_list_reservations(comparison, contrast)]
    before = contrast.look is not None or comparison.planned
    if before and not against:
        how = "the run was set up to stop here" if contrast.look else "it was planned before"
        return f"Settled at the {level} level: {how}, and nothing was chosen by its result."
    chosen = "" if before else _describe_assumptions(comparison)
    about = "" if contrast.promised or contrast.look else "about "
    text = f"It is decided at {about}the {level} level{chosen}."
    if not before:
        share = f"{about}1 in {1 / alpha:.3g}"
        text += f" {_error_rate(comparison, contrast, share)}"
    again = suggest_new_worlds(comparison, contrast, contrast.n_baseline)
    return " ".join([text, *against, f"To confirm it: {again[0].lower()}{again[1:]}"])


def _error_rate(comparison: Comparison, contrast: Contrast, share: str) -> str:
    """Return how often a verdict of this kind is wrong."""
    if contrast.verdict is not Verdict.NO_DIFFERENCE:
        return f"Where there is no real difference, {share} comparisons still finds one."
    margin = format_value(contrast.outcome, comparison.setup.min_effect)
    exact = contrast.outcome.ends or (contrast.tests is not None and contrast.tests.t.exact)
    if exact:
        return (
            f"Where the real difference is {margin}, at most {share.removeprefix('about ')}"
            " comparisons calls it none."
        )
    return (
        f"Where the real difference is {margin}, {share} comparisons of normal values calls it"
        " none; of skewed values 14 to 18 %, of rare large gains 7 to 34 %."
    )


def _describe_assumptions(comparison: Comparison) -> str:
    """Return the assumptions of a verdict that was not pre-registered."""
    setup = comparison.setup
    many = len(setup.known_metrics)
    one_of = f" (one of {many} metrics here)" if many > 1 else ""
    return (
        f", provided that {setup.primary}{one_of} and these trials were chosen before anybody"
        " saw a result"
    )


def _list_reservations(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    """Yield the reasons why a clear verdict is not final."""
    pair = [comparison.of(side).subject for side in (contrast.baseline, contrast.candidate)]
    if looked_before(contrast, *pair):
        yield "A run stopped by looks at another comparison, which nothing here corrects for."
    settings = ["max_turns" in subject.facts for subject in pair]
    if any(settings) and not all(settings):
        yield "Nothing says that both were given the same task."


def _describe_range(plan: PowerPlan) -> str:
    if plan.low is None:
        return "a guess from too few trials"
    if plan.high is None:
        return f"{plan.low:,} or more: so few trials tell little of the spread"
    return f"{plan.low:,} to {plan.high:,}: so few trials tell little of the spread"


def _describe_cost(plan: PowerPlan) -> str:
    amounts = []
    if plan.dollars is not None:
        amounts.append(_format_range(plan.dollars, format_dollars))
    if plan.hours is not None:
        amounts.append(f"{_format_range(plan.hours, format_hours)} one after the other")
    return (
        f"at the price of the trials so far {' and '.join(amounts)} for both" if amounts else ""
    )


def _format_range(amount: Interval, format: Callable[[float], str]) -> str:
    middle = format(amount.point)
    if not (math.isfinite(amount.low) and math.isfinite(amount.high)) or amount.point == 0:
        return middle
    return f"{middle} ({format(amount.low)} to {format(amount.high)})"
