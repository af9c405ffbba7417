"""A view can be reconstructed from its observation."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from assay.crafter import World
from assay.crafter.text.observation import Observation, as_view, observe

from .test_text import observations


@settings(max_examples=60)
@given(observations())
def test_view_made_from_an_observation_gives_the_same_observation(told: Observation) -> None:
    bare = replace(told, action=None, achieved=(), no_effect=None)
    assert observe(as_view(told)) == bare


def test_only_the_daylight_of_a_view_is_rounded() -> None:
    world = World(5)
    for step in range(200):
        view = world.view()
        again = as_view(observe(view))
        for plane in ("materials", "objects", "details"):
            assert np.array_equal(getattr(again, plane), getattr(view, plane))
            assert getattr(again, plane).dtype == np.uint8
        assert (again.inventory, again.sleeping, again.step) == (
            view.inventory,
            view.sleeping,
            view.step,
        )
        assert abs(again.daylight - view.daylight) <= 0.005
        world.step(step % 6)
        if world.done:
            break
