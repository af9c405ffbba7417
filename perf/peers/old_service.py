"""A stub of the service that ours took the place of: its payload, and no game behind it.

It answers every step with what that one sent: two maps of the whole world and a picture as
lists of numbers, 62 KB in all, made from arrays and encoded for every step. Kind to the
peer: it validates nothing, plays nothing, and writes JSON with the standard library at
once, without the walk through every value that FastAPI makes before.

    python old_service.py          prints its address and serves until it is ended
"""

import json
import socket

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_random = np.random.default_rng(0)
_MAP = _random.integers(1, 19, (64, 64))
# Small numbers, so that the whole is the 62 KB that were measured and not more.
_PICTURE = _random.integers(0, 25, (64, 64, 3))
_INVENTORY = {f"item_{number}": 9 for number in range(16)}
_ACHIEVEMENTS = {f"achievement_{number}": False for number in range(22)}


def payload() -> bytes:
    observation = {
        "inventory": _INVENTORY,
        "achievements_status": _ACHIEVEMENTS,
        "player_position": [32, 32],
        "player_direction": [0, 1],
        "semantic_map": _MAP.tolist(),
        "world_material_map": _MAP.tolist(),
        "observation_image": _PICTURE.tolist(),
        "num_steps_taken": 1,
        "max_steps_episode": 10000,
        "error_info": None,
        "reward_last_step": 0.0,
        "total_reward_episode": 0.0,
        "terminated": False,
        "truncated": False,
    }
    info = {"terminated": False, "truncated": False}
    reply = {"observation": observation, "reward": None, "done": False, "info": info}
    return json.dumps(reply, separators=(",", ":")).encode()


async def step(request: Request) -> Response:
    await request.json()
    return Response(payload(), media_type="application/json")


def main() -> None:
    app = Starlette(routes=[Route("/env/CrafterClassic/step", step, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(json.dumps({"address": address}), flush=True)
        config = uvicorn.Config(app, log_level="error", access_log=False)
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
