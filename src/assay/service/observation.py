"""The state of an instance as the keys that clients of this service read."""

from typing import Any

from assay.crafter import ACHIEVEMENTS, Ended, World

from .instances import Instance

__all__ = ["observe"]


def observe(instance: Instance) -> dict[str, Any]:
    """What `results.Observation` declares, ready to be written as JSON."""
    world, include = instance.world, instance.include
    ended, done = world.ended, world.done
    counts = world.achievements
    return {
        "inventory": world.inventory,
        "achievements_status": {name: counts[name] > 0 for name in ACHIEVEMENTS},
        "player_position": world.player_pos,
        "player_direction": world.facing,
        "semantic_map": world.semantic().tolist() if "semantic_map" in include else None,
        "world_material_map": world.materials().tolist()
        if "world_material_map" in include
        else None,
        "observation_image": world.render().tolist()
        if "observation_image" in include
        else None,
        "view": _view(world) if "view" in include else None,
        "num_steps_taken": world.steps,
        "max_steps_episode": world.length,
        "error_info": None,
        "reward_last_step": instance.last_reward,
        "total_reward_episode": instance.total_reward,
        "terminated": ended is Ended.DIED,
        "truncated": done and ended is not Ended.DIED,
    }


def _view(world: World) -> dict[str, Any]:
    view = world.view()
    return {
        "materials": view.materials.tolist(),
        "objects": view.objects.tolist(),
        "details": view.details.tolist(),
        "sleeping": view.sleeping,
        "daylight": view.daylight,
    }
