"""One episode: a player and a world take turns, and every turn is written to a journal.

If the journal already has turns, they are replayed with the recorded responses, without model
calls, and the episode continues where it stopped. The player is the ReAct agent with its model,
or a user-defined agent.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Protocol, TypeVar, cast

from assay.agents.react import ReactAgent
from assay.agents.replies import Decision
from assay.core.user_code import UserThread
from assay.episodes.hook_runner import Watch
from assay.episodes.hooks import DEFAULT_HOOKS, Hook, StepSeen
from assay.episodes.progress import EpisodeEnd, TurnProgress
from assay.episodes.spec import EpisodeLimits
from assay.episodes.totals import EpisodeTotals
from assay.episodes.worlds import EpisodeWorld, StepsResult
from assay.runs.engine import Context
from assay.runs.model_calls import ModelCalls
from assay.store.recorder import Recorder
from assay.store.records import HookRecord, PlayedRecord
from assay.types import ChatModel, Encoded, Message, NewMessage, StopReason


class EpisodePlayer(Protocol):
    """Decides each turn from its observation."""

    tools: Encoded | None
    """Tools that its requests offer, if they never change."""

    async def begin(self, view: Any) -> None:
        """Receive the first observation."""
        ...

    async def decide(self, model_calls: ModelCalls) -> Decision:
        """Return the decision for this turn."""
        ...

    def observe(self, played: PlayedRecord, view: Any) -> None:
        """Receive the result of the last decision."""
        ...

    def close(self) -> None:
        """Release resources at the end of the episode."""
        ...


class ReactPlayer:
    """The ReAct agent and its model: one call per turn."""

    def __init__(self, agent: ReactAgent, model: ChatModel) -> None:
        self.tools: Encoded | None = agent.tools
        self._agent, self._model = agent, model

    async def begin(self, view: Any) -> None:
        """Start the conversation."""
        self._agent.begin(view)

    async def decide(self, model_calls: ModelCalls) -> Decision:
        """Call the model, and parse its reply."""
        agent, decision = self._agent, Decision()

        def read(reply: Message) -> NewMessage:
            nonlocal decision
            decision = agent.read(reply)
            (message,) = agent.take_new()
            return message

        prepared = agent.request()
        await model_calls.call(self._model, prepared, agent.take_new(), read)
        return decision

    def observe(self, played: PlayedRecord, view: Any) -> None:
        """Pass the result of the last reply to the agent."""
        self._agent.observe(played, view)

    def close(self) -> None:
        """Do nothing: there are no resources."""


_T = TypeVar("_T")


class EpisodeAttempt:
    """One attempt at an episode; the recorder's journal determines where it starts.

    Before each new call it checks the context for a stop request. If there is one, the episode
    raises Interrupted, and the next attempt continues from its journal.
    """

    def __init__(
        self,
        player: EpisodePlayer,
        world: EpisodeWorld,
        limits: EpisodeLimits,
        *,
        hooks: Sequence[type[Hook]],
        hook_limit_s: float,
        recorder: Recorder,
        context: Context,
    ) -> None:
        self._player, self._world, self._limits = player, world, limits
        self._recorder, self._context = recorder, context
        self._totals = EpisodeTotals()
        self._model_calls = ModelCalls(recorder, self._totals, context)
        self._hooks, self._hook_runner = hooks, Watch()
        has_user_hooks = any(hook not in DEFAULT_HOOKS for hook in hooks)
        # Built-in hooks neither hang nor raise, and a thread would cost more than they do.
        self._hook_thread = UserThread("a hook", hook_limit_s) if has_user_hooks else None
        self._inventory: Mapping[str, int] = {}
        self._view: Any = None

    async def play(self) -> EpisodeEnd:
        """Play to the end, or raise the exception that stopped the episode."""
        try:
            self._hook_runner = await self._run_hooks(lambda: Watch(self._hooks))
            self._view, self._inventory = await self._world.begin()
            await self._player.begin(self._view)
            reason = await self._play_turns()
            return self._make_end(reason)
        finally:
            if self._hook_thread is not None:
                self._hook_thread.close()
            self._player.close()
            await self._world.close()

    async def _play_turns(self) -> str:
        """Play turns until something ends the episode, and return the reason."""
        turn = 0
        while (reason := self._find_limit(turn)) is None:
            turn += 1
            if not self._recorder.has_turn(turn):
                self._context.check()
            self._model_calls.turn = turn
            decision = await self._player.decide(self._model_calls)
            before = time.perf_counter()
            played, stepped = await self._execute(turn, decision)
            self._recorder.seconds += time.perf_counter() - before
            self._totals.add_played(played)
            self._report_progress(turn, decision)
            if stepped is not None:
                self._view = stepped.view
                if stepped.ended is not None:
                    return stepped.ended
            if decision.terminate is not None:
                return StopReason.TERMINATE.with_reason(decision.terminate)
            self._player.observe(played, self._view)
        return reason

    def _find_limit(self, turn: int) -> StopReason | None:
        limits, totals = self._limits, self._totals
        if turn >= limits.turns:
            return StopReason.MAX_TURNS
        if limits.steps is not None and totals.steps >= limits.steps:
            return StopReason.STEP_LIMIT
        if limits.tokens is not None and totals.tokens >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        if limits.seconds is not None and self._recorder.seconds >= limits.seconds:
            return StopReason.TIME_LIMIT
        return None

    async def _execute(
        self, turn: int, decision: Decision
    ) -> tuple[PlayedRecord, StepsResult | None]:
        """Execute a decision, and record it unless the journal has it."""
        actions = decision.actions
        if self._limits.steps is not None:
            actions = actions[: self._limits.steps - self._totals.steps]
        stepped = await self._world.step(actions, self._totals.steps) if actions else None
        steps = stepped.steps if stepped else ()
        played = PlayedRecord(
            turn=turn,
            at=time.time(),
            asked=decision.asked,
            unknown=decision.unknown,
            malformed=decision.malformed,
            skipped=len(decision.actions) - len(steps),
            steps=steps,
        )
        inventories = stepped.inventories if stepped else ()
        without_hooks = played
        played = await self._run_hooks(
            lambda: self._add_hook_results(without_hooks, inventories)
        )
        played = self._recorder.add_played(played)
        await self._recorder.wait_until_written()
        return played, stepped

    async def _run_hooks(self, function: Callable[[], _T]) -> _T:
        """Call hook code; user-defined hooks run in their thread, with a time limit."""
        if self._hook_thread is None:
            return function()
        return cast("_T", await self._hook_thread.call(function))

    def _add_hook_results(
        self, played: PlayedRecord, inventories: Sequence[Mapping[str, int]]
    ) -> PlayedRecord:
        """Return the turn with the results of the hooks."""
        results: list[HookRecord] = []
        for step, inventory in zip(played.steps, inventories or repeat({}), strict=False):
            results += self._hook_runner.step(
                StepSeen(played.turn, step, inventory, self._inventory)
            )
            self._inventory = inventory
        results += self._hook_runner.turn(played)
        return replace(played, hooks=tuple(results)) if results else played

    def _report_progress(self, turn: int, decision: Decision) -> None:
        totals = self._totals
        self._context.report_progress(
            TurnProgress(
                turn=turn,
                max_turns=self._limits.turns,
                steps=totals.steps,
                achievements=totals.achievements if self._world.has_achievements else None,
                reward=totals.reward,
                asked=totals.asked,
                invalid=totals.invalid,
                tokens=totals.tokens,
                cost_usd=totals.cost_usd,
                note=decision.malformed or " ".join(decision.asked),
            )
        )

    def _make_end(self, reason: str) -> EpisodeEnd:
        totals = self._totals
        return EpisodeEnd(
            achievements=totals.achievements if self._world.has_achievements else None,
            reward=totals.reward,
            steps=totals.steps,
            turns=totals.turns,
            invalid_rate=totals.invalid_rate,
            tokens=totals.tokens,
            cost_usd=totals.cost_usd,
            stop_reason=reason,
            outcomes=self._world.compute_outcomes(totals, self._recorder.seconds),
        )
