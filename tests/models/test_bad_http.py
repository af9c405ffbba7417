"""Invalid, endless or absurd responses are infrastructure errors, bounded and reported."""

import asyncio
import gzip
import json

import pytest

from assay.errors import ModelRejected, ModelUnavailable
from assay.models.budget import Budget
from assay.models.client import RemoteModel
from assay.models.connections import MOST_BYTES
from assay.models.faults import CallRetries
from assay.types import ChatReply

from .bad_http import BAD, framed, nested_arguments, raw_providing
from .server import completion, entry, request

QUICK = CallRetries(first_wait=0.002, longest_wait=0.004, patience=60.0)
BRIEF = CallRetries(first_wait=0.002, longest_wait=0.004, patience=0.005)


def ask(
    *script: bytes, retries: CallRetries = QUICK, budget: Budget | None = None
) -> tuple[ChatReply, list[str]]:
    """Return the final reply, and the messages of failed attempts."""
    said: list[str] = []

    async def play() -> ChatReply:
        async with raw_providing(script) as server:
            asked = RemoteModel(
                entry(),
                key=None,
                base_url=server.url,
                retries=retries,
                budget=budget,
                timeout=5,
                on_fault=lambda words, *_: said.append(words),
            )
            try:
                return await asked.reply(request())
            finally:
                await asked.close()

    return asyncio.run(play()), said


@pytest.mark.parametrize("answer", [pytest.param(raw, id=name) for name, raw in BAD.items()])
def test_bad_http_is_retried_and_reported(answer: bytes) -> None:
    reply, said = ask(answer, answer)
    assert reply.message.text == "north"
    assert reply.retries == 2
    assert "stub (for 'stub')" in said[0]
    assert "\n" not in said[0]


def test_persistent_bad_http_is_not_a_failure_of_the_model() -> None:
    with pytest.raises(ModelUnavailable, match="bad HTTP: Bad status line") as caught:
        ask(*[BAD["not HTTP at all"]] * 40, retries=BRIEF)
    assert caught.value.kind == "malformed"


def test_arguments_that_are_nested_too_deep_are_malformed() -> None:
    reply, _ = ask(framed(json.dumps(nested_arguments(100)).encode()))
    assert reply.retries == 0
    reply, said = ask(framed(json.dumps(nested_arguments(101)).encode()))
    assert reply.retries == 1
    assert "nested too deep" in said[0]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_endless_reply_is_not_read_completely(packed: bool) -> None:
    body = b" " * (2 * MOST_BYTES)
    head = b""
    if packed:
        body, head = gzip.compress(body, 1), b"content-encoding: gzip\r\n"
    reply, said = ask(framed(body, head))
    assert reply.retries == 1
    assert f"longer than {MOST_BYTES:,} bytes" in said[0]


def test_oversized_reply_is_a_bad_reply_after_three_attempts() -> None:
    long, budget = framed(b" " * (MOST_BYTES + 1)), Budget(1.0)
    reply, said = ask(*[long] * 3, budget=budget)
    assert (reply.retries, reply.finish_reason, len(said)) == (2, "length", 2)
    words = f"(a reply that was not read: it is longer than {MOST_BYTES:,} bytes)"
    assert reply.message.value["content"] == words
    assert reply.cost_usd
    assert budget.spent_usd == pytest.approx(3 * reply.cost_usd), "each can have been charged"


def test_reply_with_absurd_token_count_stops_only_its_model() -> None:
    usage = {"prompt_tokens": 10**12, "completion_tokens": 1}
    budget = Budget(1.0)
    with pytest.raises(ModelRejected, match="1,000,000,000,001 tokens") as caught:
        ask(framed(json.dumps(completion(usage=usage)).encode()), budget=budget)
    assert "not called again" in str(caught.value)
    assert budget.spent_usd < 0.01, "it counts with what the call can have cost"


def test_requested_retry_delay_is_reported() -> None:
    waits: list[float] = []

    async def play() -> None:
        answer = framed(b"{}", b"retry-after: 0.3\r\n", b"429 Too Many Requests")
        async with raw_providing([answer]) as server:
            asked = RemoteModel(
                entry(),
                key=None,
                base_url=server.url,
                retries=QUICK,
                on_fault=lambda _, __, wait: waits.append(wait),
            )
            await asked.reply(request())
            await asked.close()

    asyncio.run(play())
    assert waits == [0.3]
