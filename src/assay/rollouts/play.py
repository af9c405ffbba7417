"""All episodes of a run, on the engine for trials: played, journaled, and handed on.

Receives models, worlds and a folder for journals; opens no database itself.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.errors import BudgetSpent
from assay.metrics import Hook
from assay.service.client import WorldClient
from assay.trials import (
    Admission,
    AsyncioExecutor,
    Context,
    Event,
    GroupCounts,
    GroupStop,
    Interrupted,
    Limits,
    Plan,
    Retries,
    Stop,
    Trial,
    TrialEnded,
    TrialVerdict,
    classify,
    run_trials,
)
from assay.types import ChatModel, TrialState

from .episode import EpisodeAttempt
from .spec import EpisodeSettings, EpisodeSpec

__all__ = ["play_all"]


async def play_all(
    plan: Plan[EpisodeSpec],
    settings: EpisodeSettings,
    *,
    models: Mapping[str, ChatModel],
    worlds: WorldClient,
    hooks: Sequence[type[Hook]],
    journal: Callable[[str], Path],
    ended: Callable[[Path], None],
    limits: Limits,
    retries: Retries,
    done: Callable[[str], bool] = lambda _: False,
    admit: Callable[[Trial[EpisodeSpec]], Admission] = lambda _: Admission.NOW,
    out_of_budget: Callable[[BudgetSpent], None] = lambda _: None,
    listen: Callable[[Event], None] = lambda _: None,
    stop: Stop | None = None,
) -> dict[str, GroupCounts]:
    """Play the plan; `ended` gets the journal of each episode that has an end.

    Args:
        plan: The episodes, a group for each model.
        settings: What they have in common.
        models: Who answers, by the names of the groups.
        worlds: Where they play.
        hooks: What watches, made anew for each episode.
        journal: Where the journal of a session is, by its id.
        ended: What to do with a journal that has an end.
        limits: How many are open at once.
        retries: How infrastructure errors are tried again.
        done: Which sessions need not be played, by their ids.
        admit: Which episodes may start, and which never.
        out_of_budget: What to do when a call does not fit into the budget; such an episode
            waits for the next attempt.
        listen: Who hears of progress.
        stop: How to stop early.
    """

    async def body(trial: Trial[EpisodeSpec], context: Context) -> TrialVerdict:
        episode = EpisodeAttempt(
            trial.payload,
            settings,
            model=models[trial.group],
            worlds=worlds,
            hooks=hooks,
            journal=journal(trial.id),
            state_of=_state_of,
            stopping=context.asked_to_stop,
            progress=context.report,
        )
        try:
            end = await episode.play()
        except BudgetSpent as error:
            out_of_budget(error)
            raise Interrupted(str(error)) from error
        return TrialVerdict(TrialState.RESULT, end.stop_reason, value=end)

    def hear(event: Event) -> None:
        if isinstance(event, TrialEnded):
            ended(journal(event.trial.id))
        listen(event)

    return await run_trials(
        plan,
        AsyncioExecutor(body),
        limits=limits,
        retries=retries,
        listen=hear,
        stop=stop,
        done=done,
        admit=admit,
    )


def _state_of(error: Exception) -> TrialState | None:
    if isinstance(error, BudgetSpent):
        return None
    sorted_as = classify(error)
    return None if isinstance(sorted_as, GroupStop) else sorted_as.state
