"""How to go on: the command that lets two subjects play worlds that nobody has seen.

New trials are judged by themselves. To add them to those that asked for them, and test all of
them again, finds twice as many differences that are not there.
"""

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.judge import Comparison, Contrast
from assay.judge.subjects import Subject

__all__ = ["in_database", "play_new_worlds"]


def play_new_worlds(comparison: Comparison, contrast: Contrast, trials: int) -> str:
    """What to type to play so many new worlds, and to judge them by themselves."""
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
    commands = _commands(pair, first, trials)
    if not commands:
        return (
            f"Play seeds from {first} on, which none of these has played, and compare those"
            f" alone, with {alone}."
        )
    what = " and ".join(f"'{command}'" for command in commands)
    again = (
        f"'{shlex.join(['assay', 'compare', 'latest', *alone.split(), *in_database(pair[0])])}'"
        if len(commands) == 1
        else f"compare the two new experiments with {alone}"
    )
    return f"Play new worlds: {what}; then {again}."


def in_database(subject: Subject) -> list[str]:
    """The option with which a command finds the store of a subject."""
    return [] if subject.database is None else ["--database", subject.database]


class _Player(NamedTuple):
    """An arm without settings of its own."""

    agent: str | None
    model: str | None


def _commands(pair: list[Subject], first: int, trials: int) -> list[str]:
    """One command if both are played alike, else one for each; [] if there is none."""
    options = [_options(subject) for subject in pair]
    players = [_player(subject) for subject in pair]
    if options[0] == options[1] and players[0] != players[1]:
        groups = [(players, options[0])]
    else:
        groups = [([player], own) for player, own in zip(players, options, strict=True)]
    where = ["--seed", str(first), "--episodes", str(trials), "--no-baselines"]
    where += in_database(pair[0])
    commands = []
    for together, own in groups:
        who = _who(together)
        if who is None or own is None:
            return []
        commands.append(shlex.join(["assay", "run", *who, *where, *own]))
    return commands


def _player(subject: Subject) -> _Player | None:
    """Who plays for a subject; None if no option of `assay run` can name it."""
    from assay.rollouts.environments import RANDOM

    agent = None if subject.agent == RANDOM else subject.agent
    model = RANDOM if subject.agent == RANDOM else subject.asked_model
    if agent is None:
        return None if model is None else _Player(None, model)
    return _Player(agent, model) if ".py:" in agent else None


def _who(players: Sequence[_Player | None]) -> list[str] | None:
    """The options that let exactly these play; None if there are none."""
    known = [player for player in players if player is not None]
    models = [*dict.fromkeys(player.model for player in known if player.model)]
    agents = [*dict.fromkeys(player.agent for player in known if player.agent)]
    # Each model plays by itself too, and each agent that asks plays with every model.
    asking = {player.agent for player in known if player.agent and player.model}
    played = [
        *(_Player(None, model) for model in models),
        *(_Player(agent, None) for agent in agents if agent not in asking),
        *(_Player(agent, model) for agent in asking for model in models),
    ]
    if len(known) < len(players) or {*played} != {*known}:
        return None
    return [
        *(["--models", *models] if models else []),
        *(["--agents", *agents] if agents else []),
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
        if name == "environment" and "@" in str(kept):  # a class that a program had given
            return None
        found += [setting.option, str(kept)]
    return found
