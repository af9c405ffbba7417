"""The state of an instance as clients of this service read it."""

from assay.crafter import Ended

from .instances import Instance
from .results import LocalView, WorldObservation

__all__ = ["observe"]


def observe(instance: Instance) -> WorldObservation:
    """What the world of an instance is like now."""
    world, include = instance.world, instance.include
    ended = world.ended
    view = world.view() if "view" in include else None
    return WorldObservation(
        inventory=world.inventory if view is None else view.inventory,
        achievements_status={name: count > 0 for name, count in world.achievements.items()},
        player_position=world.player_pos,
        player_direction=world.facing,
        semantic_map=world.semantic() if "semantic_map" in include else None,
        world_material_map=world.materials() if "world_material_map" in include else None,
        observation_image=world.render() if "observation_image" in include else None,
        view=None
        if view is None
        else LocalView(
            view.materials, view.objects, view.details, view.sleeping, view.daylight
        ),
        num_steps_taken=world.steps,
        max_steps_episode=world.length,
        error_info=None,
        reward_last_step=instance.last_reward,
        total_reward_episode=instance.total_reward,
        terminated=ended is Ended.DIED,
        truncated=world.done and ended is not Ended.DIED,
    )
