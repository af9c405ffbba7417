"""The local service over real HTTP, with OpenAI's client; nothing is trained."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError, OpenAI

from assay.errors import UsageError
from assay.finetune.service.jobs import JobStore
from assay.finetune.service.server import FinetuneServerSettings, RunningFinetune, running

ROW = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
GOOD = json.dumps(ROW).encode() + b"\n"
BAD = GOOD + b'{"messages": \n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFinetune]:
    folder = tmp_path_factory.mktemp("service")
    with running(FinetuneServerSettings(port=0, folder=folder, quota=1_000_000)) as made:
        yield made


@pytest.fixture
def client(service: RunningFinetune) -> Iterator[OpenAI]:
    with make_client(service) as made:
        yield made


def make_client(service: RunningFinetune) -> OpenAI:
    return OpenAI(base_url=service.base_url, api_key="none", max_retries=0)


def upload(client: OpenAI, content: bytes = GOOD) -> str:
    return client.files.create(file=("rows.jsonl", content), purpose="fine-tune").id


def ended(client: OpenAI, job: str) -> Any:
    for _ in range(6_000):
        found = client.fine_tuning.jobs.retrieve(job)
        if found.status in ("succeeded", "failed", "cancelled"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{job} does not end")


def refused(error: pytest.ExceptionInfo[APIStatusError]) -> tuple[int, str | None, str | None]:
    return error.value.status_code, error.value.param, error.value.code


def test_an_uploaded_file_is_returned_unchanged(client: OpenAI) -> None:
    file = client.files.retrieve(upload(client, BAD))
    assert (file.bytes, file.filename, file.purpose) == (len(BAD), "rows.jsonl", "fine-tune")
    assert file.id in [uploaded.id for uploaded in client.files.list()]
    assert client.files.content(file.id).content == BAD
    assert client.files.delete(file.id).deleted
    with pytest.raises(NotFoundError):
        client.files.content(file.id)


def test_an_unusable_file_is_rejected(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as empty:
        upload(client, b"")
    assert refused(empty) == (400, "file", None)
    with pytest.raises(BadRequestError, match="purpose 'batch' is not allowed") as other:
        client.files.create(file=("rows.jsonl", GOOD), purpose="batch")
    assert refused(other) == (400, "purpose", None)
    before = len(client.files.list().data)
    with pytest.raises(APIStatusError, match="not enough space for this file") as large:
        upload(client, b"x" * 1_100_000)
    assert refused(large) == (413, None, "quota_exceeded")
    assert len(client.files.list().data) == before


@pytest.mark.parametrize("path", ["files/..%2Flock", "files/%2e%2e/content", "files/file-x"])
def test_an_id_is_never_used_as_a_path(service: RunningFinetune, path: str) -> None:
    with pytest.raises(Exception, match="404"):
        urlopen(Request(f"{service.base_url}/{path}"))


def test_a_job_with_an_invalid_file_fails_and_names_the_line(client: OpenAI) -> None:
    made = client.fine_tuning.jobs.create(
        model="local/TINY",
        training_file=upload(client, BAD),
        suffix="mine",
        seed=7,
        metadata={"a": "b"},
        method={
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": "auto", "batch_size": 2}},
        },
    )
    assert (made.model, made.seed, made.metadata) == ("local/tiny", 7, {"a": "b"})
    assert made.hyperparameters.batch_size == 2
    job = ended(client, made.id)
    assert job.status == "failed"
    assert (job.error.code, job.error.param) == ("invalid_training_file", "training_file")
    assert "line 2 is not valid JSON" in job.error.message
    events = list(client.fine_tuning.jobs.list_events(made.id, limit=1))
    assert "line 2 is not valid JSON" in events[0].message
    assert events[0].level == "error"
    assert events[-1].message == "The job was created and is queued"
    assert len({event.id for event in events}) == len(events) == 3
    assert made.id in [job.id for job in client.fine_tuning.jobs.list(limit=1)]
    assert not client.fine_tuning.jobs.checkpoints.list(made.id).data
    with pytest.raises(BadRequestError, match="has ended already: failed"):
        client.fine_tuning.jobs.cancel(made.id)


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ({"model": "gpt-4o-mini"}, "model", "does not exist; choose from: local/tiny"),
        ({"training_file": "file-9"}, "training_file", "invalid training_file: file-9"),
        ({"validation_file": "../x"}, "validation_file", "invalid validation_file"),
        ({"suffix": "x" * 65}, "suffix", "at most 64"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"method": {"type": "dpo"}}, "method", "must be 'supervised'"),
        (
            {"hyperparameters": {"n_epochs": 0}},
            "hyperparameters.n_epochs",
            "give 'auto' or a number from 1 to 1000",
        ),
        (
            {"hyperparameters": {"learning_rate_multiplier": -1}},
            "hyperparameters.learning_rate",
            "give a number above 0",
        ),
    ],
)
def test_an_invalid_job_is_rejected(
    client: OpenAI, asked: dict[str, Any], param: str, words: str
) -> None:
    usual = {"model": "local/tiny", "training_file": upload(client)}
    with pytest.raises(BadRequestError, match=words) as error:
        client.fine_tuning.jobs.create(**{**usual, **asked})
    assert error.value.param == param


def test_unknown_jobs_and_models_are_named(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="Could not find fine tune: ftjob-9"):
        client.fine_tuning.jobs.retrieve("ftjob-9")
    with pytest.raises(NotFoundError, match="'ft:x' does not exist"):
        client.models.delete("ft:x")
    with pytest.raises(NotFoundError, match="local/tony"):
        client.chat.completions.create(
            model="local/tony", messages=[{"role": "user", "content": "hi"}]
        )
    assert [model.id for model in client.models.list()] == ["local/tiny", "local/smollm2-135m"]


def test_an_interrupted_job_is_resumed_by_the_next_service(tmp_path: Path) -> None:
    settings = FinetuneServerSettings(port=0, folder=tmp_path)
    with running(settings) as service, make_client(service) as client:
        file = upload(client, BAD)
        with pytest.raises(UsageError, match="another service is using"), running(settings):
            pass
    book = JobStore(tmp_path / "jobs")
    fields = {"model": "local/tiny", "training_file": file, "validation_file": None}
    numbers = {"n_epochs": 1, "batch_size": 1, "learning_rate": 0.1}
    more = {"hyperparameters": numbers, "user_provided_suffix": None, "seed": 0}
    left = book.create({**fields, **more})
    left.change(status="running")
    later = book.create({**fields, **more})
    later.change(status="cancelled")
    with running(settings) as service, make_client(service) as client:
        assert ended(client, left.id).status == "failed"
        assert ended(client, later.id).status == "cancelled"
        events = client.fine_tuning.jobs.list_events(left.id).data
        assert "Training is resumed" in [event.message for event in events]
        assert [job.id for job in client.fine_tuning.jobs.list()] == [later.id, left.id]
