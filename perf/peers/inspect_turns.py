"""Turns of Inspect AI on the workload: prints one JSON line and ends.

Runs in a separate environment, so it imports nothing but inspect_ai, the workload and the
standard library. Kind to the peer: its mock model, or with --address a server that it asks,
hands out prepared answers with their usage, the tool is a function that returns a prepared
text, nothing is displayed, an evaluation is made before the clock starts, and everything else
has its default, its log included.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageSystem,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    execute_tools,
    get_model,
)
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import solver
from inspect_ai.tool import ToolCall, tool

from perf.peers import workload
from perf.peers.usage import cpu_seconds, peak_bytes

_MODEL = "mockllm/model"


@tool  # type: ignore[untyped-decorator]
def interact(episode: int) -> Any:
    turn = 0

    async def execute(actions: list[str], reasoning: str) -> str:
        """Carry out actions in the world.

        Args:
            actions: What to do, in order.
            reasoning: Why.
        """
        nonlocal turn
        turn += 1
        return workload.observation_of(episode, turn)

    return execute


@solver  # type: ignore[untyped-decorator]
def player() -> Any:
    """Ask with the last turns, carry out the call, and so on."""

    async def solve(state: Any, generate: Any) -> Any:
        tools = [interact(state.metadata["episode"])]
        model = get_model()
        pinned = [ChatMessageSystem(content=workload.SYSTEM), state.messages[-1]]
        state.messages = [*pinned]
        recent: list[list[Any]] = []
        for _ in range(workload.TURNS):
            request = [*pinned, *(message for turn in recent for message in turn)]
            state.output = await model.generate(request, tools=tools)
            done, _rest = await execute_tools([state.output.message], tools)
            turn = [state.output.message, *done]
            state.messages += turn
            recent = [*recent, turn][-workload.HISTORY :]
        return state

    return solve


@scorer(metrics=[mean()])  # type: ignore[untyped-decorator]
def observations() -> Any:
    async def score(state: Any, target: Any) -> Score:
        return Score(value=sum(message.role == "tool" for message in state.messages))

    return score


class _Answers:
    """Prepared replies for every request."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, *request: Any) -> ModelOutput:
        episode, turn = divmod(self._count, workload.TURNS)
        self._count += 1
        call = ToolCall(
            id=f"call_{self._count}",
            function="interact",
            arguments=workload.arguments_of(episode, turn),
        )
        message = ChatMessageAssistant(
            content="", model=_MODEL, source="generate", tool_calls=[call]
        )
        usage = ModelUsage(
            input_tokens=workload.PROMPT_TOKENS,
            output_tokens=workload.REPLY_TOKENS,
            total_tokens=workload.PROMPT_TOKENS + workload.REPLY_TOKENS,
        )
        choice = ChatCompletionChoice(message=message, stop_reason="tool_calls")
        return ModelOutput(model=_MODEL, choices=[choice], usage=usage)


def _model(episodes: int, address: str | None) -> Any:
    config = GenerateConfig(max_connections=episodes)
    if address is None:
        return get_model(_MODEL, custom_outputs=_Answers(), memoize=False, config=config)
    return get_model(
        "openai-api/stub/stub",
        base_url=f"{address}/v1",
        api_key="none",
        memoize=False,
        config=config,
    )


def evaluate(episodes: int, folder: str, address: str | None) -> None:
    """Play episodes, all at once."""
    samples = [
        Sample(
            id=episode + 1,
            input=workload.OPENING + workload.observation_of(episode, 0),
            target="",
            metadata={"episode": episode},
        )
        for episode in range(episodes)
    ]
    model = _model(episodes, address)
    task = Task(dataset=MemoryDataset(samples), solver=player(), scorer=observations())
    (log,) = eval(task, model=model, max_samples=episodes, log_dir=folder, display="none")
    if log.status != "success" or log.results is None:
        raise SystemExit(f"the evaluation ended as {log.status}: {log.error}")
    seen = log.results.scores[0].metrics["mean"].value
    if seen != workload.TURNS:
        raise SystemExit(f"{seen} observations to an episode instead of {workload.TURNS}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--address", help="of a server with models; else the mock model")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-perf-inspect-") as folder:
        evaluate(1, f"{folder}/first", asked.address)
        before = cpu_seconds()
        evaluate(asked.episodes, f"{folder}/logs", asked.address)
        cpu = cpu_seconds() - before
        size = sum(path.stat().st_size for path in Path(folder, "logs").rglob("*.eval"))
    turns = asked.episodes * workload.TURNS
    answer = {
        "seconds": cpu / turns,
        "peak_bytes": peak_bytes(),
        "disk_bytes": size / turns,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
