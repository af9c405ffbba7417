"""`python -m assay.finetune.service.job_process JOB FILES THREADS`: trains the job in a folder.

Started by the service. Events are written to the job's folder as they happen, and `result.json`
at the end, with either the result or an error that the client can fix. On SIGTERM it saves a
checkpoint, from which the next process resumes. It also does so if the service that started it
exits, which closes its standard input.
"""

import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.files import atomic_write
from assay.errors import TrainingStopped, UsageError
from assay.finetune.service.jobs import append_event

if TYPE_CHECKING:
    from assay.finetune.local.train import StepDone, Validated


def main(arguments: Sequence[str]) -> int:
    """Train the job; return 0 if a model was produced."""
    folder, files = map(Path, arguments[:2])
    told = json.loads((folder / "job.json").read_bytes())["told"]
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    # Not sys.stdin: a thread must not hold its lock when Python exits.
    threading.Thread(target=lambda: stop(os.read(0, 1)), daemon=True).start()
    # A process left by a killed service may still be in its last step.
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        result = _trained(folder, files, told, int(arguments[2]), lambda: stopped)
    except UsageError as error:
        told = {
            "code": "invalid_training_file",
            "message": str(error),
            "param": "training_file",
        }
        _result(folder, error=told)
        return 1
    except TrainingStopped:
        return 143
    _result(folder, **result)
    return 0


def _trained(
    folder: Path, files: Path, told: dict[str, Any], threads: int, stopped: Callable[[], bool]
) -> dict[str, Any]:
    rows = _rows(files, told["training_file"])
    held = _rows(files, told["validation_file"]) if told["validation_file"] else []
    from assay.finetune.local.train import Settings, train

    numbers = told["hyperparameters"]
    settings = Settings(
        epochs=numbers["n_epochs"],
        batch_size=numbers["batch_size"],
        learning_rate=numbers["learning_rate"],
        threads=threads,
    )
    append_event(folder, f"Training on {len(rows):,} rows begins")

    def on_step(done: "StepDone | Validated") -> None:
        from assay.finetune.local.train import StepDone

        if isinstance(done, StepDone):
            kept = done.step % settings.checkpoint_steps == 0
            append_event(
                folder,
                f"Step {done.step}/{done.steps}: training loss={done.loss:.4f}",
                {
                    "step": done.step,
                    "total_steps": done.steps,
                    "train_loss": done.loss,
                    "train_mean_token_accuracy": done.accuracy,
                    "learning_rate": done.learning_rate,
                    "tokens": done.tokens,
                    "seconds": done.seconds,
                    "checkpoint": kept,
                },
            )
        else:
            append_event(
                folder,
                f"Step {done.step}: validation loss={done.loss:.4f}",
                {
                    "step": done.step,
                    "full_valid_loss": done.loss,
                    "full_valid_mean_token_accuracy": done.accuracy,
                },
            )

    trained = train(
        told["model"],
        rows,
        settings,
        seed=told["seed"],
        folder=folder / "training",
        validation_rows=held,
        on_step=on_step,
        should_stop=stopped,
    )
    share = trained.tokens.share_without_head
    append_event(
        folder,
        f"{trained.parameters:,} parameters were trained on {trained.tokens.learned:,} tokens"
        f" of answers an epoch; {share:.0%} of all tokens are not head",
    )
    return {"trained_tokens": trained.tokens.learned * numbers["n_epochs"]}


def _rows(files: Path, name: str) -> list[Any]:
    path = files / f"{name}.jsonl"
    rows = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise UsageError(f"line {number} is not valid JSON: {error}") from error
    if not rows:
        raise UsageError("the file has no rows")
    return rows


def _result(folder: Path, **told: Any) -> None:
    atomic_write(folder / "result.json", json.dumps(told).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
