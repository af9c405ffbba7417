"""SmolLM2 on this machine: steps of training beside TRL, turns beside transformers."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from assay.api.runs import run
from assay.api.sft import sft_filter

from .measure import Row, Topic
from .processes import LOCAL_PYTHON, TRL_PYTHON, PeerFailed, run_module

__all__ = ["GENERATE", "LOCAL_SIDES", "STEP", "TRL_SIDES"]

LOCAL_SIDES: Final = ("our step", "our turns")
TRL_SIDES: Final = ("trl", "generate")
_LIMIT: Final = 3600
_PICKED, _TOKENS = "picked.jsonl", "tokens.jsonl"
_THREADS: Final = "1"
_BATCH, _STEPS = "4", "2"
_TOGETHER: Final = "16"
_ALONE: Final = "2"
"""Requests that the peer answers one after the other; each takes as long as the next."""
_TURNS: Final = 6
_SAME_LOSS: Final = 0.001


@cache
def _make_data() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="assay-perf-local-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(
        models=["builtin/expert"],
        baselines=False,
        episodes=int(_TOGETHER),
        max_turns=_TURNS,
        view="short",
        history=1,
        actions_per_turn=1,
        difficulty="classic",
        database=folder / "traces.duckdb",
        traces_dir=folder / "traces",
    )
    path = folder / "data.jsonl"
    sft_filter(path, database=folder / "traces.duckdb", min_reward=-9, drop_notes=True)
    # One row of each episode, from its third turn: with a history, as nearly all rows are.
    rows = path.read_text("utf-8").splitlines(keepends=True)
    picked = path.with_name(_PICKED)
    picked.write_text("".join(rows[2::_TURNS]), "utf-8")
    _run_ours("encode", str(picked), str(path.with_name(_TOKENS)))
    return path


def _run_ours(*arguments: str) -> dict[str, float]:
    return _run_module("perf.sides.local_models", LOCAL_PYTHON, *arguments)


def _run_theirs(*arguments: str) -> dict[str, float]:
    return _run_module("perf.peers.smollm2_transformers", TRL_PYTHON, *arguments)


def _run_module(module: str, python: Path, *arguments: str) -> dict[str, float]:
    environment = {"OMP_NUM_THREADS": _THREADS, "HF_HUB_OFFLINE": "1"}
    return run_module(
        module, *arguments, python=python, environment=environment, timeout=_LIMIT
    )


_losses: dict[str, float] = {}


def _step_seconds(side: str, told: dict[str, float]) -> float:
    """Return the seconds of a step, if both sides trained on the same tokens."""
    _losses[side] = told["loss"]
    known = list(_losses.values())
    if abs(known[0] - known[-1]) > _SAME_LOSS * known[0]:
        raise PeerFailed(f"the first losses differ, so it is not the same work: {_losses}")
    return told["seconds"]


def _time_own_step(turn: int) -> float:
    picked = str(_make_data().with_name(_PICKED))
    return _step_seconds("ours", _run_ours("train", picked, _BATCH, _STEPS))


def _time_trl_step(turn: int) -> float:
    tokens = str(_make_data().with_name(_TOKENS))
    return _step_seconds("trl", _run_theirs("train", tokens, _BATCH, _STEPS))


def _time_own_turn(turn: int) -> float:
    return _run_ours("generate", str(_make_data()), _TOGETHER)["seconds"]


def _time_their_turn(turn: int) -> float:
    return _run_theirs("generate", str(_make_data().with_name(_TOKENS)), _ALONE)["seconds"]


STEP: Final = Topic(
    name="finetune",
    unit="step",
    sides={"our step": _time_own_step, "trl": _time_trl_step},
    rows=(
        Row(
            name="finetune-step",
            what="a step of training SmolLM2-135M, LoRA on the attention",
            ours="our step",
            peer="trl",
            against="TRL's SFTTrainer with peft",
            target=1,
        ),
    ),
    notes=(
        f"Processor time of a step after the first, {_BATCH} rows of about 1,400 tokens, the "
        "same in each step; LoRA of rank 8 on q, k, v, o, answers alone, 32 bits, "
        f"{_THREADS} thread on both sides. Both get the same tokens, and their first losses "
        "must agree.",
    ),
    rounds_at_most=3,
    warmup=False,
)

GENERATE: Final = Topic(
    name="generate",
    unit="turn",
    sides={"our turns": _time_own_turn, "generate": _time_their_turn},
    rows=(
        Row(
            name="generate",
            what="a turn of evaluation with SmolLM2-135M, 16 episodes at once",
            ours="our turns",
            peer="generate",
            against="transformers' model.generate for each request",
            target=5,
        ),
    ),
    notes=(
        f"Processor time of a turn, replies of up to 41 tokens, {_THREADS} thread on both "
        "sides. Ours has read the head and the openings of the episodes one turn before, and "
        "keeps calls to their schema; the peer writes 41 tokens without one.",
    ),
    rounds_at_most=3,
    warmup=False,
)
