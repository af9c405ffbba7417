"""Preference pairs, the states of the world they are found by, and answers of the expert.

Two episodes share a state if the world has the same digest and the model was sent the same
bytes. Answers with the same actions count as one, even if their texts differ. The value of an
answer is the mean reward earned from there on, over all episodes that contain it; each of these
is a future. A pair is the best and the worst answer of a state. It is kept if each side has at
least two futures and the interval of the margin (Welch, 95 %, Bonferroni-corrected for all
possible pairs) is above 0. Identical futures may be chance, so the standard error of a side has
a floor: its value with one more future that differs by one achievement.

States are recomputed by replaying the world from its seed and recorded actions. A session that
cannot be replayed, or differs from its trace, has no states.

A student that has only seen its teacher play does not learn to recover from mistakes that the
teacher never makes. Rows from the student's own episodes, with the expert's answers, teach this
(DAgger: Ross, Gordon, Bagnell, 2011).
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from statistics import fmean
from typing import Any, Final, NamedTuple

from assay.agents.feedback import parse_observation
from assay.core.canonical_json import canonical_json
from assay.crafter.players.expert.policy import ExpertPolicy
from assay.crafter.rules import ACTIONS
from assay.crafter.text.observation import as_view
from assay.episodes.replay import Replay
from assay.errors import EpisodeOver, ReplayError, UsageError, WorldFull
from assay.finetune.datasets.filters import ChosenEpisode, FunnelStep
from assay.stats.estimates import difference_estimate
from assay.store.conversations import StoredConversation
from assay.store.records import SessionRecord


class CallState(NamedTuple):
    """State of the world before a turn."""

    step: int
    """Number of steps so far."""
    snapshot: str
    """Argument for `World.restore`, in base64."""
    digest: str
    """Digest in hexadecimal."""


def compute_call_states(
    session: SessionRecord, *, snapshots: bool = True
) -> Mapping[int, CallState]:
    """Return the state before each turn; empty if the session cannot be replayed."""
    try:
        replay = Replay(session)
        states: dict[int, CallState] = {}
        world = replay.world
        for played in session.played:
            saved = base64.b64encode(world.snapshot()).decode() if snapshots else ""
            states[played.turn] = CallState(world.steps, saved, f"{world.digest():016x}")
            for step in played.steps:
                world.step(step.action)
                if step.digest is not None and step.digest != f"{world.digest():016x}":
                    return {}
    except (EpisodeOver, ReplayError, WorldFull):
        return {}
    return states


def compute_returns(session: SessionRecord) -> Mapping[int, float]:
    """Return the reward from each turn on to the end of the episode."""
    total, returns = 0.0, dict[int, float]()
    for played in reversed(session.played):
        total += sum(step.reward for step in played.steps)
        returns[played.turn] = round(total, 6)
    return returns


_MAX_ERROR_RATE: Final = 0.05
"""Maximum probability of keeping a pair in a state whose answers do not differ."""
_ACHIEVEMENT_REWARD: Final = 1.0
"""Reward of an achievement."""


class _Future(NamedTuple):
    session_id: str
    turn: int
    earned: float
    tokens: int
    reply: str


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one request, the better one first."""

    messages: tuple[str, ...]
    """Messages of the request, as JSON text."""
    tools: str | None
    preferred: str
    other: str
    margin: float
    """Mean reward after the better answer minus mean reward after the other one."""
    standard_error: float
    digest: str
    """Digest of the state."""
    session_id: str
    """An episode with the better answer."""
    other_session_id: str
    turn: int
    futures: tuple[int, int]
    """Number of episodes with each answer, the better one first."""
    calls: int
    """Number of calls in this state, those with other answers included."""
    tokens: int
    sessions: frozenset[str]


@dataclass(slots=True)
class _SharedState:
    """All answers to one request in one state."""

    messages: tuple[str, ...]
    tools: str | None
    digest: str
    answers: dict[tuple[str, ...], list[_Future]] = field(default_factory=dict)
    """Futures by the requested actions, or by the text of the answer if there are none."""


class SharedStates:
    """States of one world, and the answers in them."""

    def __init__(self) -> None:
        self._states: dict[bytes, _SharedState] = {}

    def add(self, session: StoredConversation, record: SessionRecord) -> bool:
        """Add an episode; return False if it cannot be replayed and so has no states."""
        states, returns = compute_call_states(record, snapshots=False), compute_returns(record)
        requested = {played.turn: played.asked for played in record.played}
        calls = Counter(call.turn for call in session.calls)
        for call in session.calls:
            state = states.get(call.turn)
            positions = (*call.request, call.reply)
            if state is None or max(positions) >= len(session.bodies):
                continue
            messages = tuple(session.bodies[position] for position in call.request)
            answer = session.bodies[call.reply]
            if not answer or not all(messages):
                continue
            content = "\n".join((state.digest, session.tools or "", *messages)).encode()
            key = hashlib.blake2b(content, digest_size=16).digest()
            shared = self._states.get(key)
            if shared is None:
                shared = self._states[key] = _SharedState(messages, session.tools, state.digest)
            earned = returns.get(call.turn, 0.0)
            future = _Future(session.session_id, call.turn, earned, call.tokens, answer)
            # The actions of a turn depend on all its calls.
            actions = requested.get(call.turn) if calls[call.turn] == 1 else None
            shared.answers.setdefault(actions or (answer,), []).append(future)
        return bool(states)

    def make_pairs(self, alone: FunnelStep, unclear: FunnelStep) -> Iterator[PreferencePair]:
        """Yield the best and the worst answer of each state where their order is clear.

        Calls without another answer in their state, and calls whose order is not clear, are
        counted in the two steps.
        """
        for shared in self._states.values():
            pair = _make_pair(shared) if len(shared.answers) > 1 else None
            if pair is not None:
                yield pair
                continue
            step = alone if len(shared.answers) < 2 else unclear
            for future in (f for futures in shared.answers.values() for f in futures):
                step.removed.add(1, future.tokens, episodes=0)


def _make_pair(shared: _SharedState) -> PreferencePair | None:
    repeated = {
        answer: futures for answer, futures in shared.answers.items() if len(futures) > 1
    }
    if len(repeated) < 2:
        return None
    ranked = sorted(repeated, key=lambda answer: (_average_reward(repeated[answer]), answer))
    worst, best = ranked[0], ranked[-1]
    sides = [[future.earned for future in repeated[answer]] for answer in (worst, best)]
    margin, error, _ = estimate = difference_estimate(
        *sides, paired=False, step=_ACHIEVEMENT_REWARD
    )
    level = 1 - _MAX_ERROR_RATE / comb(len(repeated), 2)
    if not estimate.interval(level).low > 0:
        return None
    first = repeated[best][0]
    all_futures = [future for futures in shared.answers.values() for future in futures]
    return PreferencePair(
        shared.messages,
        shared.tools,
        first.reply,
        repeated[worst][0].reply,
        round(margin, 6),
        round(error, 6),
        shared.digest,
        first.session_id,
        repeated[worst][0].session_id,
        first.turn,
        (len(repeated[best]), len(repeated[worst])),
        len(all_futures),
        sum(future.tokens for future in all_futures),
        frozenset(future.session_id for future in all_futures),
    )


def _average_reward(futures: Sequence[_Future]) -> float:
    return fmean(future.earned for future in futures)


def format_pair(pair: PreferencePair, *, trl: bool) -> str:
    """Format a pair as one row of JSON, in OpenAI's preference format or TRL's."""
    messages = ",".join(pair.messages)
    margin_fields = f'"margin":{pair.margin!r},"margin_se":{pair.standard_error!r}'
    if trl:
        tools = "" if pair.tools is None else f',"tools":{json.dumps(pair.tools)}'
        return (
            f'{{"prompt":[{messages}],"chosen":[{pair.preferred}],"rejected":[{pair.other}],'
            f"{margin_fields}{tools}}}"
        )
    tools = "" if pair.tools is None else f',"tools":{pair.tools}'
    return (
        f'{{"input":{{"messages":[{messages}]{tools}}},"preferred_output":[{pair.preferred}],'
        f'"non_preferred_output":[{pair.other}],{margin_fields}}}'
    )


def group_by_world(episodes: Sequence[ChosenEpisode]) -> list[list[str]]:
    """Group sessions by world, in order of first appearance."""
    worlds: dict[tuple[str, int | None], list[str]] = {}
    for episode in episodes:
        worlds.setdefault((episode.task, episode.seed), []).append(episode.session_id)
    return list(worlds.values())


_NOOP_INDEX = ACTIONS.index("noop")


class ExpertAnswer(NamedTuple):
    """Answer of the expert to a request."""

    action: str
    body: str
    """The message as JSON text."""


def compute_expert_answers(session: StoredConversation) -> dict[int, ExpertAnswer]:
    """Return the expert's answer to each call, by the position of the actual reply.

    The expert tracks the actions that were actually played. Its answers have no notes. Calls
    without a readable observation are left out.

    Raises:
        UsageError: The model could request several actions per turn.
    """
    if '"maxItems":1,' not in (session.tools or ""):
        raise UsageError(
            "--relabel needs episodes with one action per turn; play them with "
            "--actions-per-turn 1"
        )
    policy = ExpertPolicy(0)
    answers = {}
    for call in session.calls:
        content: Any = json.loads(session.bodies[call.request[-1]]).get("content")
        observation = parse_observation(content) if isinstance(content, str) else None
        if observation is None:
            continue
        action = ACTIONS[policy.act(as_view(observation))]
        arguments = {"actions": [action], "reasoning": f"My goal is to {policy.goal}."}
        function = {"arguments": canonical_json(arguments).decode(), "name": "interact"}
        tool_call = {"function": function, "id": f"call_{call.reply}", "type": "function"}
        message = {"content": None, "role": "assistant", "tool_calls": [tool_call]}
        answers[call.reply] = ExpertAnswer(action, canonical_json(message).decode())
        turn = session.turns.get(call.turn)
        played = turn.action if turn is not None else ""
        policy.took(ACTIONS.index(played) if played in ACTIONS else _NOOP_INDEX)
    return answers
