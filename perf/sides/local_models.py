"""Our side of training and answering with SmolLM2, in a process that has torch.

`encode` writes the rows as token numbers, so that the other side learns from the same.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

BASE: Final = "local/smollm2-135m"
REPLY: Final = 41
"""Tokens of a reply, on both sides."""


def _read_rows(data: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(data).read_text("utf-8").splitlines()]


def encode(data: str, target: str) -> dict[str, float]:
    from assay.finetune.local.bases import find_base, find_smollm2_file
    from assay.finetune.local.templates import flag_trained_messages, read_rows

    base = find_base(BASE)
    template = base.make_template(base.make_tokenizer(()))
    with open(target, "w", encoding="utf-8") as out:
        out.write(json.dumps({"weights": str(find_smollm2_file())}) + "\n")
        for row in read_rows(_read_rows(data)):
            told = template.encode(row.messages, row.tools or [], flag_trained_messages(row))
            ids = [*told.prefix[:, 0].tolist(), *told.rest[:, 0].tolist()]
            mask = [0] * len(told.prefix) + told.trained.astype(int).tolist()
            prompt = template.encode_prompt(row.messages[:-1], row.tools or [])
            asked = [*prompt.prefix[:, 0].tolist(), *prompt.rest[:, 0].tolist()]
            line = {"input_ids": ids, "completion_mask": mask, "prompt": asked}
            out.write(json.dumps(line) + "\n")
    return {"seconds": 0.0}


def train(data: str, batch: str, steps: str) -> dict[str, float]:
    from assay.finetune.local.train import Settings, TrainingStep, train

    # One thread: the time of the processor, which others on the machine do not change.
    done: list[tuple[float, float]] = []
    rows = _read_rows(data)[: int(batch)]
    settings = Settings(epochs=int(steps), batch_size=int(batch), threads=_limit_threads())
    with tempfile.TemporaryDirectory() as folder:
        train(
            BASE,
            rows,
            settings,
            seed=1,
            folder=Path(folder),
            on_step=lambda each: (
                done.append((time.process_time(), each.loss))
                if isinstance(each, TrainingStep)
                else None
            ),
        )
    # From the end of the first step, which pays for memory that the others use again.
    (begun, loss), (ended, _) = done[0], done[-1]
    return {"seconds": (ended - begun) / (len(done) - 1), "loss": loss}


def generate(data: str, together: str) -> dict[str, float]:
    import torch

    from assay.finetune.local.generate import ModelRequest, load_base

    torch.set_num_threads(_limit_threads())
    generator = load_base(BASE)
    by_episode: dict[str, list[dict[str, Any]]] = {}
    for row in _read_rows(data):
        by_episode.setdefault(row["messages"][1]["content"], []).append(row)
    episodes = list(by_episode.values())[: int(together)]

    def asked(turn: int) -> float:
        requests = [
            ModelRequest(
                messages=rows[turn]["messages"][:-1],
                tools=rows[turn]["tools"],
                max_tokens=REPLY,
            )
            for rows in episodes
        ]
        started = time.process_time()
        generator.generate_replies(requests)
        return time.process_time() - started

    # The head and the openings are known after the first turn, as in an evaluation.
    asked(1)
    return {"seconds": asked(2) / len(episodes)}


def _limit_threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


if __name__ == "__main__":
    jobs: dict[str, Callable[..., dict[str, float]]] = {
        "encode": encode,
        "train": train,
        "generate": generate,
    }
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
