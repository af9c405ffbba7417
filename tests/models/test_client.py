"""A remote model with a real server and scripted faults."""

import asyncio
import json
import logging
import traceback
from typing import Any

import pytest

from assay.core.secrets import Secret
from assay.errors import AssayError, BudgetSpent, ModelRefused, ModelRejected, ModelUnavailable
from assay.models.budget import Budget, upper_bound
from assay.models.cache import CachedModel, ReplyCache
from assay.models.client import RemoteModel
from assay.models.connections import Connections
from assay.models.faults import CallRetries
from assay.models.registry import Provider
from assay.models.throttle import Pace
from assay.types import ChatModel, ChatReply, ChatRequest
from tests.support import free_port

from .server import PRICE, Provided, Say, completion, entry, problem, providing, request

KEY = "sk-planted-0123456789abcdef"
QUICK = CallRetries(first_wait=0.002, longest_wait=0.004, patience=60.0)
BRIEF = CallRetries(first_wait=0.002, longest_wait=0.004, patience=0.02)


def model(server: Provided, **changes: Any) -> RemoteModel:
    fields: dict[str, Any] = {"key": KEY, "retries": QUICK}
    return RemoteModel(entry(), base_url=server.url, **{**fields, **changes})


async def ask(
    *script: Say, question: ChatRequest | None = None, **changes: Any
) -> tuple[ChatReply, Provided]:
    async with providing(*script) as server:
        asked = model(server, **changes)
        try:
            return await asked.reply(question or request()), server
        finally:
            await asked.close()


def told(*script: Say, **changes: Any) -> AssayError:
    """Return the exception that a call raises."""
    with pytest.raises(AssayError) as caught:
        asyncio.run(ask(*script, **{"retries": BRIEF, **changes}))
    return caught.value


def test_reply_has_tokens_cost_and_times() -> None:
    reply, server = asyncio.run(ask())
    assert reply.message.value == {"role": "assistant", "content": "north"}
    assert (reply.finish_reason, reply.retries) == ("stop", 0)
    usage = reply.usage
    assert (usage.prompt, usage.completion, usage.cached, usage.reasoning) == (100, 20, 40, 5)
    assert reply.cost_usd == pytest.approx((60 * 1.0 + 40 * 0.5 + 20 * 10.0) / 1e6)
    assert reply.latency_s > 0
    assert reply.waited_s >= 0
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_request_contains_the_call_and_the_registry_fields() -> None:
    question = request(temperature=0.0, seed=7)
    _, server = asyncio.run(ask(question=question))
    body = server.asked[0]
    assert body == {
        "model": "stub-1",
        "messages": [message.value for message in question.messages],
        "tools": question.tools.value,
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
    }


def test_fields_unknown_to_a_provider_are_omitted() -> None:
    provider = Provider(name="stub", limit_field="max_completion_tokens")
    row = entry(
        provider=provider, unsupported=("temperature", "seed"), send={"reasoning_effort": "low"}
    )

    async def play() -> dict[str, Any]:
        async with providing() as server:
            asked = RemoteModel(row, key=None, base_url=server.url)
            await asked.reply(request(temperature=0.0, seed=7))
            await asked.close()
            assert "authorization" not in server.headers[0]
            return server.asked[0]

    body = asyncio.run(play())
    assert body["max_completion_tokens"] == 64
    assert body["reasoning_effort"] == "low"
    assert not {"max_tokens", "temperature", "seed"} & set(body)


def test_openai_key_is_not_sent_to_other_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    _, server = asyncio.run(ask(key=None))
    assert KEY not in str(dict(server.headers[0]))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Say(429, problem("slow down"), {"retry-after": "0"}), id="rate limit"),
        pytest.param(Say(429, problem("slow down"), {"retry-after-ms": "5"}), id="in ms"),
        pytest.param(Say(500, problem("oops")), id="server error"),
        pytest.param(Say(502, b"<html>bad gateway</html>"), id="gateway"),
        pytest.param(Say(503, problem("overloaded")), id="overload"),
        pytest.param(Say(529, problem("overloaded")), id="overload of anthropic"),
        pytest.param(Say(408, problem("too slow")), id="request timeout"),
        pytest.param(Say(cut=True), id="cut in the middle"),
        pytest.param(Say(body=b'{"choices": [{'), id="half of the JSON"),
        pytest.param(Say(body=b""), id="empty body"),
        pytest.param(Say(body=b"[1]"), id="no object"),
        pytest.param(Say(body={"choices": []}), id="no choices"),
        pytest.param(Say(body={"choices": [{"message": None}]}), id="no message"),
        pytest.param(Say(body={"error": {"code": 502, "message": "late"}}), id="error as 200"),
        pytest.param(Say(body=b"[" * 100_000), id="deeply nested"),
    ],
)
def test_transient_fault_is_retried(fault: Say) -> None:
    reply, server = asyncio.run(ask(fault, fault))
    assert reply.message.text == "north"
    assert reply.retries == 2
    assert len(server.asked) == 3
    assert server.asked[0] == server.asked[2]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(Say(429, problem("no"), {"retry-after": "0"}), "rate_limit", id="rate"),
        pytest.param(Say(503, problem("no")), "overload", id="overload"),
        pytest.param(Say(500, problem("no")), "server_error", id="server error"),
        pytest.param(Say(cut=True), "connection", id="cut"),
        pytest.param(Say(body=b"{}"), "malformed", id="malformed"),
    ],
)
def test_persistent_fault_exhausts_the_retries(fault: Say, kind: str) -> None:
    error = told(*[fault] * 40)
    assert isinstance(error, ModelUnavailable)
    assert error.kind == kind
    assert "'stub'" in str(error)


def test_late_response_is_a_timeout_and_exhausts_the_retries() -> None:
    error = told(*[Say(late=0.5)] * 5, timeout=0.05)
    assert isinstance(error, ModelUnavailable)
    assert error.kind == "timeout"
    assert "0.05 s" in str(error)


def test_waiting_time_is_separate_from_latency() -> None:
    # On a busy machine, more answers than the first come too late.
    reply, _ = asyncio.run(ask(Say(late=0.5), *[Say(late=0.02)] * 20, timeout=0.2))
    assert 0.02 <= reply.latency_s < reply.waited_s
    assert reply.waited_s >= 0.2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Say(400, problem("x", "context_length_exceeded")), id="too long"),
        pytest.param(Say(400, problem("prompt is too long: 9 > 8")), id="too long, in words"),
        pytest.param(Say(413, problem("Request too large")), id="too large"),
        pytest.param(Say(400, problem("no", "content_filter")), id="filtered request"),
        pytest.param(Say(body=completion(finish="content_filter")), id="filtered reply"),
        pytest.param(
            Say(body=completion({"role": "assistant", "content": None, "refusal": "I won't"})),
            id="refusal",
        ),
    ],
)
def test_a_refusal_is_a_failure_of_the_model(answer: Say) -> None:
    assert isinstance(told(answer), ModelRefused)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        pytest.param(Say(401, problem("who?", "invalid_api_key")), "key", id="401"),
        pytest.param(Say(403, problem("not you")), "assay models", id="403"),
        pytest.param(Say(404, problem("no model", "model_not_found")), "name", id="404"),
        pytest.param(Say(402, problem("pay")), "billing", id="402"),
        pytest.param(Say(429, problem("x", "insufficient_quota")), "billing", id="quota"),
        pytest.param(Say(400, problem("bad")), "bad", id="400"),
        pytest.param(Say(307, b"", {"location": "http://127.0.0.1:1/"}), "base URL", id="307"),
        pytest.param(
            Say(400, problem("x", "unsupported_value", param="temperature")),
            'unsupported = ["temperature"]',
            id="unsupported",
        ),
        pytest.param(
            Say(400, problem("x", "unsupported_parameter", param="max_tokens")),
            "limit_field",
            id="limit field",
        ),
    ],
)
def test_permanent_error_is_not_retried(answer: Say, hint: str) -> None:
    error = told(answer)
    assert isinstance(error, ModelRejected)
    assert hint in str(error)


def test_unparsable_tool_call_counts_as_the_model_reply() -> None:
    answer = Say(400, problem("x", "tool_use_failed", failed_generation="<interact>"))
    reply, _ = asyncio.run(ask(answer))
    assert reply.message.value == {"role": "assistant", "content": "<interact>"}


def test_unavailable_server_is_retried_until_it_returns() -> None:
    async def play() -> ChatReply:
        port, failed = free_port(), asyncio.Event()
        asked = RemoteModel(
            entry(),
            key=None,
            base_url=f"http://127.0.0.1:{port}/v1",
            retries=CallRetries(first_wait=0.02, longest_wait=0.05, patience=60),
            on_fault=lambda *_: failed.set(),
        )
        waiting = asyncio.create_task(asked.reply(request()))
        await failed.wait()
        async with providing(port=port):
            reply = await waiting
            await asked.close()
        return reply

    assert asyncio.run(play()).retries >= 1


def test_dropped_connection_keeps_its_reservation() -> None:
    async def play() -> tuple[AssayError, float]:
        budget = Budget(1.0)
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        asked = RemoteModel(
            entry(),
            key=None,
            base_url=f"http://127.0.0.1:{port}/v1",
            budget=budget,
            retries=BRIEF,
        )
        with pytest.raises(ModelUnavailable) as caught:
            await asked.reply(request())
        await asked.close()
        server.close()
        return caught.value, budget.spent_usd

    error, spent = asyncio.run(play())
    assert isinstance(error, ModelUnavailable)
    assert error.kind == "connection"
    assert "lost" in str(error)
    assert spent > 0


def test_refused_connection_costs_nothing() -> None:
    async def play() -> tuple[AssayError, float]:
        budget = Budget(1.0)
        asked = RemoteModel(
            entry(), key=None, base_url="http://127.0.0.1:9/v1", budget=budget, retries=BRIEF
        )
        with pytest.raises(ModelUnavailable) as caught:
            await asked.reply(request())
        await asked.close()
        return caught.value, budget.spent_usd

    error, spent = asyncio.run(play())
    assert "could not be reached" in str(error)
    assert spent == 0


@pytest.mark.parametrize(
    ("script", "attempts_paid"),
    [
        pytest.param([Say(429, problem("x"), {"retry-after": "0"})], 0, id="rejected: free"),
        pytest.param([Say(500, problem("x"))], 1, id="server error: perhaps paid"),
        pytest.param([Say(cut=True)], 1, id="cut: perhaps paid"),
        pytest.param([Say(body=b"{}")] * 2, 2, id="malformed: perhaps paid"),
    ],
)
def test_possibly_billed_call_stays_reserved(script: list[Say], attempts_paid: int) -> None:
    budget = Budget(1.0)
    reply, _ = asyncio.run(ask(*script, budget=budget))
    assert reply.cost_usd is not None
    bound = upper_bound(request(), PRICE)
    expected = attempts_paid * bound + reply.cost_usd
    assert budget.spent_usd == pytest.approx(expected, abs=1e-11)
    assert budget.reserved_usd == 0


def test_reply_without_usage_costs_its_reservation() -> None:
    budget = Budget(1.0)
    answer = Say(body=completion(usage=None))
    reply, _ = asyncio.run(ask(answer, budget=budget))
    assert reply.cost_usd == pytest.approx(upper_bound(request(), PRICE))
    assert budget.spent_usd == pytest.approx(reply.cost_usd, abs=1e-11)


def test_cost_without_usage_and_budget_is_unknown() -> None:
    reply, _ = asyncio.run(ask(Say(body=completion(usage=None))))
    assert reply.cost_usd is None


def test_call_beyond_the_budget_is_not_sent() -> None:
    async def play() -> int:
        async with providing() as server:
            asked = model(server, budget=Budget(1e-6))
            with pytest.raises(BudgetSpent, match="larger --budget"):
                await asked.reply(request())
            await asked.close()
            return len(server.asked)

    assert asyncio.run(play()) == 0


def test_a_budget_needs_a_price() -> None:
    with pytest.raises(ModelRejected, match="--price IN/OUT"):
        RemoteModel(entry(price=None), key=None, budget=Budget(1.0))


def test_cancelled_call_keeps_its_reservation_and_frees_its_slot() -> None:
    async def play() -> tuple[float, int]:
        budget, pace = Budget(1.0), Pace()
        async with providing(Say(late=5)) as server:
            asked = model(server, budget=budget, pace=pace)
            task = asyncio.create_task(asked.reply(request()))
            while not server.asked:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asked.close()
        return budget.spent_usd, pace.open

    spent, open_calls = asyncio.run(play())
    assert spent == pytest.approx(upper_bound(request(), PRICE), abs=1e-11)
    assert open_calls == 0


def test_models_share_connections_and_the_last_one_closes_them() -> None:
    async def play() -> None:
        shared = Connections()
        async with providing() as server:
            first, second = model(server, http=shared), model(server, http=shared)
            await first.reply(request())
            await first.close()
            await first.close()
            await second.reply(request())
            http = shared.http()
            await second.close()
            assert http.is_closed

    asyncio.run(play())


def test_one_model_serves_one_event_loop_after_another() -> None:
    pace = Pace()
    for _ in range(2):
        asyncio.run(ask(pace=pace))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Say(401, problem(f"Incorrect API key provided: {KEY}")), id="401"),
        pytest.param(Say(400, problem(json.dumps({"key": KEY}))), id="400"),
        pytest.param(Say(500, f"Bearer {KEY} crashed".encode()), id="500"),
        pytest.param(
            Say(body=completion({"content": None, "refusal": f"not for {KEY}"})), id="refusal"
        ),
    ],
)
@pytest.mark.parametrize("key", [KEY, Secret(KEY)], ids=["text", "secret"])
def test_key_in_a_response_is_not_in_exceptions(
    answer: Say, key: str | Secret, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error = told(*[answer] * 40, key=key)
    text = "".join(traceback.format_exception(error)) + str(error) + repr(error)
    assert KEY not in text
    assert KEY not in caplog.text
    assert error.__context__ is None


def test_key_in_a_reply_is_redacted() -> None:
    call = {"id": KEY, "function": {"name": KEY, "arguments": json.dumps({"k": KEY})}}
    said = {"content": f"the key is {KEY}", "tool_calls": [call]}
    reply, _ = asyncio.run(ask(Say(body=completion(said))))
    assert KEY.encode() not in reply.message.encoded
    assert "[redacted]" in reply.message.text


def test_repr_of_a_model_hides_the_key() -> None:
    shown = RemoteModel(entry(), key=KEY)
    assert KEY not in repr(shown)
    typed: ChatModel = shown
    assert (typed.name, typed.provider) == ("stub", "stub")


def test_hundred_concurrent_calls_are_all_answered() -> None:
    async def play() -> list[ChatReply]:
        faults = [Say(500, problem("x")), Say(cut=True), Say(body=b"{}")] * 7
        async with providing(*faults) as server:
            asked = model(server)
            calls = (asked.reply(request(f"turn {n}")) for n in range(100))
            replies = await asyncio.gather(*calls)
            await asked.close()
            return list(replies)

    replies = asyncio.run(play())
    assert len(replies) == 100
    assert sum(reply.retries for reply in replies) == 21


def test_repeated_request_is_answered_from_the_cache(tmp_path: Any) -> None:
    async def play() -> tuple[list[ChatReply], int]:
        async with providing() as server:
            with ReplyCache(tmp_path / "replies.sqlite") as cache:
                asked = CachedModel(model(server), cache)
                replies = [await asked.reply(request(seed=seed)) for seed in (1, 1, 2)]
                await asked.close()
                return replies, len(server.asked)

    (first, again, _other), asked = asyncio.run(play())
    assert asked == 2
    assert again.message == first.message
    assert again.usage == first.usage
    assert (again.cost_usd, again.latency_s) == (0.0, 0.0)
