import pytest

from assay.crafter import World
from assay.crafter.players.episode import PolicyEpisode
from assay.crafter.players.policies import NoopPolicy, RandomPolicy
from assay.errors import UsageError


def test_episode_continues_until_the_world_is_done() -> None:
    world = World(0)
    episode = PolicyEpisode(world, RandomPolicy(0))
    moments = list(episode)
    assert world.done
    assert [moment.step for moment in moments] == list(range(1, world.steps + 1))
    assert episode.ended == moments[-1].result.ended == "died"


def test_episode_sums_rewards_and_records_achievement_steps() -> None:
    world = World(0)
    episode = PolicyEpisode(world, RandomPolicy(0))
    rewards = [moment.result.reward for moment in episode]
    assert episode.reward == pytest.approx(sum(rewards))
    assert set(episode.unlocked) == {name for name, n in world.achievements.items() if n}
    assert list(episode.unlocked.values()) == sorted(episode.unlocked.values())


def test_episode_stops_at_its_step_limit() -> None:
    world = World(0)
    episode = PolicyEpisode(world, NoopPolicy(), max_steps=7)
    assert len(list(episode)) == 7
    assert (world.steps, world.done, episode.ended) == (7, False, "max_steps")


def test_interrupted_episode_can_be_continued() -> None:
    whole = PolicyEpisode(World(3), RandomPolicy(3), max_steps=40)
    parts = PolicyEpisode(World(3), RandomPolicy(3), max_steps=40)
    all_at_once = [moment.action for moment in whole]
    in_two = []
    for moment in parts:
        in_two.append(moment.action)
        if moment.step == 15:
            break
    in_two += [moment.action for moment in parts]
    assert in_two == all_at_once
    assert parts.world.digest() == whole.world.digest()


@pytest.mark.parametrize("max_steps", [0, -1])
def test_step_limit_of_zero_is_rejected(max_steps: int) -> None:
    with pytest.raises(UsageError, match="max_steps"):
        PolicyEpisode(World(0), NoopPolicy(), max_steps)
