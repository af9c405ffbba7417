"""User files that the golden runs read."""

import csv
import json
from pathlib import Path
from typing import Any, Final

__all__ = ["BASE_URL", "ENVIRONMENT", "write_inputs"]

BASE_URL: Final = "GOLDEN_BASE_URL"
"""The variable with the address of the model behind HTTP; it is not part of a run."""

ENVIRONMENT: Final = {"ASSAY_MODELS": "models.toml"}
"""Options of the commands."""

_HOOKS: Final = """\
from assay.metrics import BaseHook, HookRecord, hook


@hook
class Turns(BaseHook):
    def on_turn(self, played):
        asked = {"asked": len(played.asked)}
        return [HookRecord(name="turn", code="T", priority=1, step=None, data=asked)]
"""

_OWN: Final = """\
import assay


@assay.metric(higher_is_better=False)
def idle(episode):
    return sum(step.action == "noop" for step in episode.steps)


@assay.metric
def range_of_steps(episodes):
    counts = [len(episode.steps) for episode in episodes]
    return max(counts) - min(counts)
"""

_MODELS: Final = f"""\
[providers.golden]
base_url_variable = "{BASE_URL}"
key_variable = "GOLDEN_KEY"
key_optional = true

[models."golden/player"]
provider = "golden"
remote_name = "player"
price = {{ input = 1.0, cached = 0.5, output = 10.0, dated = 2026-01-01 }}
"""

_CHOSEN: Final = """\
[run]
models = ["golden/player", "builtin/noop"]
name = "ours"
baselines = false

[experiment]
episodes = 2
max_turns = 4
seed = 7

[difficulty]
tree_chance = 0.25
cow_chance = 0.02

[agent]
history = 3
temperature = 0.5
max_tokens = 512
actions_per_turn = 4
view = "short"
prompt = "prompt.txt"

[limits]
step_limit = 100
token_limit = 50000
time_limit = 600.0
"""

_PLAN: Final = """\
metric = "reward"
alpha = 0.05
n = 4
paired = true
note = "the candidate learns faster"

[summary]
type = "auc"
percent = 0.5

[test]
method = "auto"
side = "two-sided"
"""


def write_inputs(folder: Path) -> None:
    """Write every file that a command names."""
    texts = {
        "hooks.py": _HOOKS,
        "own.py": _OWN,
        "models.toml": _MODELS,
        "chosen.toml": _CHOSEN,
        "plan.toml": _PLAN,
        "prompt.txt": "You are careful, and you eat before you are hungry.\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    _write_curves(folder / "curves")
    _write_inspect_log(folder / "logs")
    _write_balrog_folder(folder / "logs")


def _write_curves(folder: Path) -> None:
    folder.mkdir()
    for seed, level in ((1, 0.9), (2, 1.25), (3, 1.0), (4, 1.1)):
        for arm, gain in (("control", 0.0), ("candidate", 0.125 + seed / 64)):
            with (folder / f"{arm}.seed{seed}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(("step", "reward", "loss"))
                for step in range(0, 101, 5):
                    reward = (level + gain) * step / (step + 50)
                    writer.writerow((step, reward, 2 - reward if step % 10 == 0 else ""))


def _write_inspect_log(folder: Path) -> None:
    """Write a log of Inspect with two samples."""
    folder.mkdir()
    about = {
        "eval_id": "eval-1",
        "run_id": "run-1",
        "created": "2026-03-04T05:06:07+00:00",
        "task": "crafter",
        "task_id": "task-1",
        "dataset": {"sample_ids": ["a", "b"]},
        "model": "openai/gpt-4o-mini",
        "config": {"epochs": 1},
        "packages": {"inspect_ai": "0.3.285"},
    }
    log = {"version": 2, "status": "success", "eval": about}
    samples = [_sample("a", 3), _sample("b", 5)]
    (folder / "inspect.json").write_text(json.dumps({**log, "samples": samples}), "utf-8")


def _sample(name: str, achievements: int) -> dict[str, Any]:
    call = {"id": "c1", "function": "interact", "arguments": {"actions": ["noop"]}}
    messages: list[dict[str, Any]] = [
        {"id": "m1", "role": "system", "content": "You play."},
        {"id": "m2", "role": "user", "content": "You see a tree."},
        {"id": "m3", "role": "assistant", "content": "I wait.", "tool_calls": [call]},
        {"id": "m4", "role": "tool", "tool_call_id": "c1", "content": "nothing happens"},
        {"id": "m5", "role": "assistant", "content": "Bye."},
    ]
    usage = {"input_tokens": 70, "output_tokens": 20, "input_tokens_cache_read": 30}
    event = {
        "event": "model",
        "timestamp": "2026-03-04T05:06:10+00:00",
        "completed": "2026-03-04T05:06:12+00:00",
        "model": "openai/gpt-4o-mini",
        "input": [],
        "input_refs": [[0, 2]],
        "tools": [{"name": "interact", "parameters": {}}],
        "config": {"temperature": 0.5},
        "output": {
            "choices": [{"message": messages[2], "stop_reason": "tool_calls"}],
            "usage": {**usage, "reasoning_tokens": 5, "total_cost": 0.25},
            "time": 1.5,
        },
    }
    return {
        "id": name,
        "epoch": 1,
        "uuid": f"uuid-{name}",
        "messages": messages,
        "metadata": {"seed": 7},
        "scores": {"multi": {"value": {"reward": 1.5, "achievements": achievements}}},
        "events": [event],
        "events_data": {"messages": messages},
        "model_usage": {"openai/gpt-4o-mini": {"input_tokens": 70, "output_tokens": 20}},
        "started_at": "2026-03-04T05:06:08+00:00",
        "completed_at": "2026-03-04T05:06:20+00:00",
        "working_time": 9.0,
    }


def _write_balrog_folder(folder: Path) -> None:
    """Write an episode of BALROG."""
    place = folder / "2025-02-01_10-00-00_naive_some_model" / "crafter" / "default"
    place.mkdir(parents=True)
    totals = {
        "task": "default",
        "action_frequency": {"Move West": 1, "Do": 2},
        "input_tokens": 300,
        "output_tokens": 12,
        "done": True,
        "episode_return": 0.9,
        "num_steps": 3,
        "failed_candidates": [],
        "score": 1.0,
        "progression": 1 / 22,
        "achievements": {"collect_wood": 2, "eat_cow": 0},
        "process_num": "ForkProcess-1",
        "seed": 11,
        "agent": {"type": "naive"},
        "client": {
            "client_name": "vllm",
            "model_id": "some/model",
            "base_url": "https://example.org/v1",
            "generate_kwargs": {"temperature": 0.0},
        },
    }
    (place / "default_run_00.json").write_text(json.dumps(totals, indent=4), "utf-8")
    rows = [("Move West", "grass", 0.0), ("Do", "a tree", 1.0), ("Do", "a zombie", -0.1)]
    with (place / "default_run_00.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("Step", "Action", "Reasoning", "Observation", "Reward", "Done"))
        for step, (action, seen, reward) in enumerate(rows):
            writer.writerow((step, action, "", f"You see {seen}.", reward, step == 2))
