"""Films draw the same pixels as `render`, and the map agrees with the view."""

import numpy as np
from numpy.typing import NDArray

from assay.crafter.film import (
    DEAD,
    FRAME,
    SPRITE_NAMES,
    TILES,
    Camera,
    Sheet,
    film_frame,
    map_tiles,
    sheet,
)
from assay.crafter.players.policies import make_policy
from assay.crafter.render import NIGHT
from assay.crafter.rules import ITEMS, MATERIALS
from assay.crafter.world import World

UNIT = 16


def drawn(frame: NDArray[np.uint8], daylight: float, tiles: Sheet) -> NDArray[np.uint8]:
    """Draw a frame as a page does: tiles lit by the formula of the contract, then items."""
    cells = frame[:63].reshape(7, 9)
    lit = tiles.day[cells] * daylight
    lit = lit + (tiles.faded[cells] + np.array(NIGHT, float)) * ((1 - daylight) / 2)
    scene = lit.astype(np.uint8).transpose(0, 2, 1, 3, 4).reshape(7 * UNIT, 9 * UNIT, 3)
    panel = np.zeros((2, 9, UNIT, UNIT, 3), np.uint8)
    for item, count in enumerate(frame[63:79]):
        if count:
            panel[divmod(item, 9)] = tiles.items[item * 9 + count - 1]
    return np.concatenate([scene, panel.transpose(0, 2, 1, 3, 4).reshape(2 * UNIT, -1, 3)])


def test_a_frame_has_all_that_is_needed_to_draw_the_exact_picture() -> None:
    tiles, compared = sheet(UNIT), 0
    for seed in (1, 7):
        world, policy = World(seed), make_policy("expert", seed)
        for _ in range(300):
            if world.daylight >= 0.5 and not world.sleeping:
                picture = drawn(film_frame(world), world.daylight, tiles)
                assert np.array_equal(picture, world.render(9 * UNIT))
                compared += 1
            world.step(policy.act(world.view()))
    assert compared > 200


def test_a_camera_takes_the_frame_of_every_step_and_the_player_s_position() -> None:
    world, policy = World(3), make_policy("random", 3)
    camera, places = Camera(world, 101), [world.player_pos]
    camera.take()
    for _ in range(100):
        world.step(policy.act(world.view()))
        camera.take()
        places.append(world.player_pos)
    frames = camera.frames()
    assert frames.shape == (101, FRAME)
    assert [tuple(frame[-2:]) for frame in frames] == places
    assert frames[-1].tolist() == film_frame(world).tolist()
    assert frames[-1][63:79].tolist() == [world.inventory[item] for item in ITEMS]


def test_the_whole_map_agrees_with_what_the_player_sees() -> None:
    world, policy = World(5), make_policy("expert", 5)
    for _ in range(200):
        world.step(policy.act(world.view()))
        whole = np.zeros((64 + 8, 64 + 6), np.uint8)
        whole[4:-4, 3:-3] = map_tiles(world).reshape(64, 64).T
        x, y = world.player_pos
        seen = whole[x : x + 9, y : y + 7].T
        assert seen.ravel().tolist() == film_frame(world)[:63].tolist()


def test_a_dead_player_is_flagged() -> None:
    world = World(0, length=10_000)
    while not world.done:
        world.step("noop")
    assert film_frame(world)[79] & DEAD


def test_tiles_are_numbered_materials_first() -> None:
    tiles = sheet(UNIT)
    assert len(tiles.day) == len(tiles.faded) == TILES
    assert TILES == len(MATERIALS) * (1 + len(SPRITE_NAMES)) < 256
    assert len(tiles.items) == len(ITEMS) * 9


def test_a_fork_with_another_chance_starts_equal_and_goes_another_way() -> None:
    world = World(3)
    for _ in range(20):
        world.step("noop")
    before = world.snapshot()
    views = [film_frame(world.fork(random_seed=seed)).tolist() for seed in (0, 1)]
    assert views == [film_frame(world).tolist()] * 2
    ends = []
    for seed in (0, 0, 1):
        fork = world.fork(random_seed=seed)
        for _ in range(30):
            fork.step("noop")
        ends.append(fork.digest())
    assert ends[0] == ends[1] != ends[2]
    assert world.snapshot() == before
