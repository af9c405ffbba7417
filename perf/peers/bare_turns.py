"""Turns of the official client alone on the workload: prints one JSON line and ends.

No agent, no world, no record of anything: a loop that keeps the last turns and asks again.
Messages go by `extra_body`, which the client sends as they are; what it is given the usual
way it first walks through, and that costs several times as much.
"""

import argparse
import asyncio
import json
from typing import Any, Final

from openai import AsyncOpenAI, DefaultAioHttpClient

from perf.peers import workload
from perf.peers.usage import cpu_seconds

_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "interact",
        "description": "Carry out actions in the world.",
        "parameters": {
            "type": "object",
            "properties": {
                "actions": {"type": "array", "items": {"type": "string"}},
                "reasoning": {"type": "string"},
            },
            "required": ["actions", "reasoning"],
        },
    },
}


async def play(client: AsyncOpenAI, episode: int, turns: int) -> None:
    """Play one episode."""
    opening = workload.OPENING + workload.observation_of(episode, 0)
    pinned = [
        {"role": "system", "content": workload.SYSTEM},
        {"role": "user", "content": opening},
    ]
    recent: list[list[dict[str, Any]]] = []
    for turn in range(1, turns + 1):
        messages = [*pinned, *(message for pair in recent for message in pair)]
        reply = await client.chat.completions.create(
            model="stub", messages=[], extra_body={"messages": messages, "tools": [_TOOL]}
        )
        calls = reply.choices[0].message.tool_calls
        if not calls:
            raise SystemExit("a reply without a tool call")
        said = calls[0].model_dump()
        if len(json.loads(said["function"]["arguments"])["actions"]) != 3:
            raise SystemExit(f"a reply without three actions: {said}")
        seen = workload.observation_of(episode, turn)
        pair = [
            {"role": "assistant", "content": None, "tool_calls": [said]},
            {"role": "tool", "tool_call_id": said["id"], "content": seen},
        ]
        recent = [*recent, pair][-workload.HISTORY :]


async def measure(address: str, episodes: int) -> float:
    """Seconds of CPU for each turn, after a first short episode."""
    async with AsyncOpenAI(
        api_key="none", base_url=f"{address}/v1", http_client=DefaultAioHttpClient()
    ) as client:
        await play(client, 0, 10)
        before = cpu_seconds()
        await asyncio.gather(*(play(client, n, workload.TURNS) for n in range(episodes)))
        return (cpu_seconds() - before) / (episodes * workload.TURNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--address", required=True)
    asked = parser.parse_args()
    seconds = asyncio.run(measure(asked.address, asked.episodes))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
