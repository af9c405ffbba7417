"""Who works in a benchmark: every distinct agent, model and setting is an arm of its own.

So a sweep over a parameter and a comparison of models are never averaged together.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from assay._util.canonical import canonical_json
from assay.runs.arms import Arm

from .coders import installed_agent
from .config import BenchConfig, TaskEntry

__all__ = ["OWN_OVERRIDES", "arm_labels", "arms_of", "overrides_of"]

OWN_OVERRIDES = "overrides.json"
"""The file in the folder of a task that is applied unless it is told otherwise."""


_LONGEST = 40
"""Characters of a setting that a label has."""


class _Who(NamedTuple):
    """What makes an arm."""

    base: str
    """What it is called unless others are called so."""
    settings: str
    """All in which it may differ from them, as canonical JSON."""


def overrides_of(entry: TaskEntry) -> Path | None:
    """The overrides that are applied to a task; None for none."""
    own = Path(entry.prepared_dir) / OWN_OVERRIDES
    if entry.apply_overrides is False:
        return None
    if entry.overrides is not None:
        return Path(entry.overrides)
    return own if own.is_file() else None


def arm_labels(config: BenchConfig) -> tuple[str, ...]:
    """The label of the arm of each task of the file, in their order."""
    whos = [_who(entry) for entry in config.tasks]
    distinct = list(dict.fromkeys(whos))
    bases = Counter(who.base for who in distinct)
    differing = _differing(config, whos)
    names: dict[_Who, str] = {}
    for who in distinct:
        name = who.base if bases[who.base] == 1 else f"{who.base} {differing[who]}".strip()
        names[who] = _free(name, [*names.values()])
    return tuple(names[who] for who in whos)


def _free(name: str, taken: list[str]) -> str:
    """The name, or with a number where another arm has it: arms are never thrown together."""
    numbers = count(2)
    free = name
    while free in taken:
        free = f"{name} ({next(numbers)})"
    return free


def arms_of(config: BenchConfig) -> tuple[Arm, ...]:
    """The arms of a benchmark, in the order in which the file has them."""
    arms: dict[str, Arm] = {}
    for name, entry in zip(arm_labels(config), config.tasks, strict=True):
        settings = _settings(entry)
        arms.setdefault(
            name,
            Arm(
                label=name,
                series=f"{config.name} {name}",
                model=entry.model,
                agent=entry.agent,
                settings=settings,
                version={
                    "agent": entry.agent,
                    **_program_version(entry.agent),
                    "model": entry.model,
                    "settings": settings,
                    "judge": config.judge,
                },
                tags={
                    "benchmark": config.name,
                    "agent": entry.agent,
                    **({"model": entry.model} if entry.model else {}),
                    **({"settings": settings} if settings else {}),
                },
            ),
        )
    return tuple(arms.values())


def _program_version(agent: str) -> dict[str, str]:
    installed = installed_agent(agent)
    return {} if installed is None else {"agent_version": installed.version}


def _who(entry: TaskEntry) -> _Who:
    base = entry.label or (f"{entry.agent}+{entry.model}" if entry.model else entry.agent)
    alike = {"agent": entry.agent, "model": entry.model, **_settings(entry)}
    return _Who(base, canonical_json(alike).decode())


def _settings(entry: TaskEntry) -> dict[str, Any]:
    """What an arm has of its own; a task's own overrides are the task's, not the arm's."""
    settings = entry.own_settings()
    applied = overrides_of(entry)
    if entry.apply_overrides is False:
        settings["overrides"] = "none"
    elif applied is not None and applied != Path(entry.prepared_dir) / OWN_OVERRIDES:
        settings["overrides"] = str(applied)
    if entry.environment_variables:
        settings["environment"] = dict(entry.environment_variables)
        if "TIMEOUT_SEC" in entry.environment_variables:
            settings.pop("timeout", None)  # the variable says it
    return settings


def _differing(config: BenchConfig, whos: list[_Who]) -> Mapping[_Who, str]:
    """For each arm, in words, the settings that not all arms of its base share."""
    flat = {who: _flat(entry) for who, entry in zip(whos, config.tasks, strict=True)}
    told = {}
    for who, settings in flat.items():
        others = [flat[other] for other in flat if other.base == who.base]
        names = sorted({name for each in others for name in each})
        apart = [name for name in names if len({str(each.get(name)) for each in others}) > 1]
        told[who] = " ".join(
            f"{name}={_brief(settings[name])}" for name in apart if name in settings
        )
    return told


def _flat(entry: TaskEntry) -> dict[str, Any]:
    settings = _settings(entry)
    flat = {name: value for name, value in settings.items() if name != "environment"}
    who = {"agent": entry.agent, **({"model": entry.model} if entry.model else {})}
    return who | flat | dict(settings.get("environment", {}))


def _brief(value: Any) -> str:
    """A value in a label: one line, and not a long one."""
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
