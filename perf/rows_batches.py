"""Many worlds stepped together, against Craftax-Classic on the same cores."""

import atexit
import shutil
import tempfile
import time
from functools import cache, partial
from typing import Final

import numpy as np

from assay.crafter import ACTIONS, Batch

from .games import make_seeds
from .measure import Row, Topic, size
from .processes import PEERS_PYTHON, run_peer_script

__all__ = ["CRAFTAX_SIDES", "OPTIMISTIC", "TOPIC"]

_MANY: Final = size(1_024, 32)
_FEWER: Final = size(256, 8)
_STEPS: Final = 50
"""Without resets: most worlds are still running then."""
_STEPS_WITH_RESETS: Final = size(400, 40)
"""With them: more than two lives of the random policy, so that resets get their share."""
_CRAFTAX_LIMIT: Final = 300
"""Seconds that a process of Craftax may take, compiling included."""


def _step_our_batch(turn: int, *, worlds: int, auto_reset: bool) -> float:
    steps = _STEPS_WITH_RESETS if auto_reset else _STEPS
    batch = Batch(list(make_seeds(turn, worlds)), auto_reset=auto_reset, threads=2)
    shape = (steps, worlds)
    actions = np.random.default_rng(turn + 1).integers(0, len(ACTIONS), shape, dtype=np.uint8)
    carried_out = 0
    running = np.ones(worlds, bool)
    started = time.perf_counter()
    for chosen in actions:
        carried_out += int(running.sum())
        done = batch.step(chosen).done
        if not auto_reset:
            # A world that has ended stands still, and that is not a step.
            running = ~done
    seconds = time.perf_counter() - started
    batch.close()
    return seconds / carried_out


@cache
def _make_compile_cache() -> str:
    """A folder for what JAX compiles, so that only its first process waits for it."""
    folder = tempfile.mkdtemp(prefix="assay-perf-jax-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _step_craftax(turn: int, *, mode: str, worlds: int, steps: int) -> float:
    return run_peer_script(
        "craftax_steps.py",
        f"--mode={mode}",
        f"--worlds={worlds}",
        f"--steps={steps}",
        f"--seed={turn + 1}",
        python=PEERS_PYTHON,
        environment={
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": _make_compile_cache(),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
        timeout=_CRAFTAX_LIMIT,
    )


CRAFTAX_SIDES: Final = ("craftax 1024", "craftax 256 auto-reset", "craftax 256 optimistic")
"""The sides that need the environment of the peers."""

_OURS_AUTO: Final = partial(_step_our_batch, worlds=_FEWER, auto_reset=True)

TOPIC: Final = Topic(
    name="batches",
    unit="step",
    sides={
        "ours 1024": partial(_step_our_batch, worlds=_MANY, auto_reset=False),
        CRAFTAX_SIDES[0]: partial(_step_craftax, mode="none", worlds=_MANY, steps=20),
        "ours 256 auto-reset": _OURS_AUTO,
        CRAFTAX_SIDES[1]: partial(_step_craftax, mode="auto", worlds=_FEWER, steps=1),
        "ours 1024 auto-reset": partial(_step_our_batch, worlds=_MANY, auto_reset=True),
    },
    rows=(
        Row(
            name="batch",
            what="1,024 worlds, no auto-reset",
            ours="ours 1024",
            peer=CRAFTAX_SIDES[0],
            against="Craftax-Classic, same",
            target=40,
        ),
        Row(
            name="batch-reset",
            what="256 worlds, auto-reset",
            ours="ours 256 auto-reset",
            peer=CRAFTAX_SIDES[1],
            against="Craftax-Classic, same",
            target=60,
        ),
        Row(
            name="batch-reset-1024",
            what="1,024 worlds, auto-reset",
            ours="ours 1024 auto-reset",
            peer="ours 256 auto-reset",
            against="ours at 256 (Craftax: see below)",
        ),
    ),
    notes=(
        "Wall time per step of one world on two threads. Craftax-Classic-Symbolic-v1 as "
        "jit(scan(vmap(step))) in a fresh process each round; compiling, making the first "
        "worlds and observations are excluded. Ours: calls of Batch.step from Python with "
        f"rewards and endings, {_STEPS} steps without resets, of which only those of worlds "
        f"still running count, {_STEPS_WITH_RESETS} with them. Not the same games: Craftax "
        "has different generators and worlds.",
        "Craftax with auto-reset at 1,024 worlds is not run here: it did not finish in 330 s.",
    ),
)

OPTIMISTIC: Final = Topic(
    name="optimistic",
    unit="step",
    sides={
        "ours 256 auto-reset": _OURS_AUTO,
        CRAFTAX_SIDES[2]: partial(_step_craftax, mode="optimistic", worlds=_FEWER, steps=10),
    },
    rows=(
        Row(
            name="batch-optimistic",
            what="256 worlds, auto-reset",
            ours="ours 256 auto-reset",
            peer=CRAFTAX_SIDES[2],
            against="Craftax-Classic, 16 resets a step",
        ),
    ),
    notes=(
        "The package's own auto-reset makes a world per world and step. Its authors train "
        "with a wrapper from another repository that makes one for every 16 worlds and "
        "assigns them to the worlds that ended; this row does the same.",
    ),
    rounds_at_most=3,
)
