"""Training by PPO in our worlds, beside the same PPO in those of the PyPI package; launches."""

from functools import cache, partial
from typing import Final

from .measure import Row, Topic
from .processes import LOCAL_PYTHON, PeerFailed, run_module

__all__ = ["ENVIRONMENT", "LAUNCH", "TOPIC", "TRAINING_SIDES"]

TRAINING_SIDES: Final = (
    "our training",
    "package training",
    "one run at a time",
    "two runs at a time",
)
_UPDATES: Final = "3"
_SAME: Final = 1e-6


@cache
def _measure_side(side: str, turn: int) -> dict[str, float]:
    return run_module(
        "perf.sides.training",
        side,
        _UPDATES,
        python=LOCAL_PYTHON,
        environment={"OMP_NUM_THREADS": "1"},
        timeout=1800,
    )


def _measure_if_agreed(side: str, turn: int, what: str) -> float:
    """Return a value of one side, if both sides trained on the same episodes."""
    told, other = _measure_side(side, turn), _measure_side("ours", turn)
    if abs(told["value_loss"] - other["value_loss"]) > _SAME * other["value_loss"]:
        raise PeerFailed(
            f"the losses differ, so it is not the same work: {told['value_loss']} and "
            f"{other['value_loss']}"
        )
    return told[what]


TOPIC: Final = Topic(
    name="training",
    unit="step",
    sides={
        "our training": lambda turn: _measure_if_agreed("ours", turn, "seconds"),
        "package training": lambda turn: _measure_if_agreed("package", turn, "seconds"),
    },
    rows=(
        Row(
            name="training",
            what="training step of mlp with PPO, in total",
            ours="our training",
            peer="package training",
            against="the same PPO in worlds of crafter 1.8.3, drawing off",
            target=3,
        ),
    ),
    notes=(
        "Processor time of a step in updates after the first: 64 worlds, rollouts of 64 steps, "
        "3 epochs, one thread and one process on both sides. Both play the same games, so that "
        "their losses must agree. What is left is the model and the optimiser, which both "
        "share: `python -m perf.sides.training ours 6` prints the shares.",
    ),
    rounds_at_most=3,
    warmup=False,
)

ENVIRONMENT: Final = Topic(
    name="training-worlds",
    unit="step",
    sides={
        "our training": lambda turn: _measure_if_agreed("ours", turn, "environment"),
        "package training": lambda turn: _measure_if_agreed("package", turn, "environment"),
    },
    rows=(
        Row(
            name="training-worlds",
            what="the environment's part of that step: worlds, tokens, resets",
            ours="our training",
            peer="package training",
            against="the same tokens of crafter 1.8.3, drawing off",
            target=20,
        ),
    ),
    notes=("Of the same runs as `training`.",),
    rounds_at_most=3,
    warmup=False,
)


def _time_seed(parallel: int, turn: int) -> float:
    return run_module(
        "perf.sides.launches",
        "--parallel",
        str(parallel),
        python=LOCAL_PYTHON,
        environment={"OMP_NUM_THREADS": "1"},
        timeout=1800,
    )["seconds"]


LAUNCH: Final = Topic(
    name="launch",
    unit="seed",
    sides={
        "one run at a time": partial(_time_seed, 1),
        "two runs at a time": partial(_time_seed, 2),
    },
    rows=(
        Row(
            name="launch",
            what="a seed of `assay launch`, vit_reset, two at a time",
            ours="two runs at a time",
            peer="one run at a time",
            against="the same, one at a time",
        ),
    ),
    notes=("launch: 8 seeds of 12,288 steps minus 2, to exclude the start of workers",),
    rounds_at_most=3,
    warmup=False,
)
