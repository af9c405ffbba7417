"""Tokens describe the view of each world, and worlds can be restored."""

import numpy as np

from assay.crafter import ITEMS, MATERIALS, Batch, View, World
from assay.crafter.difficulty import DIFFICULTIES, resolve_difficulty
from assay.training.crafter_worlds import SPACE, CrafterWorlds
from assay.training.curricula import CURRICULA
from assay.training.environments import WorldStart

NAMES = [attribute.name for attribute in SPACE.attributes]
STARTS = [
    WorldStart(task, 7 + at)
    for at, task in enumerate(CURRICULA["crafter"]["terrain_4"][i] for i in (0, 31, 9))
]


def expected(view: View, facing: int) -> list[tuple[str, int, int]]:
    """Return the expected tokens of a view, cell by cell."""
    directions = ("left", "right", "up", "down")
    tokens = []
    for x in range(9):
        for y in range(7):
            thing, detail = int(view.objects[x, y]), int(view.details[x, y])
            name = MATERIALS[view.materials[x, y]]
            if thing == 17:
                name = f"arrow {directions[detail - 1]}"
            elif thing == 18:
                name = "ripe plant" if detail else "sapling"
            elif thing > 13:
                name = ("cow", "zombie", "skeleton")[thing - 14]
            tokens.append((name, 7 * x + y, 0))
    tokens += [(item, 0, view.inventory[item]) for item in ITEMS]
    light = min(7, int(view.daylight * 8))
    return [
        *tokens,
        ("facing", 0, facing),
        ("sleeping", 0, int(view.sleeping)),
        ("daylight", 0, light),
    ]


def worlds_apart() -> list[World]:
    return [World(start.seed, resolve_difficulty(start.task.settings), 500) for start in STARTS]


def test_tokens_match_the_views_of_single_worlds() -> None:
    together, apart = CrafterWorlds(3, 500), worlds_apart()
    together.begin(range(3), STARTS)
    rng = np.random.default_rng(0)
    seen = set()
    ended = 0
    while ended < 3:
        tokens = together.observe()
        for at, world in enumerate(apart):
            decoded = [(NAMES[a - 1], int(p), int(v)) for a, p, v in tokens[at].tolist()]
            facing = ((-1, 0), (1, 0), (0, -1), (0, 1)).index(world.facing)
            # An item's first attribute is its name; "sapling" is seen and owned.
            assert decoded == expected(world.view(), facing)
            seen |= {name for name, _, _ in decoded[:63]}
        actions = rng.integers(0, 17, 3)
        rewards = together.step(actions)
        for at, world in enumerate(apart):
            if not world.done:
                assert rewards[at] == np.float32(world.step(int(actions[at])).reward)
        for episode in together.ended():
            ended += 1
            world = apart[episode.world]
            assert (episode.start, episode.length) == (STARTS[episode.world], world.steps)
            assert episode.reached == tuple(count > 0 for count in world.achievements.values())
    assert {"zombie", "cow", "tree", "water"} <= seen


def test_worlds_that_are_put_back_go_the_same_way() -> None:
    first, second = CrafterWorlds(3, 500), CrafterWorlds(3, 500)
    first.begin(range(3), STARTS)
    rng = np.random.default_rng(1)
    for _ in range(40):
        first.step(rng.integers(0, 17, 3))
    second.restore(first.snapshot())
    for _ in range(60):
        actions = rng.integers(0, 17, 3)
        assert np.array_equal(first.step(actions), second.step(actions))
        assert np.array_equal(first.observe(), second.observe())
        assert first.ended() == second.ended()
    assert first.snapshot() == second.snapshot()


def test_every_token_has_its_own_row() -> None:
    rows = set()
    for at, attribute in enumerate(SPACE.attributes, start=1):
        first, stride = SPACE.row_table[at]
        for place in range(SPACE.places if attribute.placed else 1):
            rows |= {first + stride * place + value for value in range(attribute.values)}
    assert rows == set(range(1, SPACE.rows))


def test_a_batch_starts_worlds_of_any_seed_and_difficulty() -> None:
    batch = Batch([1, 2, 3], "easy", 100)
    batch.step([0, 0, 0])
    batch.begin([2, 0], [50, 60], [DIFFICULTIES["hard"], DIFFICULTIES["classic"]])
    assert batch.world(2).digest() == World(50, "hard", 100).digest()
    assert batch.world(0).digest() == World(60, "classic", 100).digest()
    assert batch.world(1).steps == 1
    assert batch.world(0).difficulty_name == "classic"
