"""Steps of Craftax-Classic-Symbolic on the CPU: prints one JSON line and ends.

Runs in a separate environment, so it imports nothing but craftax, jax and the
standard library. Kind to the peer: everything is compiled before the clock starts, worlds
are made one after another because that is quicker here than making them side by side,
and observations are never asked for, so that the compiler leaves them out.
"""

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
from craftax.craftax_env import make_craftax_env_from_name

MODES = ("none", "auto", "optimistic")
"""No resets; those of the package; or, as its authors train, a few worlds made each step
and handed to those that ended."""

RESET_RATIO = 16
"""Of how many worlds one is made anew each step in the optimistic mode, as its authors do."""


def make_step(env: Any, mode: str, worlds: int) -> Any:
    """A function (key, state, actions) -> state that steps all worlds once."""
    params = env.default_params
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
    reset = jax.vmap(env.reset, in_axes=(0, None))

    def plain(key: Any, state: Any, actions: Any) -> Any:
        _, state, reward, _, _ = step(jax.random.split(key, worlds), state, actions, params)
        return state, reward.sum()

    def optimistic(key: Any, state: Any, actions: Any) -> Any:
        key, reset_key = jax.random.split(key)
        keys = jax.random.split(key, worlds)
        _, state, reward, done, _ = step(keys, state, actions, params)
        spare = max(1, worlds // RESET_RATIO)
        _, fresh = reset(jax.random.split(reset_key, spare), params)
        given = (jnp.cumsum(done) - 1) % spare

        def choose(old: Any, new: Any) -> Any:
            mask = done.reshape((-1,) + (1,) * (old.ndim - 1))
            return jnp.where(mask, new[given], old)

        return jax.tree.map(choose, state, fresh), reward.sum()

    return optimistic if mode == "optimistic" else plain


def seconds_per_step(mode: str, worlds: int, steps: int, seed: int) -> float:
    """Wall time of one step of one world."""
    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=mode == "auto")
    params = env.default_params
    one_step = make_step(env, mode, worlds)

    def run(key: Any, state: Any, actions: Any) -> Any:
        def body(carry: Any, chosen: Any) -> Any:
            key, state = carry
            key, step_key = jax.random.split(key)
            state, reward = one_step(step_key, state, chosen)
            return (key, state), reward

        return jax.lax.scan(body, (key, state), actions)

    def make_worlds(keys: Any) -> Any:
        return jax.lax.map(lambda key: env.reset(key, params)[1], keys)

    key, reset_key, action_key = jax.random.split(jax.random.PRNGKey(seed), 3)
    state = jax.block_until_ready(jax.jit(make_worlds)(jax.random.split(reset_key, worlds)))
    actions = jax.random.randint(action_key, (steps, worlds), 0, 17)
    compiled = jax.jit(run).lower(key, state, actions).compile()
    started = time.perf_counter()
    jax.block_until_ready(compiled(key, state, actions))
    return (time.perf_counter() - started) / (steps * worlds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--worlds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    asked = parser.parse_args()
    seconds = seconds_per_step(asked.mode, asked.worlds, asked.steps, asked.seed)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
