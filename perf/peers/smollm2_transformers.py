"""SmolLM2 with TRL's SFTTrainer and with transformers' generate, on rows of token numbers."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

REPLY = 41


def _read(source: str) -> tuple[Path, list[dict[str, Any]]]:
    first, *lines = Path(source).read_text("utf-8").splitlines()
    weights = Path(json.loads(first)["weights"])
    return weights, [json.loads(line) for line in lines]


def _model(weights: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, dtype=torch.float32
    )
    # Else nobody may train what was read from a quantised file.
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model


class _Times(TrainerCallback):
    def __init__(self) -> None:
        self.ended: list[float] = []
        self.losses: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ended.append(time.process_time())

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def train(source: str, batch: str, steps: str) -> dict[str, float]:
    from datasets import Dataset
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    weights, rows = _read(source)
    kept = ("input_ids", "completion_mask")
    data = Dataset.from_list([{name: row[name] for name in kept} for row in rows[: int(batch)]])
    times = _Times()
    with tempfile.TemporaryDirectory() as folder:
        trainer = SFTTrainer(
            _model(weights),
            args=SFTConfig(
                output_dir=folder,
                per_device_train_batch_size=int(batch),
                max_steps=int(steps),
                learning_rate=5e-4,
                max_length=None,
                completion_only_loss=True,
                gradient_checkpointing=False,
                bf16=False,
                fp16=False,
                use_cpu=True,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=1,
            ),
            train_dataset=data,
            processing_class=AutoTokenizer.from_pretrained(
                weights.parent, gguf_file=weights.name
            ),
            peft_config=LoraConfig(
                r=8,
                lora_alpha=16,
                lora_dropout=0.0,
                target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            ),
            callbacks=[times],
        )
        trainer.train()
    begun, *_, ended = times.ended
    return {"seconds": (ended - begun) / (len(times.ended) - 1), "loss": times.losses[0]}


def generate(source: str, requests: str) -> dict[str, float]:
    weights, rows = _read(source)
    model = _model(weights).eval()
    count = int(requests)
    taken = []
    with torch.inference_mode():
        for row in rows[: count + 1]:
            ids = torch.tensor([row["prompt"]])
            started = time.process_time()
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=REPLY,
                min_new_tokens=REPLY,
                do_sample=False,
                pad_token_id=0,
            )
            taken.append(time.process_time() - started)
    return {"seconds": sum(taken[1:]) / count}


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    jobs: dict[str, Callable[..., dict[str, float]]] = {"train": train, "generate": generate}
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
