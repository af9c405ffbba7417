"""The local service trains, resumes after a kill, and its models reply as trained."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from .test_learner import COLOURS, HELD, ROWS, TOOLS, make_messages

pytestmark = pytest.mark.local

NUMBERS: Any = {"n_epochs": 5, "batch_size": 32, "learning_rate": 3e-3}


@contextmanager
def serving(folder: Path, end: signal.Signals = signal.SIGTERM) -> Iterator[OpenAI]:
    """Run a service in a subprocess, and end it with a signal."""
    command = ["serve-finetune", "--port", "0", "--json", "--folder", str(folder)]
    with subprocess.Popen(
        [sys.executable, "-m", "assay", *command],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["base_url"]
            with OpenAI(base_url=address, api_key="none", max_retries=0) as client:
                yield client
        finally:
            process.send_signal(end)


def upload(client: OpenAI, rows: list[Any]) -> str:
    content = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    return client.files.create(file=("rows.jsonl", content), purpose="fine-tune").id


def start(client: OpenAI, **more: Any) -> str:
    made = client.fine_tuning.jobs.create(
        model="local/tiny",
        training_file=upload(client, ROWS),
        validation_file=upload(client, HELD),
        hyperparameters=NUMBERS,
        seed=7,
        **more,
    )
    return made.id


def until(client: OpenAI, job: str, *states: str) -> Any:
    for _ in range(12_000):
        found = client.fine_tuning.jobs.retrieve(job)
        if found.status in states:
            return found
        assert found.status not in ("failed", "cancelled"), found.error
        time.sleep(0.1)
    raise AssertionError(f"{job} is not {states}")


def steps(client: OpenAI, job: str) -> list[int]:
    """Return the reported steps in order."""
    events = list(client.fine_tuning.jobs.list_events(job, limit=100))[::-1]
    data: list[Any] = [event.data for event in events if event.type == "metrics"]
    return [event["step"] for event in data if "train_loss" in event]


def ask(client: OpenAI, model: str, number: int) -> Any:
    messages: Any = make_messages(number)
    tools: Any = TOOLS
    return client.chat.completions.create(model=model, messages=messages, tools=tools)


def colour(reply: Any) -> str:
    [call] = reply.choices[0].message.tool_calls
    return str(json.loads(call.function.arguments)["colour"])


def test_a_trained_model_replies_as_trained(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        first, second = start(client, suffix="Painter no. 1"), start(client)
        assert client.fine_tuning.jobs.retrieve(second).status == "validating_files"
        client.fine_tuning.jobs.cancel(second)
        job = until(client, first, "succeeded")
        name = job.fine_tuned_model
        assert name.startswith("ft:local/tiny:assay:painter-no-1:")
        assert job.trained_tokens > 0
        made = steps(client, first)
        assert made == list(range(1, len(made) + 1))
        assert client.fine_tuning.jobs.retrieve(second).status == "cancelled"
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda number: ask(client, name, number), range(96, 112)))
        right = [colour(reply) == COLOURS[n % 4] for n, reply in enumerate(replies, 96)]
        assert sum(right) >= 15
        with pytest.raises(BadRequestError, match="was trained with another system message"):
            client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "hi"}]
            )
        assert colour(ask(client, "local/tiny", 1)) in COLOURS
    with serving(tmp_path) as client:
        assert colour(ask(client, name, 97)) == colour(replies[1])
        assert client.models.delete(name).deleted
        assert name not in [model.id for model in client.models.list()]


def test_a_job_resumes_after_its_service_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path, signal.SIGKILL) as client:
        job = start(client)
        until(client, job, "running")
        while len(steps(client, job)) < 5:
            time.sleep(0.05)
    # The training process notices that its service is gone, saves a checkpoint and ends.
    with serving(tmp_path) as client:
        assert until(client, job, "succeeded").fine_tuned_model
        made = steps(client, job)
        assert made[-1] == max(made) > 5
        events = client.fine_tuning.jobs.list_events(job, limit=100).data
        assert "Training is resumed" in [event.message for event in events]


def test_a_reply_can_be_streamed(tmp_path: Path) -> None:
    messages: Any = make_messages(3)
    tools: Any = TOOLS
    with serving(tmp_path) as client:
        whole = ask(client, "local/tiny", 3).choices[0].message.tool_calls[0].function
        pieces = client.chat.completions.create(
            model="local/tiny", messages=messages, tools=tools, stream=True
        )
        calls = [
            call.function
            for piece in pieces
            for choice in piece.choices
            for call in choice.delta.tool_calls or ()
            if call.function is not None
        ]
    assert "".join(call.name or "" for call in calls) == whole.name
    assert "".join(call.arguments or "" for call in calls) == whole.arguments


def test_a_too_long_example_fails_its_job_and_is_named(tmp_path: Path) -> None:
    long: Any = json.loads(json.dumps(ROWS[:12]))
    long[4]["messages"][-2]["content"] = "\n".join(f"line {n} of many" for n in range(5000))
    with serving(tmp_path) as client:
        made = client.fine_tuning.jobs.create(
            model="local/tiny", training_file=upload(client, long)
        )
        while not (job := client.fine_tuning.jobs.retrieve(made.id)).finished_at:
            time.sleep(0.1)
    assert job.status == "failed"
    assert job.error is not None
    assert (job.error.code, job.error.param) == ("invalid_training_file", "training_file")
    assert "row 5 has" in job.error.message
    assert "the limit of local/tiny is 4,096" in job.error.message
