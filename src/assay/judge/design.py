"""What two subjects do not share besides their outcomes, checked before any number is read.

The task side is what was to be done: where it differs, so may the outcomes, whoever is better.
The subject side is what is compared. A setting that one side did not record is not compared.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from assay._util.names import unknown_name
from assay._util.text import counted
from assay.crafter.rules import TASK
from assay.errors import UsageError
from assay.judge.changes import Change, changes_between
from assay.judge.facts import DesignDifference
from assay.judge.subjects import SUBJECT_METRICS, Subject, Trials

__all__ = ["TASK_SIDE", "allowed_names", "design_differences", "settings_differences"]

TASK_SIDE = (
    *("tasks", "environment", "difficulty", "rules", "length", "curriculum", "forks"),
    *("max_turns", "max_steps", "step_limit", "token_limit", "time_limit", "total_steps"),
)
"""Settings that say what was to be done, and how much of it was allowed."""
_ASIDE = frozenset(
    {
        *("models", "baselines", "name", "episodes", "seed", "seeds", "until_decided"),
        *("min_effect", "hooks", "hook_hashes", "metrics_from", "metrics_hash", "budget"),
        *("price", "cache", "database", "traces_dir", "save_traces", "arms", "agents"),
        *("agent_hashes", "replicates", "executor", "workers", "ray_address"),
        *(
            "call_patience",
            "save_detailed_results",
            "service_url",
            "service_timeout",
            "concurrent_models",
        ),
        *("max_concurrent_models", "max_concurrent_episodes", "max_connections"),
        *("experiment", "curves", "without_result", "forks", SUBJECT_METRICS),
    }
)
"""What says where, beside whom, how fast and how often, and not how it was played."""
_SHOWN = 3


def allowed_names(names: Iterable[str]) -> frozenset[str]:
    """The names of settings that may differ.

    Raises:
        UsageError: There is no such setting on the task side.
    """
    for name in names:
        if name not in TASK_SIDE:
            raise UsageError(unknown_name("setting of the task", name, TASK_SIDE))
    return frozenset(names)


def design_differences(
    baseline: Subject, candidate: Subject, allowed: Collection[str] = ()
) -> tuple[DesignDifference, ...]:
    """What differs between two subjects, the task side first."""
    tasks = [
        [task for task in dict.fromkeys(Trials.of(subject.trials).tasks) if task is not None]
        for subject in (baseline, candidate)
    ]
    who, whose = _who(baseline), _who(candidate)
    found = [
        Change(name, before, after)
        for name, before in who.items()
        if before != (after := whose[name]) and before is not None and after is not None
    ]
    apart = all(tasks) and not {*tasks[0]} & {*tasks[1]}
    if apart:
        crafter = all(task.startswith(TASK) for own in tasks for task in own)
        words = [_some(task.removeprefix(TASK) for task in own) for own in tasks]
        found.append(Change("difficulty" if crafter else "tasks", *words))
    states = [subject.facts.get("forks") or [] for subject in (baseline, candidate)]
    if states[0] != states[1] and all(
        "max_turns" in one.facts for one in (baseline, candidate)
    ):
        other = "other state" if states[0] else "state"
        found.append(Change("forks", _states(states[0]), _states(states[1], other)))
    return settings_differences(
        baseline.facts, candidate.facts, allowed, found, named=apart and "difficulty"
    )


def _states(forks: Sequence[Any], name: str = "state") -> str:
    """Where episodes begin, in words."""
    return counted(len(forks), name) if forks else "none (whole episodes)"


def _who(subject: Subject) -> dict[str, str | None]:
    """What plays; None where that is not recorded."""
    model, agent = subject.asked_model, "ours"
    if subject.agent is not None:
        model, agent = subject.asks or "none", subject.agent
    return {"model": model, "agent": agent, "commit": subject.commit}


def settings_differences(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    allowed: Collection[str] = (),
    known: Sequence[Change] = (),
    *,
    named: str | bool = False,
) -> tuple[DesignDifference, ...]:
    """What differs between two configurations, the task side first.

    Args:
        before: Of the baseline.
        after: Of the candidate.
        allowed: Settings of the task side that may differ.
        known: What is known to differ besides.
        named: A setting that `known` tells about already.
    """
    # A configuration leaves out some of what is at its default; other files just say less.
    whole = "max_turns" in before and "max_turns" in after
    aside = _ASIDE if whole else _ASIDE | (before.keys() ^ after.keys())
    grouped: dict[str, list[Change]] = {}
    for change in changes_between(before, after, aside):
        head, _, inner = change.what.partition(".")
        name = inner if head == "agent" else head
        # A file may keep its settings in a table of any name.
        name = next((part for part in change.what.split(".") if part in TASK_SIDE), name)
        if name != named:
            grouped.setdefault(name, []).append(change)
    changes = [*known, *(_together(name, own) for name, own in grouped.items())]
    found = [
        DesignDifference(
            change.what,
            change.before,
            change.after,
            task=change.what in TASK_SIDE,
            allowed=change.what in allowed,
        )
        for change in changes
    ]
    return tuple(sorted(found, key=lambda one: not one.task))


def _together(name: str, changes: Sequence[Change]) -> Change:
    """One change for all numbers of a table."""
    if len(changes) == 1 and (
        name in changes[0].what.split(".") or "agent." in changes[0].what
    ):
        inner = changes[0].what.rpartition(name)[2].lstrip(".")
        label = f"{inner} " if inner else ""
        return Change(name, label + changes[0].before, label + changes[0].after)
    sides = (
        _some(f"{change.what.rpartition('.')[2]} {getattr(change, side)}" for change in changes)
        for side in ("before", "after")
    )
    return Change(name, *sides)


def _some(texts: Iterable[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")
