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
    from assay.finetune.local.train import TrainingStep, ValidationResult


def main(arguments: Sequence[str]) -> int:
    """Train the job; return 0 if a model was produced."""
    folder, files = map(Path, arguments[:2])
    job = json.loads((folder / "job.json").read_bytes())["told"]
    stopped = False

    def request_stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, request_stop)
    # Not sys.stdin: a thread must not hold its lock when Python exits.
    threading.Thread(target=lambda: request_stop(os.read(0, 1)), daemon=True).start()
    # A process left by a killed service may still be in its last step.
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        result = _train_job(folder, files, job, int(arguments[2]), lambda: stopped)
    except UsageError as error:
        problem = {
            "code": "invalid_training_file",
            "message": str(error),
            "param": "training_file",
        }
        _write_result(folder, error=problem)
        return 1
    except TrainingStopped:
        return 143
    _write_result(folder, **result)
    return 0


def _train_job(
    folder: Path,
    files: Path,
    job: dict[str, Any],
    threads: int,
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    rows = _read_rows(files, job["training_file"])
    validation_rows = (
        _read_rows(files, job["validation_file"]) if job["validation_file"] else []
    )
    from assay.finetune.local.train import Settings, train

    hyperparameters = job["hyperparameters"]
    settings = Settings(
        epochs=hyperparameters["n_epochs"],
        batch_size=hyperparameters["batch_size"],
        learning_rate=hyperparameters["learning_rate"],
        threads=threads,
    )
    append_event(folder, f"Training on {len(rows):,} rows starts")

    def on_step(event: "TrainingStep | ValidationResult") -> None:
        from assay.finetune.local.train import TrainingStep

        if isinstance(event, TrainingStep):
            is_checkpoint = event.step % settings.checkpoint_steps == 0
            append_event(
                folder,
                f"Step {event.step}/{event.steps}: training loss={event.loss:.4f}",
                {
                    "step": event.step,
                    "total_steps": event.steps,
                    "train_loss": event.loss,
                    "train_mean_token_accuracy": event.accuracy,
                    "learning_rate": event.learning_rate,
                    "tokens": event.tokens,
                    "seconds": event.seconds,
                    "checkpoint": is_checkpoint,
                },
            )
        else:
            append_event(
                folder,
                f"Step {event.step}: validation loss={event.loss:.4f}",
                {
                    "step": event.step,
                    "full_valid_loss": event.loss,
                    "full_valid_mean_token_accuracy": event.accuracy,
                },
            )

    trained = train(
        job["model"],
        rows,
        settings,
        seed=job["seed"],
        folder=folder / "training",
        validation_rows=validation_rows,
        on_step=on_step,
        should_stop=should_stop,
    )
    share = trained.tokens.share_without_head
    append_event(
        folder,
        f"{trained.parameters:,} parameters were trained on {trained.tokens.learned:,} answer"
        f" tokens per epoch; {share:.0%} of all tokens are outside the head",
    )
    return {"trained_tokens": trained.tokens.learned * hyperparameters["n_epochs"]}


def _read_rows(files: Path, name: str) -> list[Any]:
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


def _write_result(folder: Path, **content: Any) -> None:
    atomic_write(folder / "result.json", json.dumps(content).encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
