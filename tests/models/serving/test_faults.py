"""Fault injection: seeded, independent of the call order, and its wire format."""

import http.client
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from assay.api.servers import serve_models
from assay.errors import UsageError
from assay.models.serving.app import RunningModels
from assay.models.serving.faults import Faults, Gate, ServedFault, ServingLimits, compute_fate

from .calls import HELLO, Got, post

LOST = "lost"


def hello(number: int) -> dict[str, Any]:
    return {**HELLO, "seed": number}


def outcome(address: str, number: int) -> str:
    """Return the outcome of one call as the client sees it."""
    try:
        got = post(address, hello(number))
    except (http.client.HTTPException, ConnectionError):
        return LOST
    return str(got.status) if got.status != 200 or is_completion(got) else "nonsense"


def is_completion(got: Got) -> bool:
    try:
        return bool(json.loads(got.body)["choices"])
    except (ValueError, LookupError):
        return False


def test_fault_depends_only_on_seed_request_and_attempt() -> None:
    faults = Faults(error_rate=0.3, cut_rate=0.3, jitter=1.0, seed=5)
    fates = [compute_fate(faults, b"%d" % i, 0) for i in range(50)]
    assert [compute_fate(faults, b"%d" % i, 0) for i in range(50)] == fates
    others = Faults(error_rate=0.3, cut_rate=0.3, jitter=1.0, seed=6)
    assert [compute_fate(others, b"%d" % i, 0) for i in range(50)] != fates
    assert [compute_fate(faults, b"%d" % i, 1) for i in range(50)] != fates


def test_every_fault_occurs_at_its_configured_rate() -> None:
    faults = Faults(
        latency=1.0,
        jitter=0.5,
        late_seconds=9.0,
        error_rate=0.1,
        busy_rate=0.1,
        cut_rate=0.1,
        malformed_rate=0.1,
        late_rate=0.1,
    )
    fates = [compute_fate(faults, b"%d" % i, 0) for i in range(10_000)]
    counts = Counter(fate.fault for fate in fates)
    # A count is binomial with a mean of 1,000 and a deviation of 30.
    assert all(850 < counts[fault] < 1150 for fault in ServedFault)
    late = [fate.seconds for fate in fates if fate.fault is ServedFault.LATE]
    others = [fate.seconds for fate in fates if fate.fault is not ServedFault.LATE]
    assert 1.0 <= min(others) < 1.01
    assert 1.49 < max(others) < 1.5
    assert 10.0 <= min(late) < max(late) < 10.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"latency": -1.0},
        {"latency": float("nan")},
        {"jitter": 1e9},
        {"error_rate": 1.5},
        {"cut_rate": float("nan")},
        {"error_rate": 0.6, "cut_rate": 0.6},
    ],
    ids=str,
)
def test_invalid_fault_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Faults(**wrong)


@pytest.fixture(scope="module")
def faulty() -> Any:
    faults = Faults(error_rate=0.2, busy_rate=0.1, cut_rate=0.2, malformed_rate=0.2, seed=1)
    with serve_models(port=0, faults=faults) as server:
        yield server


def test_faults_do_not_depend_on_the_order_of_calls(faulty: RunningModels) -> None:
    faulty.reset()
    numbers = list(range(120))
    there = [outcome(faulty.address, number) for number in numbers]
    counts = faulty.stats()["outcomes"]
    faulty.reset()
    with ThreadPoolExecutor(8) as threads:
        back = [*threads.map(lambda n: outcome(faulty.address, n), numbers[::-1])]
    assert back[::-1] == there
    assert set(there) == {"200", "500", "502", "503", "429", LOST, "nonsense"}
    again = faulty.stats()["outcomes"]
    assert counts == again
    assert counts["answered"] == there.count("200")
    assert counts["cut"] == there.count(LOST)
    assert counts["malformed"] == there.count("nonsense")
    assert counts["busy"] == there.count("429")
    assert counts["error"] == sum(outcome.startswith("50") for outcome in there)


def test_retried_request_succeeds(faulty: RunningModels) -> None:
    faulty.reset()
    for number in range(40):
        assert any(outcome(faulty.address, number) == "200" for _ in range(30))
    told = faulty.stats()
    assert told["unique"] == 40
    assert told["repeats"] == told["calls"] - 40
    assert told["answered_again"] == 0


def test_streamed_responses_have_faults() -> None:
    def seen(address: str) -> tuple[bool, bytes]:
        """Return whether the stream ended normally, and its content."""
        try:
            return True, post(address, {**HELLO, "stream": True}).body
        except http.client.IncompleteRead as error:
            return False, error.partial
        except ConnectionError:
            return False, b""

    with serve_models(port=0, faults=Faults(cut_rate=1.0)) as server:
        ends = [seen(server.address) for _ in range(8)]
        assert not any(whole for whole, _ in ends)
        assert len({part for _, part in ends}) > 1
    with serve_models(port=0, faults=Faults(malformed_rate=1.0)) as server:
        whole, stream = seen(server.address)
        assert whole
        assert not stream.endswith(b"[DONE]\n\n")
        with pytest.raises(ValueError, match="Unterminated"):
            json.loads(stream.strip().split(b"\n\n")[-1].removeprefix(b"data: "))


def test_delayed_response_is_valid() -> None:
    faults = Faults(late_rate=1.0, late_seconds=0.05)
    with serve_models(port=0, faults=faults) as server:
        assert is_completion(post(server.address, HELLO))
        assert server.stats()["outcomes"]["late"] == 1


def test_token_bucket_allows_a_burst_and_then_single_calls() -> None:
    gate = Gate(ServingLimits(per_minute=60, burst=3))
    for _ in range(3):
        assert gate.refusal(100.0) is None
        gate.enter(100.0)
    refused = gate.refusal(100.0)
    assert refused is not None
    assert refused.seconds == pytest.approx(1.0)
    assert gate.refusal(100.9) is not None
    assert gate.refusal(100.0 + refused.seconds) is None
    gate.enter(101.0)
    assert gate.refusal(101.5) is not None
    # After a long pause the bucket is full, and holds no more than before.
    for _ in range(3):
        assert gate.refusal(500.0) is None
        gate.enter(500.0)
    assert gate.refusal(500.0) is not None


def test_calls_per_minute_are_limited() -> None:
    gate = Gate(ServingLimits(per_minute=300))
    let_in = []
    for tick in range(120_000):  # two minutes
        if gate.refusal(tick / 1000) is None:
            gate.enter(tick / 1000)
            let_in.append(tick)
    # Five at first, which a second is worth, and five a second from then on.
    assert len([tick for tick in let_in if tick < 60_000]) in (304, 305)
    assert len(let_in) in (604, 605)


def test_rejected_call_gets_a_retry_after_header() -> None:
    limits = ServingLimits(per_minute=100)
    with serve_models(port=0, limits=limits) as server:
        first, second = (post(server.address, hello(number)) for number in range(2))
        assert (first.status, second.status) == (200, 429)
        wait = int(second.headers["retry-after-ms"])
        assert 0 < wait <= 600
        assert second.headers["retry-after"] == "1"
        assert second.headers["x-ratelimit-limit-requests"] == "1"
        assert second.headers["x-ratelimit-remaining-requests"] == "0"
        error = json.loads(second.body)["error"]
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "requests")
        told = server.stats()
        assert told["outcomes"]["rate_limited"] == 1
        # What was turned away has no fate: that comes with the first attempt let in.
        assert (told["unique"], told["repeats"]) == (1, 0)


def test_open_calls_are_limited_and_more_are_rejected() -> None:
    limits, faults = ServingLimits(at_once=2), Faults(latency=0.4)
    with (
        serve_models(port=0, limits=limits, faults=faults) as server,
        ThreadPoolExecutor(6) as threads,
    ):
        got = [*threads.map(lambda n: post(server.address, hello(n)), range(6))]
        statuses = Counter(response.status for response in got)
        told = server.stats()
        assert statuses[200] == told["outcomes"]["answered"]
        assert statuses[429] == told["outcomes"]["too_many"] > 0
        assert told["max_in_flight"] == 2
        for response in got:
            if response.status == 429:
                assert 0 < int(response.headers["retry-after-ms"]) <= 400


@pytest.mark.parametrize(
    "wrong",
    [{"per_minute": 0}, {"at_once": -1}, {"burst": 3}, {"per_minute": 10**9}],
    ids=str,
)
def test_invalid_limits_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        ServingLimits(**wrong)
