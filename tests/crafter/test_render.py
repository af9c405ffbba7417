"""Images of `assay.crafter.render` compared with the installed `crafter` 1.8.3."""

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crafter
import numpy as np
import pytest
from crafter import objects
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from assay.crafter.render import _fade, render, save_gif
from assay.crafter.rules import AREA, ITEMS, MATERIALS, MAX_ITEM, OBJECTS, VIEW
from assay.crafter.view import View
from assay.errors import UsageError
from tests.support import run_python

Size = int | tuple[int, int]

SIZES = [64, (64, 64), 99, (200, 150), 18, (19, 47), 600]
DIRECTIONS = [(-1, 0), (1, 0), (0, -1), (0, 1)]
CLASSES = [getattr(objects, name.capitalize()) for name in OBJECTS]


def cell(env: Any, x: int, y: int) -> NDArray[np.int64]:
    """Where in the world a cell of the view is."""
    middle = env._player.pos
    return np.array([middle[0] + x - VIEW[0] // 2, middle[1] + y - VIEW[1] // 2])


def view_of(env: Any) -> View:
    """What the player of a reference env sees, read cell by cell."""
    world, player = env._world, env._player
    materials, things, details = (np.zeros(VIEW, np.uint8) for _ in range(3))
    for x, y in np.ndindex(*VIEW):
        material, thing = world[cell(env, x, y)]
        materials[x, y] = MATERIALS.index(material or "outside")
        if thing:
            things[x, y] = len(MATERIALS) + CLASSES.index(type(thing))
        if isinstance(thing, objects.Player | objects.Arrow):
            details[x, y] = 1 + DIRECTIONS.index(tuple(thing.facing))
        if isinstance(thing, objects.Plant):
            details[x, y] = thing.ripe
    for array in (materials, things, details):
        array.flags.writeable = False
    inventory, daylight = dict(player.inventory), float(world.daylight)
    return View(materials, things, details, inventory, player.sleeping, daylight, env._step)


def expected(env: Any, size: Size) -> NDArray[np.uint8]:
    """Return the reference image at another size."""
    env._size = np.array(size if isinstance(size, tuple) else (size, size))
    picture: NDArray[np.uint8] = env.render()
    return picture


@cache
def started(seed: int) -> bytes:
    env = crafter.Env(seed=seed, size=18)
    env.reset()
    return pickle.dumps(env)


def new_env(seed: int = 0, daylight: float = 1.0) -> Any:
    env = pickle.loads(started(seed))
    env._world.daylight = np.float64(daylight)
    return env


@cache
def plain_view() -> View:
    return view_of(new_env())


def lay_ground(env: Any, first: int = 0) -> None:
    """Put all materials in sight, in turn."""
    for number, (x, y) in enumerate(np.ndindex(*VIEW), first):
        env._world[cell(env, x, y)] = MATERIALS[1 + number % (len(MATERIALS) - 1)]


def crowded_env(daylight: float = 1.0) -> Any:
    """The player amid every material and everything that can stand on one."""
    env = new_env(daylight=daylight)
    world, player = env._world, env._player
    for thing in world.objects:
        if thing is not player:
            world.remove(thing)
    lay_ground(env)
    ripe = objects.Plant(world, cell(env, 0, 0))
    ripe.grown = 301
    world.add(ripe)
    world.add(objects.Plant(world, cell(env, 8, 6)))
    world.add(objects.Cow(world, cell(env, 0, 6)))
    world.add(objects.Cow(world, cell(env, 1, 3)))
    world.add(objects.Zombie(world, cell(env, 8, 0), player))
    world.add(objects.Zombie(world, cell(env, 2, 2), player))
    world.add(objects.Skeleton(world, cell(env, 6, 4), player))
    for x, facing in enumerate(DIRECTIONS, 2):
        world.add(objects.Arrow(world, cell(env, x, 0), np.array(facing)))
        world.add(objects.Arrow(world, cell(env, x, 5), np.array(facing)))
    for number, item in enumerate(ITEMS):
        player.inventory[item] = number % (MAX_ITEM + 1)
    return env


def check(env: Any, *sizes: Size) -> None:
    for size in sizes:
        np.testing.assert_array_equal(render(view_of(env), size), expected(env, size))


@pytest.mark.parametrize(("seed", "start"), [(0, 0), (1, 50), (2, 105)])
def test_rendered_episode_equals_the_reference_at_every_step(seed: int, start: int) -> None:
    env = new_env(seed)
    env._step = start
    actions = np.random.default_rng(seed)
    for _ in range(40):
        env.step(int(actions.integers(17)))
        env._player.health = 9
        assert env._world.daylight >= 0.5
        check(env, 64)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("daylight", [1.0, 0.93, 0.5], ids=["day", "dusk", "almost night"])
def test_every_visible_object_equals_the_reference_at_any_size(
    size: Size, daylight: float
) -> None:
    env = crowded_env(daylight)
    check(env, size)
    env._player.sleeping = True
    check(env, size)


def test_every_sprite_on_every_material_equals_the_reference() -> None:
    env = crowded_env(0.8)
    for shift in range(len(MATERIALS) - 1):
        lay_ground(env, shift)
        env._player.facing = DIRECTIONS[shift % 4]
        check(env, 64)


@pytest.mark.parametrize("facing", DIRECTIONS, ids=["left", "right", "up", "down"])
def test_player_sprite_shows_the_facing_direction(facing: tuple[int, int]) -> None:
    env = new_env()
    env._player.facing = facing
    check(env, 64, 99)


@pytest.mark.parametrize("x", [0, 2, AREA - 1])
@pytest.mark.parametrize("y", [0, 1, AREA - 1])
def test_area_beyond_the_world_edge_is_grey(x: int, y: int) -> None:
    env = new_env(daylight=0.9)
    world = env._world
    thing = world[(x, y)][1]
    if thing:
        world.remove(thing)
    world.move(env._player, (x, y))
    assert (view_of(env).materials == 0).any()
    check(env, 64, (200, 150))


@pytest.mark.parametrize("count", range(MAX_ITEM + 1))
def test_every_item_count_equals_the_reference(count: int) -> None:
    env = new_env()
    for item in ITEMS:
        env._player.inventory[item] = count
    check(env, 64, 99)


def test_item_count_without_a_texture_equals_the_reference() -> None:
    env = new_env()
    env._player.inventory |= {"wood": MAX_ITEM + 1, "coal": -1}
    check(env, 64)


@pytest.mark.parametrize("size", [9, 17, (9, 40), (40, 9)], ids=str)
def test_inventory_overflow_does_not_change_the_rest_of_the_image(size: Size) -> None:
    env = crowded_env(0.7)
    carrying = render(view_of(env), size)
    # The reference cannot draw items this small, so it is asked for a picture without any.
    env._player.inventory = dict.fromkeys(ITEMS, 0)
    np.testing.assert_array_equal(carrying, expected(env, size))
    check(env, size)


@pytest.mark.parametrize("sleeping", [False, True], ids=["awake", "asleep"])
@pytest.mark.parametrize("size", [64, (200, 150), 600], ids=str)
@pytest.mark.parametrize("daylight", [0.0, 0.2, 0.4999], ids=["midnight", "night", "dusk"])
def test_night_image_equals_the_reference_except_for_noise(
    daylight: float, size: Size, sleeping: bool
) -> None:
    env = crowded_env(daylight)
    env._player.sleeping = sleeping
    env._step = 250
    generator = np.random.Generator(np.random.Philox(key=[7, 250]))
    env._world.random = SimpleNamespace(uniform=generator.uniform)
    ours = render(view_of(env), size, noise_seed=7)
    np.testing.assert_array_equal(ours, expected(env, size))


def test_night_noise_depends_only_on_seed_and_step() -> None:
    view = replace(view_of(new_env(daylight=0.1)), step=200)
    first = render(view, noise_seed=3)
    render(replace(view, step=201), noise_seed=3)
    np.testing.assert_array_equal(render(view, noise_seed=3), first)
    assert (render(view, noise_seed=4) != first).any()
    assert (render(replace(view, step=201), noise_seed=3) != first).any()


def test_night_noise_does_not_depend_on_the_world_state() -> None:
    env = new_env(daylight=0.1)
    before = env._world.random.get_state()[1].copy()
    first = render(view_of(env))
    np.testing.assert_array_equal(env._world.random.get_state()[1], before)
    env._world.random.uniform(size=10)
    np.testing.assert_array_equal(render(view_of(env)), first)


def test_noise_shows_only_at_night() -> None:
    view = view_of(new_env(daylight=0.5))
    np.testing.assert_array_equal(render(view, noise_seed=1), render(view, noise_seed=2))


def test_rendering_does_not_modify_the_view() -> None:
    view = view_of(crowded_env(0.3))
    arrays = (view.materials, view.objects, view.details)
    copies = [array.copy() for array in arrays]
    inventory = dict(view.inventory)
    render(view)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert view.inventory == inventory


def test_returned_image_can_be_modified_by_the_caller() -> None:
    view = view_of(new_env())
    first = render(view, (80, 60))
    assert first.shape == (60, 80, 3)
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(render(view, (80, 60)), kept)


def test_colours_fade_as_in_pillow() -> None:
    some = np.arange(0, 256, 4, dtype=np.uint8)
    every = np.arange(256, dtype=np.uint8)
    colours = np.stack(np.meshgrid(every, some, some), axis=-1).reshape(256, -1, 3)
    for share, tint in ((0.4, (0, 16, 64)), (0.0, (0, 0, 16))):
        theirs = np.asarray(ImageEnhance.Color(Image.fromarray(colours)).enhance(share))
        np.testing.assert_array_equal(
            _fade(colours.T, share, tint).T, theirs + np.array(tint, np.uint16)
        )


@pytest.mark.parametrize(
    "size",
    [
        0,
        8,
        -64,
        4097,
        64.0,
        "64",
        None,
        True,
        [64, 64],
        (64,),
        (64, 64, 3),
        (64, 8),
        (True, 64),
    ],
    ids=str,
)
def test_invalid_size_is_named_in_the_error(size: Any) -> None:
    with pytest.raises(UsageError, match="each from 9 to 4096") as caught:
        render(plain_view(), size)
    assert repr(size) in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, None], ids=str)
def test_invalid_noise_seed_is_named_in_the_error(seed: Any) -> None:
    with pytest.raises(UsageError, match="noise_seed"):
        render(plain_view(), noise_seed=seed)


ALONE = """
import sys
import numpy as np
from assay.crafter.render import render
from assay.crafter.rules import ITEMS
from assay.crafter.view import View
from assay.errors import AssayError

none = np.zeros((9, 7), np.uint8)
view = View(none, none, none, dict.fromkeys(ITEMS, 0), False, 1.0, 0)
sys.modules["crafter"] = None  # what Python itself takes for a package that is missing
try:
    render(view)
except AssayError as error:
    assert "pip install crafter" in str(error)
else:
    raise SystemExit("drew without textures")
del sys.modules["crafter"]
render(view)
assert "crafter" not in sys.modules
"""


def test_missing_textures_are_reported_and_found_without_importing_crafter() -> None:
    run_python("-c", ALONE)


def shots(count: int) -> list[NDArray[np.uint8]]:
    """Frames that differ: from picture to picture the light changes."""
    return [render(replace(plain_view(), daylight=1 - 0.1 * n), 36) for n in range(count)]


def test_gif_has_the_requested_speed_and_its_provenance(tmp_path: Path) -> None:
    frames = shots(5)
    path = tmp_path / "new" / "folder" / "game.gif"
    save_gif(frames, path, fps=20, comment="seed 0 · assay " + "x" * 300)
    with Image.open(path) as image:
        assert image.n_frames == 5  # type: ignore[attr-defined]
        assert image.info["comment"].decode() == "seed 0 · assay " + "x" * 300
        for number, frame in enumerate(frames):
            image.seek(number)
            assert image.info["duration"] == 50
            np.testing.assert_array_equal(np.asarray(image.convert("RGB")), frame)


def test_saving_replaces_a_file_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_text("old")
    save_gif(shots(1), path, comment="new")
    assert path.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(OSError, match="taken"):
        save_gif(shots(1), path, comment="")
    assert list(tmp_path.iterdir()) == [path]


def test_invalid_frames_are_rejected(tmp_path: Path) -> None:
    frame = np.zeros((9, 9, 3), np.uint8)
    with pytest.raises(UsageError, match="no frames"):
        save_gif([], tmp_path / "x", comment="")
    for odd in (frame[:5], frame[..., 0], frame.astype(float)):
        with pytest.raises(UsageError, match="frame 1 is"):
            save_gif([frame, odd], tmp_path / "x", comment="")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fps", [0, 51])
def test_unsupported_frame_rate_is_rejected(fps: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="from 1 to 50"):
        save_gif(shots(1), tmp_path / "x", fps=fps, comment="")
