"""The client against a service over real HTTP: uploads, jobs and errors."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.core.secrets import Secret
from assay.errors import ModelRejected, ServiceError, UsageError
from assay.finetune.backends import BACKENDS, find_backend
from assay.finetune.client import FinetuneClient
from assay.finetune.follow import WatchedJob, watch
from assay.finetune.options import TuningOptions
from assay.finetune.plan import plan_jobs, write_subset
from assay.models.faults import CallRetries
from assay.models.registry import FINE_TUNING
from assay.models.registry_file import load_registry

from .server import Fault, Service

SOON = CallRetries(patience=0.5, first_wait=0.001, longest_wait=0.01)
KEY = "sk-planted-0123456789abcdef"


@pytest.fixture
def faults() -> list[str]:
    return []


@pytest.fixture
def client(service: Service, faults: list[str]) -> Iterator[FinetuneClient]:
    made = FinetuneClient(
        service.url,
        key=Secret(KEY),
        timeout=5.0,
        retries=SOON,
        on_fault=lambda reason, wait: faults.append(reason),
    )
    yield made
    made.close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def upload(client: FinetuneClient, path: Path, **more: object) -> str:
    return client.upload(path, path.name, digest(path), **more).id  # type: ignore[arg-type]


def request(client: FinetuneClient, data: Path, **changes: object) -> dict[str, object]:
    return {"model": "gpt-4o-mini", "training_file": upload(client, data), **changes}


def test_a_file_is_uploaded_unchanged_with_progress(
    client: FinetuneClient, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"messages": []}\n' * 20_000)
    progress_calls: list[tuple[int, int]] = []
    name = upload(
        client, path, progress=lambda done, total: progress_calls.append((done, total))
    )
    assert service.files[name] == path.read_bytes()
    assert service.names[name] == "data.jsonl"
    assert len(progress_calls) > 3
    assert progress_calls[-1] == (path.stat().st_size, path.stat().st_size)
    assert client.has_file(name)
    assert not client.has_file("file-none")


def test_a_file_that_changes_during_the_upload_is_rejected(
    client: FinetuneClient, data: Path
) -> None:
    with pytest.raises(UsageError, match="changed during the upload"):
        client.upload(data, data.name, "0" * 64)


def test_an_upload_is_retried_after_a_lost_connection_and_a_rate_limit(
    client: FinetuneClient, service: Service, data: Path, faults: list[str]
) -> None:
    service.faults["POST files"].extend(
        [Fault(cut=True), Fault(429, {"retry-after": "0"}, "slow down")]
    )
    name = upload(client, data)
    assert service.files[name] == data.read_bytes()
    assert len(faults) == 2
    assert "connection" in faults[0]
    assert "429" in faults[1]


def test_a_created_job_ends_with_a_model(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.script = ("validating_files", "queued", "running", "running", "succeeded")
    service.steps_per_poll = 10
    job = client.create_job(request(client, data, suffix="x", hyperparameters={"n_epochs": 2}))
    assert (job.status, job.model, job.suffix) == ("validating_files", "gpt-4o-mini", "x")
    updates = list(watch([WatchedJob(client, job.id)], interval=0.0))
    states = [update.job.status for update in updates if update.job]
    assert states == ["validating_files", "queued", "running", "running", "succeeded"]
    last = updates[-1].job
    assert last is not None
    assert last.fine_tuned_model is not None
    assert last.fine_tuned_model.startswith("ft:gpt-4o-mini:org-test123:x:")
    assert last.trained_tokens == 2468
    steps = [event.step for update in updates for event in update.events if event.metrics]
    assert steps == list(range(1, 21))
    ids = [event.id for update in updates for event in update.events]
    assert len(ids) == len(set(ids))


def test_events_are_read_over_several_pages(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.total_steps = service.steps_per_poll = 250
    job = client.create_job(request(client, data))
    for _ in range(3):
        client.get_job(job.id)
    events = client.list_events(job.id)
    assert [event.step for event in events if event.metrics] == list(range(1, 251))
    assert client.list_events(job.id, {event.id for event in events}) == []


def test_a_failed_job_has_its_reason(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.script = ("validating_files", "failed")
    job = client.create_job(request(client, data))
    *_, last = watch([WatchedJob(client, job.id)], interval=0.0)
    assert last.job is not None
    assert (last.job.status, last.job.error) == ("failed", service.error)


def test_a_job_is_cancelled_once(client: FinetuneClient, service: Service, data: Path) -> None:
    job = client.create_job(request(client, data))
    assert client.cancel_job(job.id).status == "cancelled"
    with pytest.raises(ModelRejected, match="cannot be cancelled"):
        client.cancel_job(job.id)


def test_a_request_with_a_lost_response_does_not_create_a_second_job(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.faults["POST jobs"].append(Fault(after=True))
    job = client.create_job(request(client, data))
    assert [*service.jobs] == [job.id]
    assert service.count("POST", "fine_tuning/jobs") == 1


def test_a_request_that_did_not_arrive_is_retried(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    body = request(client, data)
    first = client.create_job(body)
    service.faults["POST jobs"].extend([Fault(cut=True), Fault(429, {"retry-after": "0"})])
    second = client.create_job(body)
    assert [*service.jobs] == [first.id, second.id]


def test_a_lost_job_is_found_by_its_settings_if_the_service_keeps_no_metadata(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.keeps_metadata = False
    service.faults["POST jobs"].append(Fault(after=True))
    body = request(client, data, suffix="x")
    first = client.create_job(body)
    service.faults["POST jobs"].append(Fault(after=True))
    second = client.create_job(body, existing={first.id})
    assert [*service.jobs] == [first.id, second.id]
    service.faults["POST jobs"].append(Fault(after=True))
    with pytest.raises(ServiceError, match=f"several jobs .*{second.id}"):
        client.create_job(body)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(Fault(401, message=f"bad key {KEY}"), "check the key", id="401"),
        pytest.param(Fault(403, message="no"), "not permitted to do this", id="403"),
        pytest.param(Fault(404, message="no"), "check the id", id="404"),
        pytest.param(Fault(307, {"location": "http://x"}), "another address", id="redirect"),
        pytest.param(
            Fault(429, message="no credit", code="insufficient_quota"),
            "no credit left",
            id="no quota",
        ),
    ],
)
def test_a_permanent_error_is_raised_once_without_the_key(
    client: FinetuneClient, service: Service, fault: Fault, words: str
) -> None:
    service.faults["*"].append(fault)
    with pytest.raises(ModelRejected, match=words) as raised:
        client.get_job("ftjob-1")
    assert KEY not in str(raised.value)
    assert len(service.requests) == 1


def test_an_unknown_model_is_rejected_with_the_message_of_the_service(
    client: FinetuneClient, data: Path
) -> None:
    with pytest.raises(ModelRejected, match="`gpt-9` does not exist"):
        client.create_job(request(client, data, model="gpt-9"))


def test_retries_end_and_the_error_names_the_last_fault(
    service: Service, client: FinetuneClient
) -> None:
    service.faults["*"].extend([Fault(503)] * 500)
    with pytest.raises(ServiceError, match=r"the list of jobs failed \d+ times.*503"):
        client.list_jobs()


def test_an_unreachable_service_is_reported_with_its_address() -> None:
    once = CallRetries(patience=0)
    with (
        FinetuneClient("http://127.0.0.1:1/v1", key=None, retries=once) as client,
        pytest.raises(ServiceError, match=r"127.0.0.1:1/v1.*could not be reached"),
    ):
        client.check_health()


def test_watching_a_job_survives_faults_and_backs_off(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    job = client.create_job(request(client, data))
    client._retries = CallRetries(patience=0)
    service.faults[f"GET fine_tuning/jobs/{job.id}"].extend([Fault(cut=True)] * 3)
    waits: list[float] = []
    updates = list(watch([WatchedJob(client, job.id)], interval=0.0, sleep=waits.append))
    assert [update.trouble is None for update in updates[:4]] == [False, False, False, True]
    assert waits[:4] == [1.0, 2.0, 4.0, 0.0]
    assert updates[-1].job is not None


def test_watching_a_job_ends_after_the_retry_limit_and_names_the_next_command(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    job = client.create_job(request(client, data))
    client._retries = CallRetries(patience=0)
    service.faults[f"GET fine_tuning/jobs/{job.id}"].extend([Fault()] * 50)
    with pytest.raises(ServiceError, match=f"assay finetune wait {job.id}"):
        list(watch([WatchedJob(client, job.id)], patience=10, sleep=lambda _: None))


def test_a_job_of_a_service_without_events_can_be_watched(
    client: FinetuneClient, service: Service, data: Path
) -> None:
    service.has_events = False
    job = client.create_job(request(client, data))
    updates = list(watch([WatchedJob(client, job.id)], interval=0.0))
    assert updates[-1].job is not None
    assert updates[-1].job.succeeded
    assert service.count("GET", f"fine_tuning/jobs/{job.id}/events") == 1


def test_the_authorization_header_is_sent_only_with_a_key(
    client: FinetuneClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-0123456789abcdef")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    client.list_jobs()
    with FinetuneClient(service.url, key=None) as other:
        other.list_jobs()
    first, second = service.headers
    assert first["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in second
    assert "openai-organization" not in first


def test_health_is_the_status_of_the_service_or_its_number_of_models(
    client: FinetuneClient, service: Service
) -> None:
    assert client.check_health() == {"status": "ok"}
    service.faults["GET health"].append(Fault(404))
    assert client.check_health() == {"models": 8}


def taken(data: Path, rows: int, tmp_path: Path, seed: int = 1) -> list[bytes]:
    with (tmp_path / "part").open("w+b") as out:
        write_subset(data, rows, seed, out)
        out.seek(0)
        return out.readlines()


def test_subsets_are_nested_ordered_and_determined_by_the_seed(
    data: Path, tmp_path: Path
) -> None:
    whole = data.read_bytes().splitlines(keepends=True)
    small, large = taken(data, 5, tmp_path), taken(data, 12, tmp_path)
    assert set(small) < set(large) < set(whole)
    assert [line for line in whole if line in large] == large
    assert taken(data, 5, tmp_path) == small
    assert taken(data, 5, tmp_path, seed=2) != small
    assert taken(data, 24, tmp_path) == whole
    with pytest.raises(UsageError, match=r"--subset 25 .* has 24 rows"):
        taken(data, 25, tmp_path)


def test_each_combination_of_values_is_one_job() -> None:
    synth = find_backend("synth")
    jobs = plan_jobs(
        synth,
        synth.models[:2],
        TuningOptions(subsets=(100, 300), epochs=(1, 3), learning_rates=(1e-5,)),
        rows=1000,
        tokens=10_000,
    )
    assert len(jobs) == 8
    assert [(job.model.name, job.subset, job.epochs) for job in jobs[:3]] == [
        ("Qwen/Qwen2.5-0.5B-Instruct", 100, 1),
        ("Qwen/Qwen2.5-0.5B-Instruct", 100, 3),
        ("Qwen/Qwen2.5-0.5B-Instruct", 300, 1),
    ]
    assert jobs[1].trained_tokens == 3000
    assert jobs[1].steps == 75
    assert jobs[1].estimate_seconds(None) == pytest.approx(3000 * 1800 / 1e6)
    assert jobs[1].estimate_cost() is None
    assert jobs[1].estimate_cost(8.0) == pytest.approx(0.024)


def test_requests_have_the_format_of_each_service() -> None:
    synth, openai = find_backend("synth"), find_backend("openai")
    sent = plan_jobs(synth, synth.models[:1], TuningOptions(suffix="s"), rows=10, tokens=10)[0]
    assert sent.request("file-1", None) == {
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "training_file": "file-1",
        "training_type": "sft",
        "suffix": "s",
        "seed": 42,
        "hyperparameters": {
            "n_epochs": 3,
            "batch_size": 4,
            "learning_rate": 5e-5,
            "use_qlora": True,
            "lora_r": 16,
            "lora_alpha": 32,
            "lora_dropout": 0.1,
        },
    }
    sent = plan_jobs(
        openai, openai.models[:1], TuningOptions(multipliers=(2.0,)), rows=10, tokens=10
    )[0]
    hyperparameters = {"n_epochs": 3, "batch_size": 4, "learning_rate_multiplier": 2.0}
    assert sent.request("file-1", "file-2") == {
        "model": "gpt-4o-mini",
        "training_file": "file-1",
        "validation_file": "file-2",
        "seed": 42,
        "method": {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
    }


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        pytest.param("openai", {}, "9 rows are too few .* minimum is 10", id="few"),
        pytest.param("synth", {"subsets": (99,)}, "--subset 99 .* 1 to 50", id="subset"),
        pytest.param(
            "openai", {"learning_rates": (1e-5,)}, "--learning-rate-multiplier", id="rate"
        ),
        pytest.param("synth", {"multipliers": (2.0,)}, "give --learning-rate", id="multiplier"),
        pytest.param("synth", {"learning_rates": (0.0,)}, "a number above 0", id="zero"),
        pytest.param("synth", {"suffix": "a/b"}, "--suffix 'a/b' is not allowed", id="suffix"),
    ],
)
def test_an_invalid_plan_is_rejected(name: str, given: dict[str, Any], words: str) -> None:
    backend = find_backend(name)
    tuning, rows = TuningOptions(**given), 50 if given else 9
    with pytest.raises(UsageError, match=words):
        plan_jobs(backend, backend.models, tuning, rows=rows, tokens=5)


def test_models_are_found_in_any_case_and_unknown_ones_are_reported_with_the_nearest() -> None:
    synth, openai = find_backend("Synth"), find_backend("openai")
    found = synth.find_model("qwen/qwen2.5-7b-instruct")
    assert found is not None
    assert found.name == "Qwen/Qwen2.5-7B-Instruct"
    dated = openai.find_model("gpt-4o-mini-2024-07-18")
    assert dated is not None
    assert (dated.name, dated.price) == ("gpt-4o-mini-2024-07-18", 3.0)
    assert synth.find_model("Qwen/Qwen2.5-8B-Instruct") is None
    error = synth.make_unknown_model_error("Qwen/Qwen2.5-8B-Instruct")
    assert "did you mean 'Qwen/Qwen2.5-7B-Instruct'" in str(error)
    with pytest.raises(UsageError, match="unknown backend 'opnai'; did you mean 'openai'"):
        find_backend("opnai")


def test_every_backend_is_a_registered_provider_with_fine_tuning() -> None:
    assert set(BACKENDS) == set(FINE_TUNING) <= set(load_registry().providers)
    assert [name for name, backend in BACKENDS.items() if backend.loopback] == ["local"]


def test_invalid_values_in_a_job_are_tolerated() -> None:
    from assay.finetune.client import JobEvent, RemoteJob

    job = RemoteJob.parse({"id": "j", "status": 7, "error": f"key {KEY}\x1b[2J", "seed": "x"})
    assert (job.status, job.trained_tokens) == ("unknown", None)
    assert job.error is not None
    assert KEY not in job.error
    assert "\x1b" not in job.error
    event = JobEvent.parse(
        {"id": "e", "data": {"train_loss": float("nan"), "valid_loss": "1", "step": 3.0}}
    )
    assert (event.step, event.metrics) == (3, {})
    with pytest.raises(ServiceError, match="a job without an id"):
        RemoteJob.parse({})
