"""Estimates of a run, computed from a sample of it."""

from dataclasses import replace

import pytest

from assay.agents import AgentOptions
from assay.episodes.config import RunConfig
from assay.episodes.estimate import (
    BudgetFit,
    Quote,
    RunEstimate,
    Sample,
    estimate_run,
    play_sample,
)
from assay.models.budget import upper_bound
from assay.models.registry import Price
from assay.runs.prepare import Remaining
from assay.types import ChatRequest, Encoded, Message

REQUEST = ChatRequest(
    model="m",
    messages=[Message({"role": "user", "content": "x" * 1000})],
    tools=Encoded([]),
    max_tokens=100,
)
SAMPLE = Sample(
    request_bytes=[400, 800, 1200, 1200],
    reply_bytes=[80, 80, 80, 80],
    largest=REQUEST,
    history=2,
    where="builtin/forager",
    seconds=0.4,
)
PRICE = Price(input=1.0, output=10.0)


def config(**settings: object) -> RunConfig:
    chosen = {"models": ("m",), "episodes": 10, "max_turns": 8, "baselines": False} | settings
    return RunConfig(agent=AgentOptions(history=2, max_tokens=100), **chosen)  # type: ignore[arg-type]


def estimated(run: RunConfig, *quotes: Quote, spent: float = 0.0) -> RunEstimate:
    whole = Remaining(run.episodes, run.episodes * run.max_turns)
    left = {quote.model: whole for quote in quotes}
    return estimate_run(run, quotes, SAMPLE, left, spent=spent)


def quote(model: str = "m", **known: object) -> Quote:
    return Quote(model=model, **({"provider": "p", "price": PRICE} | known))  # type: ignore[arg-type]


def test_unplayed_turns_are_estimated_from_the_last_ones() -> None:
    assert SAMPLE.estimate_prompt_bytes(2) == 1200
    assert SAMPLE.estimate_prompt_bytes(4) == 3600
    assert SAMPLE.estimate_prompt_bytes(8) == 3600 + 4 * 1200


def test_tokens_are_a_quarter_of_the_bytes_of_all_turns() -> None:
    (one,) = estimated(config(), quote()).models
    assert (one.episodes, one.calls) == (10, 80)
    assert one.prompt_tokens == 10 * 8400 / 4
    assert one.completion_tokens == 80 * 80 / 4


def test_tokens_of_a_reply_stay_within_the_limit() -> None:
    short = replace(config(), agent=AgentOptions(history=2, max_tokens=5))
    (one,) = estimated(short, quote()).models
    assert one.completion_tokens == 80 * 5


def test_dollars_have_an_estimate_and_an_upper_bound() -> None:
    (one,) = estimated(config(), quote()).models
    assert one.dollars == pytest.approx(80 * (263 * 1.0 + 20 * 10.0) / 1e6)
    most = upper_bound(REQUEST, PRICE) + 2 * (100 - 80) * 1.0 / 1e6
    assert one.dollars_at_most == pytest.approx(80 * most)


def test_unpriced_model_is_named_and_excluded_from_the_dollars() -> None:
    run = estimated(config(), quote(), quote("free for all", price=None))
    assert run.unpriced == ("free for all",)
    assert run.models[1].dollars is None
    assert run.dollars == run.models[0].dollars


def test_bound_beyond_a_price_tier_is_unknown() -> None:
    run = estimated(config(), quote(price=replace(PRICE, up_to=300)))
    assert run.models[0].dollars is not None
    assert run.models[0].dollars_at_most is None
    assert run.unpriced == ("m",)


@pytest.mark.parametrize(
    ("settings", "at_once", "seconds"),
    [
        ({}, 10, 8 * 2.0),
        ({"max_concurrent_episodes": 4}, 4, 3 * 8 * 2.0),
        ({"max_connections": 1}, 1, 80 * 2.0),
    ],
    ids=["all-at-once", "few-episodes", "one-connection"],
)
def test_time_depends_on_the_number_of_open_calls(
    settings: dict[str, object], at_once: int, seconds: float
) -> None:
    run = estimated(config(**settings), quote())
    assert (run.models[0].at_once, run.seconds) == (at_once, seconds)
    assert run.latency_s == 2.0


def test_rate_limit_of_a_provider_increases_the_time() -> None:
    assert estimated(config(), quote(per_minute=16)).seconds == 300


def test_built_in_models_take_the_time_of_the_sample() -> None:
    here = quote(in_process=True, provider="builtin", price=Price(input=0, output=0))
    run = estimated(config(), here)
    assert run.seconds == pytest.approx(80 * 0.1)
    assert run.dollars == run.dollars_at_most == 0.0


def test_concurrent_models_take_the_time_of_the_longest_queue() -> None:
    quotes = [quote("a"), quote("b"), quote("c")]
    one_by_one = estimated(config(), *quotes)
    together = estimated(config(concurrent_models=True, max_concurrent_models=2), *quotes)
    assert one_by_one.seconds == 48
    assert together.seconds == 32
    shared = config(concurrent_models=True, max_concurrent_models=2, max_connections=10)
    assert [model.at_once for model in estimated(shared, *quotes).models] == [5, 5, 5]


def test_budget_is_compared_with_estimate_and_bound() -> None:
    run = estimated(config(), quote())
    assert run.fit is None
    expected, most = run.dollars, run.dollars_at_most
    assert replace(run, budget=most).fit is BudgetFit.SURELY
    assert replace(run, budget=most, spent=expected).fit is BudgetFit.LIKELY
    assert replace(run, budget=expected).fit is BudgetFit.LIKELY
    assert replace(run, budget=expected / 2).fit is BudgetFit.NO
    unknown = estimated(config(budget=1.0), quote(price=None))
    assert unknown.fit is BudgetFit.UNKNOWN


def test_finished_run_has_an_empty_estimate() -> None:
    run = estimate_run(config(), [quote()], SAMPLE, {"m": Remaining(0, 0)})
    assert (run.calls, run.seconds, run.dollars) == (0, 0.0, 0.0)


@pytest.mark.usefixtures("compiled_engine")
def test_sample_continues_beyond_a_full_history() -> None:
    sample = play_sample(RunConfig(agent=AgentOptions(history=3), max_turns=1_000_000))
    assert sample.turns == 43
    assert sample.request_bytes[0] < sample.request_bytes[1] < sample.request_bytes[3]
    lengths = sample.request_bytes[3:]
    assert max(lengths) < 1.2 * min(lengths)
    few = play_sample(RunConfig(max_turns=2))
    assert few.turns == len(few.reply_bytes) == 2


@pytest.mark.usefixtures("compiled_engine")
def test_sample_uses_the_chosen_view_and_history() -> None:
    full = play_sample(RunConfig(max_turns=12))
    short = play_sample(RunConfig(max_turns=12, agent=AgentOptions(view="short")))
    little = play_sample(RunConfig(max_turns=12, agent=AgentOptions(history=1)))
    assert max(short.request_bytes) < max(full.request_bytes)
    assert max(little.request_bytes) < max(full.request_bytes)
