"""A chat model that answers at once, over HTTP: prints its address as JSON, and serves.

Thinks nothing and reads nothing: every answer is a prepared tool call of the workload, so
that what is measured is the client.
"""

import asyncio
import json
from itertools import count, cycle
from typing import Final

from aiohttp import web

from perf.peers import workload

_EPISODES: Final = 16


def _body(number: int) -> bytes:
    episode, turn = divmod(number, workload.TURNS)
    arguments = json.dumps(workload.arguments_of(episode, turn))
    call = {
        "id": "call_@",
        "type": "function",
        "function": {"name": "interact", "arguments": arguments},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {
        "prompt_tokens": workload.PROMPT_TOKENS,
        "completion_tokens": workload.REPLY_TOKENS,
        "total_tokens": workload.PROMPT_TOKENS + workload.REPLY_TOKENS,
    }
    completion = {
        "id": "chatcmpl-@",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": usage,
    }
    return json.dumps(completion).encode()


def application() -> web.Application:
    """The one route there is."""
    bodies = cycle([_body(number) for number in range(_EPISODES * workload.TURNS)])
    numbers = count(1)

    async def chat(request: web.Request) -> web.Response:
        await request.read()
        body = next(bodies).replace(b"@", b"%d" % next(numbers))
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    return app


async def main() -> None:
    runner = web.AppRunner(application(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    print(json.dumps({"address": f"http://127.0.0.1:{port}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
