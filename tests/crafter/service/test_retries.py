"""Which requests are retried after a lost response."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from assay.crafter.service.http_client import HttpClient, RequestRetries
from assay.errors import ServiceError

QUICK = RequestRetries(attempts=3, first_wait=0.01)


def test_unreachable_service_error_names_the_address() -> None:
    async def body() -> None:
        async with HttpClient("http://127.0.0.1:1", retries=QUICK) as client:
            for call in (client.initialize(1), client.step("x", 0), client.health()):
                with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1 \(3 attempts\)"):
                    await call

    asyncio.run(body())


class Flaky:
    """Proxy that drops the first response to every request."""

    def __init__(self, target: str, lost: str) -> None:
        self._target, self._lost = target, lost
        self.bodies: list[bytes] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        first = body not in self.bodies
        self.bodies.append(body)
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, self._target + request.path_qs, data=body or None
            ) as answer,
        ):
            data = await answer.read()
        if first and request.path.endswith(self._lost):
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status, body=data)


@asynccontextmanager
async def listening(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def flaky(target: str, lost: str) -> AsyncIterator[tuple[str, Flaky]]:
    proxy = Flaky(target, lost)
    async with listening(proxy.handle) as address:
        yield address, proxy


def test_step_with_a_lost_response_is_retried_and_played_once(address: str) -> None:
    async def body() -> None:
        async with (
            flaky(address, "/step") as (through, proxy),
            HttpClient(through, retries=QUICK) as client,
        ):
            env_id = (await client.initialize(1)).env_id
            for count in range(1, 4):
                reply = await client.step(env_id, "noop")
                assert reply.observation.num_steps_taken == count
            assert len(proxy.bodies) == 1 + 2 * 3

    asyncio.run(body())


def test_lost_terminate_counts_as_done_and_lost_checkpoint_is_retried(address: str) -> None:
    async def body() -> None:
        for lost in ("/terminate", "/checkpoint"):
            async with (
                flaky(address, lost) as (through, _),
                HttpClient(through, retries=QUICK) as client,
            ):
                env_id = (await client.initialize(1)).env_id
                assert (await client.checkpoint(env_id)).snapshot
                await client.terminate(env_id)

    asyncio.run(body())


def test_a_lost_initialize_is_not_repeated(address: str) -> None:
    async def body() -> None:
        async with (
            flaky(address, "/initialize") as (through, proxy),
            HttpClient(through, retries=QUICK) as client,
        ):
            with pytest.raises(ServiceError):
                await client.initialize(1)
            assert len(proxy.bodies) == 1

    asyncio.run(body())


class Busy:
    """A service that is busy for the first requests."""

    def __init__(self, refused: int) -> None:
        self.left = refused

    async def handle(self, request: web.Request) -> web.Response:
        self.left -= 1
        if self.left >= 0:
            return web.Response(status=503, text="Service Unavailable")
        return web.json_response({"status": "ok", "supported_environments": []})


def test_busy_service_is_retried() -> None:
    async def body(refused: int) -> str:
        async with (
            listening(Busy(refused).handle) as address,
            HttpClient(address, retries=QUICK) as client,
        ):
            return (await client.health()).status

    assert asyncio.run(body(2)) == "ok"
    with pytest.raises(ServiceError, match="503"):
        asyncio.run(body(3))


def test_response_of_another_service_is_an_error() -> None:
    async def nonsense(request: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    async def body() -> None:
        async with listening(nonsense) as address, HttpClient(address) as client:
            with pytest.raises(ServiceError, match="not an assay service"):
                await client.health()

    asyncio.run(body())


def test_retry_delays_grow_with_jitter_up_to_a_limit() -> None:
    retries, jitter = RequestRetries(first_wait=0.1, longest_wait=1.0), random.Random(0)
    waits = [retries.wait(attempt, jitter) for attempt in range(10)]
    most = [min(1.0, 0.1 * 2**attempt) for attempt in range(10)]
    assert all(top / 2 <= wait <= top for wait, top in zip(waits, most, strict=True))
    assert len(set(waits)) == 10
