"""The live display of a run; the events come from the real engine."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from rich.console import Console

from assay.cli.display import LiveDisplay, PlainDisplay, RunDisplay, choose_display
from assay.cli.progress_text import LiveProgress, ModelProgress
from assay.episodes.progress import EpisodeEnd, TurnProgress
from assay.errors import ModelRejected, ModelUnavailable
from assay.runs.control import Limits, Retries, Stop, TrialVerdict
from assay.runs.engine import AsyncioExecutor, Context, Rules, run_trials
from assay.runs.events import (
    CallbackObserver,
    CallRetried,
    Event,
    RunObserver,
    RunStarted,
    TrialEnded,
    TrialProgress,
    TrialStarted,
)
from assay.runs.plan import Group, Plan, Trial
from assay.types import TrialState

TURNS = 4


def at(turn: int, **but: Any) -> TurnProgress:
    values: dict[str, Any] = {
        "turn": turn,
        "max_turns": TURNS,
        "steps": 5 * turn,
        "achievements": turn,
        "reward": turn - 0.5,
        "asked": 10 * turn,
        "invalid": turn,
        "tokens": 1000 * turn,
        "cost_usd": 0.01 * turn,
        "note": "do move_left",
    }
    return TurnProgress(**values | but)


def end(**but: Any) -> EpisodeEnd:
    values: dict[str, Any] = {
        "achievements": TURNS,
        "reward": TURNS - 0.5,
        "steps": 5 * TURNS,
        "turns": TURNS,
        "invalid_rate": 0.1,
        "tokens": 1000 * TURNS,
        "cost_usd": 0.01 * TURNS,
        "stop_reason": "max_turns",
    }
    return EpisodeEnd(**values | but)


async def play(trial: Trial[None], context: Context) -> TrialVerdict:
    for turn in range(1, TURNS + 1):
        context.report_progress(at(turn))
        await asyncio.sleep(0)
        context.check()
    return TrialVerdict(TrialState.RESULT, "max_turns", value=end())


def plan(*names: str, episodes: int = 3) -> Plan[None]:
    def group(name: str) -> Group[None]:
        return Group(name, episodes, lambda at: Trial(f"{name} {at}", name, at, None))

    return Plan(tuple(map(group, names)))


def run(
    observer: RunObserver,
    what: Plan[None],
    body: Callable[[Trial[None], Context], Awaitable[TrialVerdict]] = play,
    **options: Any,
) -> None:
    no_waiting = Retries(attempts=2, first_wait=0, longest_wait=0)
    stop: Stop | None = options.pop("stop", None)
    rules: Rules[None] = Rules(retries=no_waiting, **options)
    asyncio.run(run_trials(what, AsyncioExecutor(body), rules, observer=observer, stop=stop))


class Screen:
    """A console and its printed text."""

    def __init__(self, width: int = 100, height: int = 24, **options: Any) -> None:
        self.out = io.StringIO()
        self.console = Console(file=self.out, width=width, height=height, **options)

    @property
    def text(self) -> str:
        return self.out.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def terminal(width: int = 100, height: int = 24) -> Screen:
    return Screen(width, height, force_terminal=True, color_system="truecolor")


def ticking(step: float) -> Callable[[], float]:
    ticks = iter(range(1_000_000))
    return lambda: step * next(ticks)


def follow(events: Iterable[Event], step: float = 1.0) -> LiveProgress:
    standings = LiveProgress()
    for number, event in enumerate(events):
        standings.record_event(event, step * number)
    return standings


def started(episodes: int) -> tuple[LiveProgress, ModelProgress]:
    """Return the standings of a one-model run that started at time 0."""
    standings = follow(
        [RunStarted({"a": episodes}), TrialStarted(Trial("other", "a", 9, None), 1)], 0.0
    )
    return standings, standings.groups["a"]


def test_standings_after_a_run_equal_its_episodes() -> None:
    events: list[Event] = []
    run(CallbackObserver(events.append), plan("a", "b"))
    one = follow(events).groups["a"]
    assert (one.finished, one.planned, one.share) == (3, 3, 1.0)
    assert one.achievements == TURNS
    assert one.reward == TURNS - 0.5
    assert one.invalid_rate == pytest.approx(0.1)
    assert one.tokens == 3 * 1000 * TURNS
    assert one.cost_usd == pytest.approx(0.12)
    assert one.estimate_seconds_left(1e9) is None


def test_open_episodes_count_by_their_progress() -> None:
    trial, other = (Trial(name, "a", 0, None) for name in "xy")
    standings, one = started(4)
    for turn in (1, 2):
        standings.record_event(TrialProgress(trial, at(turn)), float(turn))
    standings.record_event(TrialProgress(other, at(1, achievements=0)), 3.0)
    assert one.achievements == 1.0
    assert one.share == (2 / TURNS + 1 / TURNS) / 4
    assert one.tokens == 3000
    # 3 turns in 6 seconds, and 13 of 16 remain.
    assert one.estimate_seconds_left(6.0) == pytest.approx(26)


def test_the_time_left_follows_the_length_of_episodes_that_ended() -> None:
    standings, one = started(3)
    trial = Trial("x", "a", 0, None)
    standings.record_event(TrialProgress(trial, at(1, max_turns=100)), 4.0)
    assert one.estimate_seconds_left(4.0) == pytest.approx(299 * 4)
    standings.record_event(TrialProgress(trial, at(2, max_turns=100)), 8.0)
    died = TrialVerdict(TrialState.RESULT, "died", value=end(turns=2))
    standings.record_event(TrialEnded(trial, 1, died), 8.0)
    assert one.estimate_seconds_left(8.0) == pytest.approx(4 * 4)


def test_turns_before_a_resume_do_not_count_as_work_of_this_run() -> None:
    standings, one = started(1)
    standings.record_event(TrialProgress(Trial("x", "a", 0, None), at(61, max_turns=100)), 1.0)
    standings.record_event(TrialProgress(Trial("x", "a", 0, None), at(62, max_turns=100)), 2.0)
    assert one.estimate_seconds_left(2.0) == pytest.approx(38)


def test_failures_cost_money_and_are_not_averaged() -> None:
    async def refuse(trial: Trial[None], context: Context) -> TrialVerdict:
        if trial.index:
            return await play(trial, context)
        context.report_progress(at(1, achievements=22))
        return TrialVerdict(
            TrialState.FAILURE, "refused", value=end(achievements=22, tokens=1500)
        )

    events: list[Event] = []
    run(CallbackObserver(events.append), plan("a", episodes=2), refuse)
    one = follow(events).groups["a"]
    assert one.achievements == TURNS
    assert one.tokens == 1500 + 1000 * TURNS
    assert one.finished == 2


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    async def unpriced(trial: Trial[None], context: Context) -> TrialVerdict:
        context.report_progress(at(1, cost_usd=None if trial.index == 1 else 0.01))
        return TrialVerdict(TrialState.RESULT, "died", value=end(cost_usd=0.01))

    screen = Screen()
    run(PlainDisplay(screen.console, 1), plan("a"), unpriced)
    assert screen.lines[-1].endswith("12.0k tokens, $?")


def test_episodes_finished_before_a_resume_count_as_done() -> None:
    events: list[Event] = []
    run(CallbackObserver(events.append), plan("a"), done=lambda id: id != "a 2")
    one = follow(events).groups["a"]
    assert (one.skipped, one.ended, one.finished) == (2, 1, 3)


def test_short_run_without_a_terminal_prints_no_progress() -> None:
    screen = Screen()
    run(PlainDisplay(screen.console), plan("a", "b"))
    assert screen.lines == []


def test_verbose_lines_show_start_and_end_of_a_model() -> None:
    screen = Screen()
    run(PlainDisplay(screen.console, 1), plan("a", "builtin/expert"))
    expected = "3 of 3 episodes, 100 % done, 4.0 achievements, reward 3.5, invalid 10.0 %"
    lines = [line for line in screen.lines if " episode " not in line]
    assert lines == [
        *("a: 3 episodes", f"a: {expected}, 12.0k tokens, $0.1200"),
        *("builtin/expert: 3 episodes", f"builtin/expert: {expected}"),
    ]


def test_plain_lines_are_printed_once_a_minute() -> None:
    screen = Screen()
    run(PlainDisplay(screen.console, clock=ticking(6.0)), plan("a", episodes=20))
    # 20 starts, 80 turns and 20 ends, one every six seconds.
    assert 10 <= len(screen.lines) <= 13
    assert " left" in screen.lines[5]


def test_verbose_adds_a_line_per_episode_and_more_a_line_per_turn() -> None:
    once, twice = Screen(), Screen()
    run(PlainDisplay(once.console, 1), plan("a", episodes=2))
    run(PlainDisplay(twice.console, 2), plan("a", episodes=2))
    ended = (
        "a episode 2: 4 achievements, reward 3.5, 20 steps, 4 turns, invalid 10.0 %,"
        " 4.0k tokens, $0.0400, max_turns"
    )
    assert ended in once.lines
    assert len(once.lines) == 4
    turn = "a episode 1 turn 3/4, 15 steps, 3 achievements, reward 2.5: do move_left"
    assert turn in twice.lines
    assert len(twice.lines) == 4 + 2 * TURNS


async def lost(trial: Trial[None], context: Context) -> TrialVerdict:
    raise ModelUnavailable("no \x1b[31mconnection [bold]")


def test_each_kind_of_error_is_printed_once_unless_verbose() -> None:
    short, full = Screen(width=200), Screen(width=200)
    run(PlainDisplay(short.console), plan("a"), lost)
    run(PlainDisplay(full.console, 1), plan("a"), lost)
    message = "infrastructure error: ModelUnavailable: no \\x1b[31mconnection [bold]"
    assert short.text.count(message) == 1
    assert full.text.count(message) == 3
    assert full.text.count("attempt 1 failed, next in 0s: ModelUnavailable") == 3


def test_stopped_model_is_reported_with_the_reason() -> None:
    async def reject(trial: Trial[None], context: Context) -> TrialVerdict:
        raise ModelRejected("unknown model 'a'; see 'assay models'")

    screen = Screen()
    run(PlainDisplay(screen.console), plan("a"), reject)
    assert "a stopped: unknown model 'a'; see 'assay models'" in screen.lines


@pytest.mark.parametrize("width", [80, 110])
def test_the_live_table_has_a_line_per_model(width: int) -> None:
    screen = terminal(width)
    with LiveDisplay(screen.console) as display:
        run(display, plan("builtin/expert", "a-model-with-a-very-long-name-of-version-7"))
        display.on_message("waiting for the database, held by python (pid 12)")
    assert "waiting for the database, held by python (pid 12)" in screen.text
    last = Screen(width)
    last.console.print(display.render())
    assert max(map(len, last.lines)) <= width
    assert last.lines[0].split() == (
        ["Model", "Episodes", "Ach.", "Reward", "Invalid%", "Tokens", "Cost", "Left"]
    )
    expert, long = last.lines[1:]
    assert expert.split()[0] == "builtin/expert"
    assert expert.split()[-5:] == ["3/3", "4.0", "3.5", "10.0", "done"]
    assert long.split()[0].endswith("-7")
    assert long.split()[-7:] == ["3/3", "4.0", "3.5", "10.0", "12.0k", "$0.1200", "done"]
    assert ("━" in expert) == (width == 110)


def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_ones() -> None:
    display = LiveDisplay(terminal(50).console)
    run(display, plan("expert-of-ours"))
    last = Screen(50)
    last.console.print(display.render())
    assert last.lines[0].split() == ["Model", "Episodes", "Ach.", "Invalid%", "Cost", "Left"]
    assert last.lines[1].split()[1:] == ["3/3", "4.0", "10.0", "$0.1200", "done"]


def test_lines_above_the_live_table_are_kept() -> None:
    screen = terminal(200)
    with LiveDisplay(screen.console, 2) as display:
        run(display, plan("a", episodes=30))
    assert screen.text.count(" turn ") == 30 * TURNS
    assert screen.text.count("max_turns") == 30


def test_models_that_do_not_fit_are_summarized() -> None:
    screen = terminal(100, height=10)
    with LiveDisplay(screen.console) as display:
        run(display, plan(*(f"model-{n}" for n in range(40)), episodes=1))
    last = Screen()
    last.console.print(display.render())
    assert len(last.lines) == 1 + 6 + 1
    assert last.lines[-1] == "and 34 more models, 34 of them done"


def test_interrupted_run_shows_its_progress() -> None:
    stop, screen = Stop(), terminal()
    display = LiveDisplay(screen.console)

    def listen(event: Event) -> None:
        display.on_event(event)
        if (
            isinstance(event, TrialProgress)
            and not stop.is_requested
            and event.payload.turn == 2
        ):
            stop.request()

    with display:
        run(
            CallbackObserver(listen),
            plan("a", "b"),
            stop=stop,
            limits=Limits(max_open=2, max_groups=1),
        )
    last = Screen()
    last.console.print(display.render())
    interrupted, never = last.lines[1:]
    assert interrupted.split()[-1] == "stopped"
    assert interrupted.split()[-7] == "0/3"
    assert float(interrupted.split()[-6]) > 1
    assert never.split()[-1] == "waiting"


def test_control_characters_in_names_and_notes_are_escaped() -> None:
    name = "[red]evil\x1b[2J"

    async def sing(trial: Trial[None], context: Context) -> TrialVerdict:
        context.report_progress(at(1, note="\x1b]0;x\x07[bold]" + "y" * 5000))
        return TrialVerdict(TrialState.RESULT, "x", value=end(stop_reason="terminate: \x1b[2J"))

    screen = terminal(120)
    with LiveDisplay(screen.console, 2) as display:
        run(display, plan(name), sing)
        display.on_message("\x1b[2J[blink]held")
    assert "\x1b[2J" not in screen.text
    assert "\x1b]0;" not in screen.text
    assert "[red]evil\\x1b[2J" in screen.text
    assert "[blink]held" in screen.text
    assert "y" * 201 not in screen.text


def test_display_fits_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(choose_display(silent=False, console=terminal().console), LiveDisplay)
    plain = choose_display(silent=False, console=Screen().console)
    assert type(plain) is PlainDisplay
    assert type(choose_display(silent=True)) is RunDisplay


def test_quiet_display_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with choose_display(silent=True, verbosity=2) as display:
        run(display, plan("a"))
        display.on_message("x")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_shows_retries_with_count_and_wait(width: int) -> None:
    now = 0.0
    screen = terminal(width)
    display = LiveDisplay(screen.console, clock=lambda: now)
    display.on_event(RunStarted({"some-model": 3}))
    reason = "mine (for 'some-model') answered 429: slow down, [bold]please\x1b[31m"
    display.on_event(CallRetried("some-model", reason, 1, 2.0))
    display.on_event(CallRetried("some-model", reason, 2, 30.0))
    now = 10.5
    drawn = display.render().plain
    message = " ".join(drawn.split())
    assert "some-model: 2 retries, next in 20s; last error: mine (for 'some-model')" in message
    assert "answered 429: slow down" in message
    assert "\x1b" not in drawn
    assert max(map(len, drawn.splitlines())) <= width
    now = 31.0
    assert "next in" not in display.render().plain
    assert "2 retries; last error" in display.render().plain


def test_retries_are_printed_at_intervals() -> None:
    times = iter([0.0, 1.0, 2.0, 12.0])
    screen = Screen(width=200)
    display = PlainDisplay(screen.console, clock=lambda: next(times))
    display.on_event(RunStarted({"a": 1}))
    for attempt in (1, 2, 3):
        display.on_event(CallRetried("a", "it answered 503", attempt, 4.0))
    assert screen.lines == [
        "a: 1 retry, next in 4s; last error: it answered 503",
        "a: 3 retries, next in 4s; last error: it answered 503",
    ]
