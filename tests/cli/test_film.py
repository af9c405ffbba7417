import numpy as np
import pytest
from numpy.typing import NDArray

from assay.cli.screen import Caption, Film


class Counter:
    """A world that shows only its step count."""

    def __init__(self) -> None:
        self.step = 0
        self.drawn = 0

    def draw(self) -> NDArray[np.uint8]:
        self.drawn += 1
        return np.full((1, 1, 3), self.step, np.uint8)


def steps_kept(length: int, max_frames: int = 10) -> tuple[list[int], int]:
    world = Counter()
    film = Film(world.draw, max_frames)
    for step in range(1, length + 1):
        world.step = step
        film.add_step(step)
    return [int(frame[0, 0, 0]) for frame in film.list_frames()], world.drawn


def test_a_short_episode_keeps_every_frame() -> None:
    assert steps_kept(5)[0] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("length", [10, 11, 50, 99, 160, 255])
def test_a_long_episode_keeps_evenly_spaced_frames_and_the_last(length: int) -> None:
    steps, _ = steps_kept(length)
    assert 5 <= len(steps) <= 11
    assert steps[0] == 0
    assert steps[-1] == length
    assert len(set(np.diff(steps[:-1]).tolist())) == 1


def test_frames_that_are_not_kept_are_not_drawn() -> None:
    assert steps_kept(250)[1] < 50


def test_frame_shows_step_action_and_unlocked_achievement() -> None:
    caption, world = Caption(), np.zeros((200, 200, 3), np.uint8)
    before = caption.draw_below(world)
    caption.update(7, "place_table", ("place_table",))
    unlocked = caption.draw_below(world)
    caption.update(8, "noop", ())
    after = caption.draw_below(world)
    assert before.shape == unlocked.shape == after.shape
    assert before.shape[0] > 200
    assert np.array_equal(after[:200], world)
    line = slice(200 + 15, None)
    assert not np.array_equal(before[line], unlocked[line])
    assert np.array_equal(unlocked[line], after[line])
    assert caption.draw_below(world[:, :64]).shape == (200, 64, 3)
