"""One Crafter episode: a model, an agent and a world take turns, and a journal keeps up.

An answer is in the journal before it is acted on. An episode whose journal has turns is
replayed with the recorded answers, without asking the model, and goes on where it stopped.
"""

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from assay.agents import Decision, NewMessage, PreparedRequest, ReactAgent
from assay.crafter import View
from assay.crafter.rules import TASK
from assay.errors import AssayError
from assay.metrics import EpisodeTotals, Hook, StepSeen, Watch
from assay.service.client import WorldClient
from assay.service.results import StepReply
from assay.traces.journal import Journal, is_blank
from assay.traces.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    StepRecord,
)
from assay.trials import Interrupted
from assay.types import ChatModel, ChatReply, StopReason, TrialState

from .past import RecordedTurns
from .progress import EpisodeEnd, TurnProgress
from .spec import EpisodeSettings, EpisodeSpec

__all__ = ["EpisodeAttempt"]


class EpisodeAttempt:
    """One attempt at an episode. Its journal decides where it starts.

    `stopping` is asked before every turn; when it says yes, the episode leaves with
    Interrupted, and its journal waits for the next attempt.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        settings: EpisodeSettings,
        *,
        model: ChatModel,
        worlds: WorldClient,
        hooks: Sequence[type[Hook]],
        journal: Path,
        state_of: Callable[[Exception], TrialState | None],
        stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[TurnProgress], None] = lambda _: None,
    ) -> None:
        self._spec, self._settings = spec, settings
        self._model, self._worlds = model, worlds
        self._path = journal
        self._state_of, self._stopping, self._progress = state_of, stopping, progress
        self._agent = ReactAgent(
            settings.agent,
            model=spec.model,
            seed=spec.seed,
            max_turns=settings.limits.turns,
        )
        self._watch = Watch(hooks)
        self._tally = EpisodeTotals()
        self._seconds = 0.0
        self._inventory: Mapping[str, int] = {}

    async def play(self) -> EpisodeEnd:
        """Play to the end, or raise what stopped it; either way the journal says so."""
        self._journal, self._past = self._open()
        try:
            reason = await self._in_a_world()
        except Interrupted:
            raise
        except Exception as error:
            state = self._state_of(error)
            # Without a state the episode has no end: the same would happen to all of them.
            if state is not None:
                self._end(state, type(error).__name__, error)
            raise
        return self._end(TrialState.RESULT, reason)

    def _open(self) -> tuple[Journal, RecordedTurns]:
        if not is_blank(self._path):
            journal, session = Journal.reopen(self._path)
            return journal, RecordedTurns(session)
        spec, settings = self._spec, self._settings
        name = settings.difficulty_name
        header = SessionHeader(
            session_id=spec.session_id,
            run_id=spec.run_id,
            experiment_id=spec.experiment_id,
            subject=spec.model,
            task=f"{TASK}{name}",
            seed=spec.seed,
            episode=spec.episode,
            created_at=time.time(),
            difficulty=name,
            tools=self._agent.tools,
            metadata=settings.metadata(),
        )
        return Journal.create(self._path, header), RecordedTurns()

    async def _in_a_world(self) -> str:
        started = await self._worlds.initialize(
            self._spec.seed,
            self._settings.difficulty,
            self._settings.length,
            include=("view", "inventories"),
        )
        try:
            self._inventory = started.observation.inventory
            self._agent.begin(started.observation.as_view())
            return await self._turns(started.env_id, started.observation.as_view())
        finally:
            await self._let_go(started.env_id)

    async def _let_go(self, env_id: str) -> None:
        # A service that is gone, or has forgotten it, holds nothing of ours.
        with suppress(AssayError):
            await self._worlds.terminate(env_id)

    async def _turns(self, env_id: str, view: View) -> str:
        """Take turns until something ends the episode, and say what it was."""
        turn = 0
        while (reason := self._limit(turn)) is None:
            turn += 1
            decision = await self._ask(turn)
            before = time.perf_counter()
            played, reply = await self._act(env_id, turn, decision)
            self._seconds += time.perf_counter() - before
            self._tally.add_played(played)
            self._tell(turn, decision)
            if reply is not None:
                view = reply.observation.as_view()
                if reply.done:
                    return StopReason.DIED if reply.info.terminated else StopReason.LENGTH
            if decision.terminate is not None:
                return StopReason.TERMINATE.with_words(decision.terminate)
            self._agent.observe(played, view)
        return reason

    def _limit(self, turn: int) -> StopReason | None:
        limits, tally = self._settings.limits, self._tally
        if turn >= limits.turns:
            return StopReason.MAX_TURNS
        if limits.steps is not None and tally.steps >= limits.steps:
            return StopReason.STEP_LIMIT
        if limits.tokens is not None and tally.tokens >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        if limits.seconds is not None and self._seconds >= limits.seconds:
            return StopReason.TIME_LIMIT
        return None

    async def _ask(self, turn: int) -> Decision:
        """The answer of a turn, from the journal if it has one, else from the model."""
        prepared = self._agent.request()
        recorded = self._past.call(turn)
        if recorded is not None:
            call, message = recorded
            decision = self._agent.read(message)
            self._past.check_call(call, prepared.positions, self._agent.take_new())
        else:
            # Models that answer at once would otherwise keep all others waiting.
            await asyncio.sleep(0)
            if self._stopping():
                raise Interrupted
            reply = await self._model.reply(prepared.request)
            decision = self._agent.read(reply.message)
            call = self._record(turn, prepared, reply, self._agent.take_new())
        self._seconds += call.latency_s
        self._tally.add_call(call)
        return decision

    def _record(
        self, turn: int, prepared: PreparedRequest, reply: ChatReply, new: Sequence[NewMessage]
    ) -> CallRecord:
        now, request = time.time(), prepared.request
        call = CallRecord(
            turn=turn,
            at=now,
            request=prepared.positions,
            reply=prepared.reply,
            model=self._model.name,
            provider=self._model.provider,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            cost_usd=reply.cost_usd,
            latency_s=reply.latency_s,
            waited_s=reply.waited_s,
            retries=reply.retries,
            parameters={
                "temperature": request.temperature,
                "max_tokens": request.max_tokens,
                "seed": request.seed,
            },
        )
        messages = [
            MessageRecord(position, turn, message, kind, now) for position, message, kind in new
        ]
        self._journal.append_call(call, messages)
        return call

    async def _act(
        self, env_id: str, turn: int, decision: Decision
    ) -> tuple[PlayedRecord, StepReply | None]:
        """Play what was decided, and write it down unless the journal has it."""
        actions = decision.actions
        if self._settings.limits.steps is not None:
            actions = actions[: self._settings.limits.steps - self._tally.steps]
        reply = await self._worlds.step(env_id, *actions) if actions else None
        steps = _steps(actions, reply, self._tally.steps) if reply else ()
        played = PlayedRecord(
            turn=turn,
            at=time.time(),
            asked=decision.asked,
            unknown=decision.unknown,
            malformed=decision.malformed,
            skipped=len(decision.actions) - len(steps),
            steps=steps,
        )
        played = self._watched(played, (reply and reply.info.inventories) or ())
        recorded = self._past.check_played(played)
        if recorded is None:
            self._journal.append_played(played)
        return recorded or played, reply

    def _watched(
        self, played: PlayedRecord, inventories: Sequence[Mapping[str, int]]
    ) -> PlayedRecord:
        """The turn with what the hooks noticed about it."""
        found: list[HookRecord] = []
        for step, inventory in zip(played.steps, inventories, strict=True):
            found += self._watch.step(StepSeen(played.turn, step, inventory, self._inventory))
            self._inventory = inventory
        found += self._watch.turn(played)
        return replace(played, hooks=tuple(found)) if found else played

    def _tell(self, turn: int, decision: Decision) -> None:
        tally = self._tally
        self._progress(
            TurnProgress(
                turn=turn,
                max_turns=self._settings.limits.turns,
                steps=tally.steps,
                achievements=tally.achievements,
                reward=tally.reward,
                asked=tally.asked,
                invalid=tally.invalid,
                tokens=tally.tokens,
                cost_usd=tally.cost_usd,
                note=decision.malformed or " ".join(decision.asked),
            )
        )

    def _end(
        self, state: TrialState, reason: str, error: Exception | None = None
    ) -> EpisodeEnd:
        tally = self._tally
        outcomes = tally.outcomes(self._seconds) if error is None else {}
        self._journal.append_end(
            EndRecord(
                at=time.time(),
                state=state,
                stop_reason=reason,
                duration_s=self._seconds,
                outcomes=outcomes,
                error=None
                if error is None
                else ErrorRecord(
                    type=type(error).__name__,
                    message=str(error),
                    traceback="".join(traceback.format_exception(error)),
                ),
                attempts=self._past.attempts + 1,
            )
        )
        return EpisodeEnd(
            achievements=tally.achievements,
            reward=tally.reward,
            steps=tally.steps,
            turns=tally.turns,
            invalid_rate=tally.invalid_rate,
            tokens=tally.tokens,
            cost_usd=tally.cost_usd,
            stop_reason=reason,
            outcomes=outcomes,
        )


def _steps(actions: Sequence[str], reply: StepReply, before: int) -> tuple[StepRecord, ...]:
    info = reply.info
    last = len(info.rewards) - 1
    return tuple(
        StepRecord(
            index=before + i + 1,
            action=actions[i],
            reward=reward,
            digest=info.digests[i],
            unlocked=tuple(info.unlocked[i]),
            no_effect=info.no_effect[i],
            terminated=i == last and info.terminated,
            truncated=i == last and info.truncated,
        )
        for i, reward in enumerate(info.rewards)
    )
