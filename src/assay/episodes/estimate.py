"""Estimate of a run before it starts: calls, tokens, dollars and time.

The estimate is computed from a sample. A built-in model plays a few turns in the first world of
the run, with the requests that the models would get. It needs no key and no network, and leaves
no files. Dollars are given twice: the expected cost, and an upper bound that holds for any
tokenizer and any reply length.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from assay.agents.builtin import make_builtin
from assay.core.aio import run_in_own_loop
from assay.crafter.world import warmup
from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.episodes.environments import UserEnvironment
from assay.episodes.kind import EpisodeKind, EpisodeParts
from assay.episodes.spec import EpisodeSpec
from assay.errors import ModelRefused
from assay.models.budget import cost, upper_bound
from assay.models.registry import Price
from assay.runs.control import Interrupted
from assay.runs.engine import Context
from assay.runs.looks import AHEAD
from assay.runs.plan import Trial
from assay.runs.prepare import Remaining
from assay.store.recorder import Recorder
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage

PLAYER: Final = "builtin/forager"
"""Model that plays the sample; its replies are as long as a tool call with a short reason."""
_FULL_TURNS: Final = 40
"""Number of turns to play after the history is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Lengths of requests and replies in the first turns of an episode."""

    request_bytes: Sequence[int]
    """Size of messages and tools of each turn."""
    reply_bytes: Sequence[int]
    largest: ChatRequest
    history: int
    """Number of turns after which requests hardly grow."""
    where: str
    """Model that played, or the environment."""
    seconds: float
    """Total duration, without warmup of the engine."""

    @property
    def turns(self) -> int:
        """Number of turns played."""
        return len(self.request_bytes)

    def estimate_prompt_bytes(self, turns: int) -> float:
        """Return the size of all requests of an episode, extrapolated from the last ones."""
        if turns <= self.turns:
            return float(sum(self.request_bytes[:turns]))
        full_size = self.request_bytes[self.history :] or self.request_bytes[-1:]
        missing = turns - self.turns
        return sum(self.request_bytes) + missing * sum(full_size) / len(full_size)

    @property
    def mean_reply_bytes(self) -> float:
        """Mean size of a reply."""
        return sum(self.reply_bytes) / len(self.reply_bytes)


class _RecordingModel:
    """A model that records the requests it gets and the size of its replies."""

    name, provider = PLAYER, "builtin"

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self.requests: list[ChatRequest] = []
        self.reply_bytes: list[int] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        reply = await self._inner.reply(request)
        self.requests.append(request)
        self.reply_bytes.append(len(reply.message.encoded))
        return reply

    async def close(self) -> None:
        """Do nothing: there are no resources."""


_REASONING: Final = "I do this because of what I have seen in the last turns, and wait for it."


class _FixedActionModel:
    """Model that always takes the same action, for worlds without a built-in model."""

    name, provider = PLAYER, "builtin"

    def __init__(self, action: str) -> None:
        self._arguments = json.dumps({"actions": [action], "reasoning": _REASONING})

    async def reply(self, request: ChatRequest) -> ChatReply:
        call = {"name": request.tools.value[0]["function"]["name"]}
        call["arguments"] = self._arguments
        tool = {"id": "call_1", "type": "function", "function": call}
        message = {"role": "assistant", "content": None, "tool_calls": [tool]}
        return ChatReply(Message(message), finish_reason="tool_calls")

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def play_sample(config: RunConfig, environment: UserEnvironment | None = None) -> Sample:
    """Play until requests reach their full length, or the episode ends.

    An environment without a text form is sampled as Crafter, because the requests of agents
    that call models there cannot be predicted.
    """
    if environment is not None and not environment.supports_models:
        environment = None
    actions = environment.actions if environment else None
    model = _RecordingModel(_FixedActionModel(actions[0]) if actions else make_builtin(PLAYER))
    turns = min(config.max_turns, config.agent.history + _FULL_TURNS)
    if environment is None:
        warmup()
    started = time.perf_counter()
    with TemporaryDirectory(prefix="assay-") as folder:
        run_in_own_loop(lambda: _play_turns(config, environment, model, turns, Path(folder)))
    lengths = [
        sum(len(part.encoded) for part in request.messages) + len(request.tools.encoded)
        for request in model.requests
    ]
    return Sample(
        request_bytes=lengths,
        reply_bytes=model.reply_bytes,
        largest=model.requests[lengths.index(max(lengths))],
        history=config.agent.history,
        where=environment.spec if environment else PLAYER,
        seconds=time.perf_counter() - started,
    )


async def _play_turns(
    config: RunConfig,
    environment: UserEnvironment | None,
    model: _RecordingModel,
    turns: int,
    folder: Path,
) -> None:
    # Only turns end it early: token and time limits would depend on the sample's model.
    sample_config = RunConfig(
        models=(PLAYER,),
        episodes=1,
        max_turns=config.max_turns,
        difficulty=config.difficulty,
        seed=config.seed,
        agent=config.agent,
    )
    parts = EpisodeParts(environment=environment)
    kind = EpisodeKind(
        sample_config, make_arms(sample_config, {}), lambda _: parts, {PLAYER: model}
    )
    spec = EpisodeSpec(run_id="sample", arm=PLAYER, episode=0, seed=config.seed)
    trial = Trial(spec.session_id, PLAYER, 0, spec)
    context = Context(should_stop=lambda: len(model.requests) >= turns)
    try:
        await kind.attempt(
            trial, Recorder.open(folder / "sample.jsonl", lambda: kind.header(trial)), context
        )
    except Interrupted:
        return
    finally:
        await kind.close()


ASSUMED_LATENCY: Final = 2.0
"""Assumed duration of a call over the network, in seconds."""
BYTES_PER_TOKEN: Final = 4
"""Approximate size of a token in English text and JSON."""
_MILLION: Final = 1_000_000


class BudgetFit(StrEnum):
    """Whether a run stays within its budget."""

    SURELY = "surely"
    """Yes, even if every call has its maximum cost."""
    LIKELY = "likely"
    """Yes, if calls have their expected cost."""
    NO = "no"
    """No: the run would stop at the budget."""
    UNKNOWN = "unknown"
    """A price is missing."""


class CallerKind(StrEnum):
    """Kind of agent, which determines the number of model calls."""

    BUILTIN = "ours"
    """The built-in agent: one call per turn."""
    USER = "own"
    """A user-defined agent: any number of calls; one per turn is assumed."""
    NONE = "nobody"
    """A user-defined agent without a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Provider and price of a model."""

    model: str
    provider: str
    in_process: bool = False
    """Whether it runs in this process, without a network."""
    price: Price | None = None
    """None if unknown."""
    per_minute: int | None = None
    """Known rate limit of the provider, in calls per minute."""
    missing: tuple[str, ...] = ()
    """Settings that are missing before it can be called, as sentences."""
    asked_by: CallerKind = CallerKind.BUILTIN


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEstimate:
    """Estimate for the episodes of one model, if all of them use all their turns."""

    model: str
    provider: str
    episodes: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    dollars: float | None
    """Expected cost; None if the price is unknown."""
    dollars_at_most: float | None
    """Upper bound, for tokens of one byte and replies of maximum length; None if unknown."""
    seconds: float
    at_once: int
    """Number of concurrent calls."""
    missing: tuple[str, ...] = ()
    asked_by: CallerKind = CallerKind.BUILTIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """Estimate for a run, by model and in total."""

    models: tuple[ModelEstimate, ...]
    seconds: float
    latency_s: float
    sample_turns: int
    sampled: str
    """Model that played the sample, or the environment."""
    budget: float | None = None
    spent: float = 0.0
    """Dollars spent by earlier attempts at the run."""

    @property
    def calls(self) -> int:
        """Maximum number of calls."""
        return sum(estimate.calls for estimate in self.models)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all models."""
        return sum(estimate.prompt_tokens for estimate in self.models)

    @property
    def completion_tokens(self) -> int:
        """Completion tokens of all models."""
        return sum(estimate.completion_tokens for estimate in self.models)

    @property
    def dollars(self) -> float:
        """Expected cost of the models with a known price."""
        return sum(estimate.dollars or 0.0 for estimate in self.models)

    @property
    def dollars_at_most(self) -> float:
        """Maximum cost of the models with a known price."""
        return sum(estimate.dollars_at_most or 0.0 for estimate in self.models)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models that are not included in the dollars."""
        return tuple(
            estimate.model
            for estimate in self.models
            if estimate.dollars is None
            or (estimate.dollars_at_most is None and estimate.asked_by is CallerKind.BUILTIN)
        )

    @property
    def fit(self) -> BudgetFit | None:
        """Whether the run stays within its budget; None without a budget."""
        if self.budget is None:
            return None
        remaining = self.budget - self.spent
        if self.dollars > remaining:
            return BudgetFit.NO
        if self.unpriced:
            return BudgetFit.UNKNOWN
        is_bounded = all(estimate.dollars_at_most is not None for estimate in self.models)
        is_certain = is_bounded and self.dollars_at_most <= remaining
        return BudgetFit.SURELY if is_certain else BudgetFit.LIKELY


def estimate_run(
    config: RunConfig,
    quotes: Sequence[Quote],
    sample: Sample,
    remaining: Mapping[str, Remaining],
    *,
    spent: float = 0.0,
    latency_s: float = ASSUMED_LATENCY,
) -> RunEstimate:
    """Estimate the remaining part of a run.

    Args:
        config: Configuration of the run.
        quotes: Models, in order.
        sample: Sample of its turns.
        remaining: Remaining episodes and calls of each model.
        spent: Dollars spent so far.
        latency_s: Assumed duration of a call over the network.
    """
    models = tuple(
        _estimate_model(config, quote, quotes, sample, remaining[quote.model], latency_s)
        for quote in quotes
    )
    lanes = config.max_concurrent_models if config.concurrent_models else 1
    if config.until_decided is not None:
        lanes = len(quotes)
    return RunEstimate(
        models=models,
        seconds=_schedule_total([estimate.seconds for estimate in models], lanes),
        latency_s=latency_s,
        sample_turns=sample.turns,
        sampled=sample.where,
        budget=config.budget,
        spent=spent,
    )


def _estimate_model(
    config: RunConfig,
    quote: Quote,
    quotes: Sequence[Quote],
    sample: Sample,
    remaining: Remaining,
    latency_s: float,
) -> ModelEstimate:
    episode_tokens = sample.estimate_prompt_bytes(config.max_turns) / BYTES_PER_TOKEN
    prompt = episode_tokens / config.max_turns
    reply = min(sample.mean_reply_bytes / BYTES_PER_TOKEN, config.agent.max_tokens)
    at_once = _count_concurrent_calls(config, quote, quotes, remaining.episodes)
    if quote.asked_by is CallerKind.NONE:
        remaining = Remaining(remaining.episodes, 0)
    expected = max_cost = None
    if quote.price is not None:
        usage = Usage(prompt=math.ceil(prompt), completion=math.ceil(reply))
        expected = cost(usage, quote.price)
        max_cost = _compute_max_cost(config, sample, quote.price)
    if quote.asked_by is CallerKind.USER and remaining.calls and max_cost:
        max_cost = None  # its calls are unknown
    return ModelEstimate(
        model=quote.model,
        provider=quote.provider,
        episodes=remaining.episodes,
        calls=remaining.calls,
        prompt_tokens=round(remaining.calls * prompt),
        completion_tokens=round(remaining.calls * reply),
        dollars=None if expected is None else remaining.calls * expected,
        dollars_at_most=None if max_cost is None else remaining.calls * max_cost,
        seconds=_estimate_seconds(quote, sample, remaining, at_once, latency_s),
        at_once=at_once,
        missing=quote.missing,
        asked_by=quote.asked_by,
    )


def _compute_max_cost(config: RunConfig, sample: Sample, price: Price) -> float | None:
    """Return the maximum cost of a call, with a history of replies of maximum length."""
    shortest = min(sample.reply_bytes)
    extra_tokens = config.agent.history * max(0, config.agent.max_tokens - shortest)
    highest_price = max(price.input, price.cached or 0.0, price.cache_write or 0.0)
    try:
        return upper_bound(sample.largest, price) + extra_tokens * highest_price / _MILLION
    except ModelRefused:
        return None  # longer than the price allows


def _count_concurrent_calls(
    config: RunConfig, quote: Quote, quotes: Sequence[Quote], episodes: int
) -> int:
    if quote.in_process:
        return 1
    groups = min(config.max_concurrent_models, len(quotes)) if config.concurrent_models else 1
    if config.until_decided is not None:
        groups, episodes = len(quotes), min(episodes, AHEAD)
    limit = min(episodes, config.max_concurrent_episodes // groups)
    if config.max_connections is not None:
        # Models of one provider share its connections while they run at the same time.
        shared_by = min(groups, sum(other.provider == quote.provider for other in quotes))
        limit = min(limit, config.max_connections // shared_by)
    return max(1, limit)


def _estimate_seconds(
    quote: Quote, sample: Sample, remaining: Remaining, at_once: int, latency_s: float
) -> float:
    if not remaining.calls:
        return 0.0
    if quote.in_process:
        return remaining.calls * sample.seconds / sample.turns
    rounds = math.ceil(remaining.episodes / at_once)
    waiting_time = rounds * remaining.calls / remaining.episodes * latency_s
    return max(
        waiting_time, 60 * remaining.calls / quote.per_minute if quote.per_minute else 0.0
    )


def _schedule_total(seconds: Sequence[float], lanes: int) -> float:
    """Return the total time if the next task starts whenever a lane is free."""
    free_at = [0.0] * min(lanes, len(seconds))
    for duration in seconds:
        earliest = free_at.index(min(free_at))
        free_at[earliest] += duration
    return max(free_at, default=0.0)
