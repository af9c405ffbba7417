"""How to go on: the command that lets two subjects play worlds that nobody has seen.

New trials are judged by themselves. To add them to those that asked for them, and test all of
them again, finds twice as many differences that are not there.
"""

import shlex
from typing import Any

from assay.experiments.subjects import Subject
from assay.judge import Comparison, Contrast

__all__ = ["play_new_worlds"]


def play_new_worlds(comparison: Comparison, contrast: Contrast, trials: int) -> str:
    """What to type to play so many new worlds, and to judge them by themselves."""
    pair = [comparison.of(side).subject for side in (contrast.baseline, contrast.candidate)]
    seeds = [
        trial.seed
        for facts in comparison.subjects
        for trial in facts.subject.trials
        if trial.seed is not None
    ]
    if not seeds:
        return (
            "Play new trials, and judge them by themselves: added to these they would be tested"
            " twice."
        )
    first = max(seeds) + 1
    judged = f"--seeds {first}-{first + trials - 1} judges these alone"
    commands = _commands(pair, first, trials)
    if not commands:
        return (
            f"Take seeds from {first} on, which nobody has played, and leave the old trials"
            f" out: assay compare with {judged}."
        )
    what = " and ".join(f"'{command}'" for command in commands)
    again = (
        "'assay compare latest'"
        if len(commands) == 1
        else "compare the two new experiments with each other"
    )
    return f"Play worlds nobody has seen: {what}, then {again}; {judged}."


def _commands(pair: list[Subject], first: int, trials: int) -> list[str]:
    """One command if both play alike but for the model, else one for each; [] if not known."""
    options = [_options(subject) for subject in pair]
    models = [subject.model for subject in pair]
    if None in options or None in models:
        return []
    where = ["--seed", str(first), "--episodes", str(trials), "--no-baselines"]
    if options[0] == options[1] and models[0] != models[1]:
        groups = [(models, options[0])]
    else:
        groups = [([model], own) for model, own in zip(models, options, strict=True)]
    return [
        shlex.join(["assay", "run", "--models", *map(str, names), *where, *(own or ())])
        for names, own in groups
    ]


def _options(subject: Subject) -> list[str] | None:
    """The options that a stored configuration stands for; None if a file would be needed."""
    from assay._util.settings import Counts, written
    from assay.crafter.difficulty import DIFFICULTIES
    from assay.rollouts.config import SETTINGS

    if "max_turns" not in subject.facts:
        return None
    found: list[str] = []
    for name, setting in SETTINGS.items():
        holder: Any = subject.facts.get(setting.section) if setting.section else subject.facts
        kept = (holder or {}).get(name, setting.default)
        if setting.counts is not Counts.VERSION:
            continue
        if name == "difficulty" and kept != setting.default:
            named = (label for label, one in DIFFICULTIES.items() if kept == written(one))
            kept = next(named, None)
        if kept == setting.default:
            continue
        if not isinstance(kept, (str, int, float)) or setting.given is not None:
            return None
        found += [setting.option, str(kept)]
    return found
