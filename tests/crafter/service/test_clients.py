"""Both clients have the same calls, results and exceptions."""

import asyncio
import pickle
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from assay.crafter import DIFFICULTIES, World
from assay.crafter.service.app import ServiceSettings, running
from assay.crafter.service.client import LocalClient, WorldClient
from assay.crafter.service.http_client import HttpClient
from assay.crafter.service.requests import INCLUDES, MAX_CALLS
from assay.crafter.service.worlds import Worlds
from assay.errors import (
    AccessDenied,
    AssayError,
    EpisodeOver,
    InstanceLimit,
    InvalidField,
    RequestTooLarge,
    SnapshotError,
    UnknownInstance,
)

Body = Callable[[WorldClient], Awaitable[None]]


def play(address: str | None, body: Body) -> None:
    """Run a body with one client: over HTTP or in process."""

    async def run() -> None:
        client: WorldClient = LocalClient() if address is None else HttpClient(address)
        async with client:
            await body(client)

    asyncio.run(run())


@pytest.fixture(params=["in process", "http"])
def where(request: pytest.FixtureRequest, address: str) -> str | None:
    return address if request.param == "http" else None


def test_client_episode_equals_the_local_world(where: str | None) -> None:
    async def body(client: WorldClient) -> None:
        started = await client.initialize(3, "easy", 40)
        world = World(3, "easy", 40)
        assert started.info.digest == f"{world.digest():016x}"
        rng, done = random.Random(0), False
        while not done:
            actions = [rng.randrange(17) for _ in range(3)]
            reply = await client.step(started.env_id, *actions)
            results = []
            for action in actions:
                results.append(world.step(action))
                if world.done:
                    break
            done = reply.done
            assert reply.info.rewards == [result.reward for result in results]
            assert reply.info.digests[-1] == f"{world.digest():016x}"
            view = reply.observation.as_view()
            assert (view.materials == world.view().materials).all()
            assert view.inventory == world.inventory
        assert world.done
        assert reply.info.skipped == 2
        await client.terminate(started.env_id)

    play(where, body)


def test_sync_and_async_clients_give_equal_results(address: str) -> None:
    results: list[list[Any]] = []

    async def body(client: WorldClient) -> None:
        started = await client.initialize(4, {"tree_chance": 0.5}, include=INCLUDES)
        first = await client.step(started.env_id, "move_left", 5)
        saved = await client.checkpoint(started.env_id)
        again = await client.restore(saved)
        second = await client.step(again.env_id, 6)
        results.append([started, first, saved, again, second])
        for result in (started, saved, again):
            result.env_id = "any"

    play(None, body)
    play(address, body)
    assert results[0] == results[1]
    assert [type(result) for result in results[0]] == [type(result) for result in results[1]]
    assert results[0][1] != results[0][4]


def test_observations_differ_if_one_visible_cell_differs() -> None:
    async def body(client: WorldClient) -> None:
        one, other = [(await client.initialize(4)).observation for _ in range(2)]
        assert one == other
        assert other.view is not None
        other.view.materials[0, 0] += 1
        assert one != other

    play(None, body)


def test_a_difficulty_can_be_given_as_an_object(where: str | None) -> None:
    async def body(client: WorldClient) -> None:
        started = await client.initialize(1, DIFFICULTIES["hard"])
        assert started.info.difficulty == "hard"

    play(where, body)


def refusals() -> dict[str, tuple[type[AssayError], Callable[[WorldClient], Awaitable[Any]]]]:
    async def over(client: WorldClient) -> Any:
        env_id = (await client.initialize(1, length=1)).env_id
        await client.step(env_id, 0)
        return await client.step(env_id, 0)

    async def bad_snapshot(client: WorldClient) -> Any:
        saved = await client.checkpoint((await client.initialize(1)).env_id)
        saved.snapshot = "QUJD"
        return await client.restore(saved)

    async def gone(client: WorldClient) -> Any:
        env_id = (await client.initialize(1)).env_id
        await client.terminate(env_id)
        await client.terminate(env_id)

    return {
        "action": (InvalidField, lambda client: client.step("x", "eat_cow")),
        "a truth": (InvalidField, lambda client: client.step("x", True)),
        "no id": (InvalidField, lambda client: client.step("", 0)),
        "a long id": (InvalidField, lambda client: client.step("x" * 129, 0)),
        "nobody": (UnknownInstance, lambda client: client.step("x", 0)),
        "no action": (InvalidField, lambda client: client.step("x")),
        "seed": (InvalidField, lambda client: client.initialize(-1)),
        "difficulty": (InvalidField, lambda client: client.initialize(1, "esy")),
        "include": (InvalidField, lambda client: client.initialize(1, include=["x"])),
        "unknown": (UnknownInstance, lambda client: client.checkpoint("x")),
        "too many": (RequestTooLarge, lambda client: client.step("x", *[0] * (MAX_CALLS + 1))),
        "over": (EpisodeOver, over),
        "snapshot": (SnapshotError, bad_snapshot),
        "gone": (UnknownInstance, gone),
    }


@pytest.mark.parametrize("name", refusals())
def test_sync_and_async_clients_raise_equal_exceptions(address: str, name: str) -> None:
    kind, ask = refusals()[name]
    caught: list[AssayError] = []

    async def body(client: WorldClient) -> None:
        with pytest.raises(kind) as error:
            await ask(client)
        caught.append(error.value)

    play(None, body)
    play(address, body)
    one, other = caught
    assert type(one) is type(other)
    if name != "gone":  # which names an id of its own
        assert str(one) == str(other)
    assert str(pickle.loads(pickle.dumps(one))) == str(one)


def test_instance_limit_error_includes_the_retry_time() -> None:
    async def body(client: WorldClient) -> None:
        await client.initialize(1)
        with pytest.raises(InstanceLimit) as error:
            await client.initialize(2)
        assert error.value.retry_after == 50

    with running(ServiceSettings(port=0, max_instances=1, idle_timeout=50)) as service:
        play(service.address, body)
    asyncio.run(_with(LocalClient(Worlds(seed=0, max_instances=1, idle_timeout=50)), body))


async def _with(client: WorldClient, body: Body) -> None:
    async with client:
        await body(client)


def test_client_sends_the_token_and_a_wrong_token_is_rejected() -> None:
    async def body(address: str) -> None:
        async with HttpClient(address, token="right") as client:
            assert (await client.health()).status == "ok"
            await client.initialize(1)
        async with HttpClient(address, token="wrong") as client:
            with pytest.raises(AccessDenied):
                await client.initialize(1)

    with running(ServiceSettings(port=0, token="right")) as service:
        asyncio.run(body(service.address))


def test_many_coroutines_share_one_client(address: str) -> None:
    async def body(client: WorldClient) -> None:
        async def episode(seed: int) -> str:
            env_id = (await client.initialize(seed, include=())).env_id
            for _ in range(5):
                reply = await client.step(env_id, 1, 2)
            return reply.info.digests[-1]

        digests = await asyncio.gather(*(episode(seed) for seed in range(20)))
        for seed, digest in enumerate(digests):
            world = World(seed)
            for action in [1, 2] * 5:
                world.step(action)
            assert digest == f"{world.digest():016x}"

    play(address, body)
