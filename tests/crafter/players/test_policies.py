import numpy as np
import pytest

from assay.crafter import ACTIONS, World
from assay.crafter.players.policies import (
    POLICIES,
    NoopPolicy,
    Policy,
    RandomPolicy,
    make_policy,
)
from assay.errors import UsageError


def draws(policy: Policy, count: int) -> list[int]:
    view = World(0).view()
    return [policy.act(view) for _ in range(count)]


def test_the_noop_policy_does_nothing() -> None:
    assert {ACTIONS[action] for action in draws(NoopPolicy(), 20)} == {"noop"}


def test_the_random_policy_draws_all_actions_equally_often() -> None:
    counts = np.bincount(draws(RandomPolicy(0), 17_000), minlength=17)
    assert counts.shape == (len(ACTIONS),)
    # A count is binomial with a deviation of 31; five of them are a one in a million.
    assert abs(counts - 1000).max() < 155


def test_actions_depend_only_on_the_seed() -> None:
    first = draws(RandomPolicy(5), 100)
    np.random.default_rng(5).integers(17, size=100)
    assert draws(RandomPolicy(5), 100) == first
    assert draws(RandomPolicy(6), 100) != first


def test_random_actions_of_a_seed_are_stable_across_versions() -> None:
    assert draws(RandomPolicy(0), 12) == [14, 10, 8, 4, 5, 0, 1, 0, 2, 13, 11, 15]


@pytest.mark.parametrize("name", POLICIES)
def test_policy_is_created_by_name(name: str) -> None:
    assert 0 <= make_policy(name, 1).act(World(0).view()) < len(ACTIONS)


def test_unknown_policy_error_suggests_the_closest_name() -> None:
    with pytest.raises(UsageError, match=r"'Randm'; did you mean 'random'\?.*noop, random"):
        make_policy("Randm", 0)


def test_unknown_policy_error_without_a_close_name_lists_all() -> None:
    with pytest.raises(UsageError, match=r"'xyz'; choose from: noop, random"):
        make_policy("xyz", 0)


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_seed_must_be_a_nonnegative_integer(seed: int) -> None:
    with pytest.raises(UsageError, match=f"seed {seed}"):
        RandomPolicy(seed)
