import random
from email.utils import formatdate

import pytest

from assay.models.faults import CallRetries, retry_after
from assay.models.throttle import Allowance, read_allowance

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"retry-after": "7"}, 7.0, id="seconds"),
        pytest.param({"retry-after": " 0.5 "}, 0.5, id="a part of a second"),
        pytest.param({"retry-after-ms": "250", "retry-after": "9"}, 0.25, id="milliseconds"),
        pytest.param({"retry-after": formatdate(NOW + 30, usegmt=True)}, 30.0, id="date"),
        pytest.param({"retry-after": formatdate(NOW - 30, usegmt=True)}, 0.0, id="past"),
        pytest.param({"retry-after": "soon"}, None, id="words"),
        pytest.param({"retry-after": "-3"}, None, id="negative"),
        pytest.param({"retry-after": "nan"}, None, id="no number"),
        pytest.param({"retry-after": "9" * 400}, 600.0, id="for ever"),
        pytest.param({"retry-after": "86400"}, 600.0, id="a day"),
    ],
)
def test_retry_after_header_is_parsed(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_retry_delays_double_up_to_a_maximum_with_jitter() -> None:
    retries = CallRetries(first_wait=1.0, longest_wait=8.0)
    waits = [retries.wait(attempt, random.Random(attempt)) for attempt in range(100)]
    for attempt, wait in enumerate(waits):
        most = min(8.0, 2.0 ** min(attempt, 10))
        assert most / 2 <= wait <= most
    assert len(set(waits)) > 90


def test_equal_seeds_give_equal_retry_delays() -> None:
    one, other = random.Random(4), random.Random(4)
    retries = CallRetries()
    assert [retries.wait(n, one) for n in range(9)] == [
        retries.wait(n, other) for n in range(9)
    ]


@pytest.mark.parametrize(
    ("headers", "allowance"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param(
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-reset-requests": "120ms",
            },
            Allowance(499, 1 / 0.12),
            id="openai",
        ),
        pytest.param(
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "1m0.5s",
            },
            Allowance(0, 60 / 60.5),
            id="minutes",
        ),
        pytest.param(
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "40",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:40Z",
            },
            Allowance(40, 0.5),
            id="anthropic",
        ),
        pytest.param({"x-ratelimit-remaining-requests": "many"}, None, id="words"),
        pytest.param(
            {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1z"},
            Allowance(3, None),
            id="unknown unit",
        ),
    ],
)
def test_rate_limit_headers_are_parsed(
    headers: dict[str, str], allowance: Allowance | None
) -> None:
    assert read_allowance(headers, NOW) == allowance
