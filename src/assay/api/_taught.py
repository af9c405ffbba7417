"""How a fine-tuned model was asked while it was taught, and that a run asks it so."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from assay.agents.tuned import is_tuned, jobs_of
from assay.rollouts import RunConfig, arm_options
from assay.runs import PreparedRun

__all__ = ["as_taught"]

_DEFAULT: Final = "default"
_OPTIONS: Final = {
    "view": "--view",
    "history": "--history",
    "actions_per_turn": "--actions-per-turn",
}

Taught = Mapping[str, Mapping[str, Any]]
"""By model, what its teaching episodes were played with."""


def as_taught(
    prepared: PreparedRun[RunConfig],
    again: Callable[[Mapping[str, Any]], PreparedRun[RunConfig]],
) -> PreparedRun[RunConfig]:
    """The run with what its fine-tuned models were taught with, unless the user says otherwise.

    Args:
        prepared: The run as it would be.
        again: Prepares it with other settings.
    """
    taught = _taught(prepared)
    if not taught:
        return prepared
    brought = {
        name: value
        for name, value in next(iter(taught.values())).items()
        if prepared.sources[name] == _DEFAULT
        and all(each.get(name) == value for each in taught.values())
        and getattr(prepared.config.agent, name) != value
    }
    words = []
    if brought:
        models = ", ".join(taught)
        prepared = again(brought)
        sources = {**prepared.sources, **dict.fromkeys(brought, f"the teaching of {models}")}
        prepared = replace(prepared, sources=sources)
        chosen = " and ".join(_OPTIONS[name] for name in brought)
        words.append(
            f"{models} was taught with {_listed(brought)}, so this run is played with it;"
            f" {chosen} would say otherwise"
        )
    words += _mismatches(prepared, taught)
    return replace(prepared, warnings=(*prepared.warnings, *words))


def _taught(prepared: PreparedRun[RunConfig]) -> Taught:
    asked = dict.fromkeys(
        arm.model for arm in prepared.arms if arm.model is not None and arm.agent is None
    )
    tuned = [name for name in asked if is_tuned(name)]
    if not tuned:
        return {}
    from assay.experiments.finetune_jobs import PLAYED

    known = {
        job.result_model.casefold(): job.lineage.get(PLAYED) or {}
        for job in jobs_of(prepared.config.database)
        if job.result_model is not None
    }
    found = {}
    for model in tuned:
        played = known.get(model[model.casefold().index("ft:") :].casefold(), {})
        kept = {name: played[name] for name in _OPTIONS if played.get(name) is not None}
        if kept:
            found[model] = kept
    return found


def _mismatches(prepared: PreparedRun[RunConfig], taught: Taught) -> Iterator[str]:
    for arm in prepared.arms:
        options = arm_options(prepared.config, arm)
        wanted = taught.get(arm.model or "", {})
        other = {name: v for name, v in wanted.items() if getattr(options, name) != v}
        if other:
            played = {name: getattr(options, name) for name in other}
            yield (
                f"{arm.label} was taught with {_listed(other)}, and this run plays with"
                f" {_listed(played)}: what it learned may not show"
            )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
