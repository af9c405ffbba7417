"""Requirements for any service of the protocol, tested through its address and the client.

The tests use only `Speaker`: to test another service, add a fixture that returns one for it.
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from assay.errors import ModelRejected
from assay.finetune.client import FinetuneClient, RemoteJob
from assay.finetune.follow import WatchedJob, watch

from .server import Service


class Speaker(NamedTuple):
    """A service under test."""

    client: FinetuneClient
    base_model: str


@pytest.fixture
def speaker(service: Service) -> Iterator[Speaker]:
    with FinetuneClient(service.url, key=None) as client:
        yield Speaker(client, "local/tiny")


def started(speaker: Speaker, data: Path) -> RemoteJob:
    digest = sha256(data.read_bytes()).hexdigest()
    file = speaker.client.upload(data, data.name, digest)
    assert file.bytes == data.stat().st_size
    return speaker.client.create_job(
        {
            "model": speaker.base_model,
            "training_file": file.id,
            "suffix": "crafter",
            "seed": 1,
            "hyperparameters": {"n_epochs": 1, "batch_size": 4, "learning_rate": 1e-3},
        }
    )


def test_a_job_ends_with_a_model_that_is_listed(speaker: Speaker, data: Path) -> None:
    job = started(speaker, data)
    updates = list(watch([WatchedJob(speaker.client, job.id)], interval=0.05))
    last = updates[-1].job
    assert last is not None
    assert last.succeeded
    assert last.fine_tuned_model is not None
    assert last.fine_tuned_model.startswith("ft:")
    assert "crafter" in last.fine_tuned_model
    assert last.trained_tokens
    assert last.fine_tuned_model in (speaker.client.list_models() or [])
    assert job.id in [listed.id for listed in speaker.client.list_jobs()]
    losses = [event for update in updates for event in update.events if event.metrics]
    assert losses
    assert all("train_loss" in event.metrics and event.step for event in losses)
    assert [event.step for event in losses] == sorted(event.step or 0 for event in losses)


def test_a_running_job_can_be_cancelled(speaker: Speaker, data: Path) -> None:
    job = started(speaker, data)
    assert speaker.client.cancel_job(job.id).status == "cancelled"
    assert speaker.client.get_job(job.id).status == "cancelled"


def test_unknown_ids_are_rejected_without_a_retry(speaker: Speaker, data: Path) -> None:
    started(speaker, data)
    for request in (
        {"model": "no-such-model", "training_file": "file-1"},
        {"model": speaker.base_model, "training_file": "file-none"},
    ):
        with pytest.raises(ModelRejected, match="answered 4"):
            speaker.client.create_job(request)
    with pytest.raises(ModelRejected, match="answered 404"):
        speaker.client.get_job("ftjob-none")
    assert not speaker.client.has_file("file-none")


def test_the_service_reports_its_health(speaker: Speaker) -> None:
    assert speaker.client.check_health()
    assert speaker.base_model in (speaker.client.list_models() or [])
