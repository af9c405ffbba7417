"""The rules as data agree with the data file of the installed reference."""

import crafter.constants as reference
import crafter.objects

from assay.crafter import rules


def test_names_and_order_equal_the_reference() -> None:
    assert list(rules.ACTIONS) == reference.actions
    assert list(rules.MATERIALS[1:]) == reference.materials
    assert list(rules.ITEMS) == list(reference.items)
    assert list(rules.ACHIEVEMENTS) == reference.achievements
    assert sorted(rules.WALKABLE) == sorted(reference.walkable)


def test_item_ranges_equal_the_reference() -> None:
    for name, info in reference.items.items():
        assert info["max"] == rules.MAX_ITEM
        assert info["initial"] == (rules.MAX_ITEM if name in rules.VITALS else 0)


def test_recipes_equal_the_reference() -> None:
    assert {
        name: {
            "require": {rule.tool: 1} if rule.tool else {},
            "receive": {rule.item: 1},
            "leaves": rule.leaves,
            "probability": rule.chance,
        }
        for name, rule in rules.COLLECT.items()
    } == {name: {"probability": 1.0} | info for name, info in reference.collect.items()}
    assert {
        name: {
            "uses": dict(rule.uses),
            "where": list(rule.where),
            "type": "object" if name == "plant" else "material",
        }
        for name, rule in rules.PLACE.items()
    } == reference.place
    assert {
        name: {"uses": dict(rule.uses), "nearby": list(rule.nearby), "gives": 1}
        for name, rule in rules.MAKE.items()
    } == reference.make


def test_creature_strength_equals_the_reference() -> None:
    import numpy as np

    world = crafter.engine.World((64, 64), reference.materials, (12, 12))
    kinds = {
        "cow": crafter.objects.Cow(world, (0, 0)),
        "zombie": crafter.objects.Zombie(world, (0, 0), None),
        "skeleton": crafter.objects.Skeleton(world, (0, 0), None),
    }
    assert {name: thing.health for name, thing in kinds.items()} == {
        name: creature.health for name, creature in rules.CREATURES.items()
    }
    plant = crafter.objects.Plant(world, (0, 0))
    plant.grown = rules.RIPE_AFTER
    assert not plant.ripe
    plant.grown += 1
    assert plant.ripe
    assert np.array(rules.VIEW).tolist() == [9, 7]
