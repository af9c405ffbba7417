"""Entry points of the compiled engine: reset a world, step it, step many.

A step returns its whole result as one integer, because returning more to Python would cost more
than the step itself.
"""

from typing import Final

from assay.crafter.engine.balance import balance
from assay.crafter.engine.creatures import update
from assay.crafter.engine.grid import close_holes
from assay.crafter.engine.jit import entry, kernel, threaded_entry
from assay.crafter.engine.layout import (
    BLOCK,
    CAPACITY,
    DIED,
    EPISODE,
    FIELDS,
    HOLES,
    INVENTORY,
    KIND,
    LENGTH,
    NEW,
    PAID_HEALTH,
    RUNNING,
    SEED,
    STATUS,
    STEP,
    TIME_UP,
    USED,
    State,
    X,
    Y,
    float64_at,
    int64_at,
    state,
    uint8_at,
    uint32_at,
)
from assay.crafter.engine.player import act
from assay.crafter.engine.worldgen import generate
from assay.crafter.rules import ITEMS

_HEALTH: Final = INVENTORY + ITEMS.index("health")
_REACH: Final = 18
"""Things at this distance from the player or farther do not act."""

# A step result as an integer: health gained + 16, the status of the world, the reason why the
# action had no effect, and one bit per achievement unlocked for the first time.
STATUS_SHIFT: Final = 8
REASON_SHIFT: Final = 12
UNLOCKED_SHIFT: Final = 16
REFUSED: Final = -1
"""Result of stepping a world that has already ended."""


@kernel
def advance(s: State, action: int) -> int:
    """Make one step in a running world."""
    now = s.scalars[STEP] + 1
    s.scalars[STEP] = now
    if s.scalars[HOLES] > 8 or s.scalars[USED] > CAPACITY - 256:
        close_holes(s)
    used = s.scalars[USED]  # things added during this step act from the next one
    reason = act(s, action)
    x, y = s.things[X], s.things[Y]
    for slot in range(1, used):
        base = slot * FIELDS
        kind = s.things[base + KIND]
        if kind and abs(s.things[base + X] - x) + abs(s.things[base + Y] - y) < _REACH:
            update(s, slot, kind)
    if now % 10 == 0:
        balance(s)
    unlocked = s.scalars[NEW]
    s.scalars[NEW] = 0
    health = s.scalars[_HEALTH]
    gained = health - s.scalars[PAID_HEALTH]
    s.scalars[PAID_HEALTH] = health
    if s.scalars[STATUS] == RUNNING:
        if health <= 0:
            s.scalars[STATUS] = DIED
        elif now >= s.scalars[LENGTH]:
            s.scalars[STATUS] = TIME_UP
    code = gained + 16 | s.scalars[STATUS] << STATUS_SHIFT
    return code | reason << REASON_SHIFT | unlocked << UNLOCKED_SHIFT


@entry
def reset(address: int, geometry: int, seed: int, episode: int) -> None:
    """Generate the world of (seed, episode) in the block at `address`."""
    generate(state(address), geometry, seed, episode)


@entry
def step(address: int, action: int) -> int:
    """Make one step, or return REFUSED if the world has ended."""
    s = state(address)
    if s.scalars[STATUS] != RUNNING:
        return REFUSED
    return advance(s, action)


@threaded_entry
def step_many(
    blocks: int,
    first: int,
    last: int,
    actions: int,
    rewards: int,
    outcomes: int,
    unlocked: int,
) -> None:
    """Step the worlds `first` to `last` of an array of blocks; ended worlds do not change.

    `outcomes` receives three bytes per world: whether the action was carried out, the status of
    the world, and the reason why the action had no effect.
    """
    action = uint8_at(actions, last)
    reward = float64_at(rewards, last)
    outcome = uint8_at(outcomes, 3 * last)
    new = uint32_at(unlocked, last)
    for i in range(first, last):
        s = state(blocks + i * BLOCK)
        running = s.scalars[STATUS] == RUNNING
        code = advance(s, action[i]) if running else 16 | s.scalars[STATUS] << STATUS_SHIFT
        gained = (code & 31) - 16
        new[i] = code >> UNLOCKED_SHIFT
        reward[i] = gained / 10 + (1.0 if new[i] else 0.0)
        outcome[3 * i] = running
        outcome[3 * i + 1] = code >> STATUS_SHIFT & 15
        outcome[3 * i + 2] = code >> REASON_SHIFT & 15


@threaded_entry
def renew_many(blocks: int, which: int, first: int, last: int, geometry: int) -> None:
    """Generate the next episode of the worlds listed in `which` from `first` to `last`."""
    chosen = int64_at(which, last)
    for i in range(first, last):
        s = state(blocks + chosen[i] * BLOCK)
        generate(s, geometry, s.scalars[SEED], s.scalars[EPISODE] + 1)
