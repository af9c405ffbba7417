"""Runs that stop when decided: interim analyses, admission of trials, and storage."""

import json
import random
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api.run_preparation import prepare
from assay.crafter.service.client import LocalClient
from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.episodes.kind import EpisodeKind, EpisodeParts
from assay.episodes.progress import EpisodeEnd
from assay.errors import ModelUnavailable, UsageError
from assay.judge.subjects import Look
from assay.metrics import DEFAULT_HOOKS
from assay.runs.control import Retries, Stop
from assay.runs.control import TrialVerdict as TrialVerdict
from assay.runs.events import CallbackObserver, TrialEnded
from assay.runs.kind import PreparedRun
from assay.runs.looks import SequentialMonitor
from assay.runs.plan import Admission, Plan, Trial
from assay.runs.prepare import make_run_record
from assay.runs.run import RunResult, execute_run
from assay.stats.sequential import SequentialDesign, looks
from assay.store.load import load_outcomes
from assay.store.looks import load_looks
from assay.store.store import Store
from assay.types import ChatModel, TrialState, Verdict
from tests.runs.programs import Program, run_arguments
from tests.runs.tables import contents, rows
from tests.support import Finished, call_assay

from .players import CountingModel

pytestmark = pytest.mark.usefixtures("compiled_engine")

MODELS = ("base", "good", "same")
CONFIG = RunConfig(models=MODELS, episodes=20, until_decided="reward", min_effect=2.0)


def ended(trial: Trial[Any], value: float | None) -> TrialEnded:
    """Return the end of an episode: with a number, or as a failure."""
    if value is None:
        return TrialEnded(trial, 1, TrialVerdict(TrialState.FAILURE, "refused"))
    end = EpisodeEnd(
        achievements=0,
        reward=value,
        steps=1,
        turns=1,
        invalid_rate=0.0,
        tokens=0,
        cost_usd=None,
        stop_reason="died",
        outcomes={"reward": value},
    )
    return TrialEnded(trial, 1, TrialVerdict(TrialState.RESULT, "died", value=end))


def reward(model: str, world: int) -> float:
    chance = random.Random(f"{model} {world}")
    return {"base": 0.0, "good": 9.0, "same": 0.0}[model] + chance.gauss(0, 1)


def all_trials(config: RunConfig = CONFIG) -> list[Trial[Any]]:
    return [trial for group in monitored(config)[1].groups for trial in group]


def monitored(config: RunConfig = CONFIG) -> tuple[PreparedRun[RunConfig], Plan[Any]]:
    """Return a prepared run and its plan."""
    arms = make_arms(config, {})
    run = PreparedRun(config, make_run_record(config, arms, "run", ""), arms, None, {}, ())
    kind = EpisodeKind(config, arms, lambda _: EpisodeParts(LocalClient), {})
    return run, kind.plan(run.record)


def found(lookout: SequentialMonitor) -> list[tuple[Any, ...]]:
    return [
        (look.experiment_id, look.look, look.pairs, look.estimate, look.low, look.decision)
        for look in lookout.records()
    ]


def test_looks_do_not_depend_on_the_order_of_episodes() -> None:
    seen = []
    for seed in range(3):
        trials = all_trials()
        random.Random(seed).shuffle(trials)
        lookout = SequentialMonitor(*monitored(), earlier_outcomes={})
        for trial in trials:
            if trial.group in MODELS:
                lookout.on_event(ended(trial, reward(trial.group, trial.index)))
        seen.append(found(lookout))
    assert repr(seen[0]) == repr(seen[1]) == repr(seen[2])
    decisions = {found.model: found.decision for found in lookout.comparisons()}
    assert decisions == {"good": Verdict.BETTER, "same": Verdict.NO_DIFFERENCE}


def test_earlier_outcomes_give_the_same_looks_as_events() -> None:
    heard = SequentialMonitor(*monitored(), earlier_outcomes={})
    known = {}
    for trial in all_trials():
        if trial.group in MODELS:
            known[trial.id] = reward(trial.group, trial.index)
            heard.on_event(ended(trial, known[trial.id]))
    assert repr(found(SequentialMonitor(*monitored(), earlier_outcomes=known))) == repr(
        found(heard)
    )


def test_looks_equal_those_of_the_sequential_test() -> None:
    lookout = SequentialMonitor(*monitored(), earlier_outcomes={})
    for trial in all_trials():
        if trial.group in MODELS:
            lookout.on_event(ended(trial, reward(trial.group, trial.index)))
    differences = [reward("good", world) - reward("base", world) for world in range(20)]
    design = SequentialDesign(most=20, comparisons=2, min_effect=2.0)
    records = [look for look in lookout.records() if look.design["comparisons"] == 2]
    expected = looks(differences, design)
    assert [(look.pairs, look.decision) for look in records[: len(expected)]] == [
        (look.pairs, look.decision) for look in expected
    ]
    assert SequentialDesign.of(records[0].design) == design


def test_pair_with_a_failure_is_excluded_and_counted() -> None:
    config = RunConfig(models=("base", "good"), episodes=8, until_decided="reward")
    lookout = SequentialMonitor(*monitored(config), earlier_outcomes={})
    for trial in all_trials(config):
        failed = (trial.group, trial.index) in {("good", 1), ("base", 1), ("base", 2)}
        if trial.group in MODELS:
            value = 0.5 * (-1) ** trial.index if trial.group == "good" else 0.0
            lookout.on_event(ended(trial, None if failed else value))
    (one,) = lookout.comparisons()
    assert (one.decision, one.pairs, one.left_out) == (Verdict.UNDECIDED, 6, 2)
    assert [(look.pairs, look.decision) for look in lookout.records()] == [
        (5, None),
        (6, "undecided"),
    ]
    assert "2 left out" in one.sentence


def test_looks_wait_for_a_pair_with_an_infrastructure_error() -> None:
    config = RunConfig(models=("base", "good"), episodes=9, until_decided="reward")
    trials = [trial for trial in all_trials(config) if trial.group in MODELS]
    lookout = SequentialMonitor(*monitored(config), earlier_outcomes={})
    for trial in trials:
        if (trial.group, trial.index) == ("base", 2):
            lost = TrialVerdict(TrialState.INFRASTRUCTURE, "ModelUnavailable")
            lookout.on_event(TrialEnded(trial, 5, lost))
        else:
            lookout.on_event(ended(trial, reward(trial.group, trial.index)))
    (one,) = lookout.comparisons()
    assert (one.decision, one.pairs, one.looks) == (None, 2, 0)
    assert "not decided yet" in one.sentence


def test_leading_model_waits_and_decided_model_stops() -> None:
    config = replace(CONFIG, episodes=30)
    lookout = SequentialMonitor(*monitored(config), earlier_outcomes={})
    trials = {(trial.group, trial.index): trial for trial in all_trials(config)}

    def admitted(model: str, world: int) -> Admission:
        return lookout.admit(trials[model, world])

    for model in MODELS:
        assert (admitted(model, 4), admitted(model, 5)) == (Admission.NOW, Admission.LATER)
    assert admitted("builtin/noop", 0) is Admission.LATER
    world = 0
    while lookout.comparisons()[0].decision is None:
        for model in MODELS:
            lookout.on_event(ended(trials[model, world], reward(model, world)))
        world += 1
    assert admitted("good", world) is Admission.NEVER
    assert admitted("same", world) is admitted("base", world) is Admission.NOW
    assert admitted("builtin/noop", world - 1) is Admission.NOW
    assert admitted("builtin/noop", world) is Admission.LATER
    while lookout.comparisons()[1].decision is None:
        for model in ("base", "same"):
            lookout.on_event(ended(trials[model, world], reward(model, world)))
        world += 1
    assert {admitted(model, world) for model in MODELS} == {Admission.NEVER}
    assert admitted("builtin/noop", world - 1) is Admission.NOW
    assert admitted("builtin/noop", world) is Admission.NEVER


def test_episode_with_a_journal_is_finished() -> None:
    known = {trial.id: reward(trial.group, trial.index) for trial in all_trials()[:60]}
    begun = next(trial for trial in all_trials() if (trial.group, trial.index) == ("good", 19))
    lookout = SequentialMonitor(*monitored(), earlier_outcomes=known, unfinished=[begun.id])
    assert lookout.admit(begun) is Admission.NOW


@pytest.mark.parametrize(
    ("metric", "decision"), [("tokens", Verdict.WORSE), ("steps", Verdict.HIGHER)]
)
def test_higher_cost_is_worse(metric: str, decision: Verdict) -> None:
    config = RunConfig(models=("base", "good"), episodes=8, until_decided=metric)
    known = {trial.id: reward(trial.group, trial.index) for trial in all_trials(config)[:16]}
    (one,) = SequentialMonitor(*monitored(config), earlier_outcomes=known).comparisons()
    assert one.decision is decision


# Real runs.

SMALL: dict[str, Any] = {"episodes": 12, "max_turns": 8, "until_decided": True}
PLAYERS = ["builtin/noop", "builtin/forager"]


def prepared(folder: Path, **more: Any) -> PreparedRun[RunConfig]:
    settings = {
        **SMALL,
        "models": PLAYERS,
        "database": folder / "traces.duckdb",
        "traces_dir": folder / "traces",
        "save_traces": False,
        **more,
    }
    return prepare(settings, run_id="until", dry=True)


def play(
    run: PreparedRun[RunConfig], models: dict[str, ChatModel] | None = None, **more: Any
) -> RunResult:
    names = [experiment.model for experiment in run.record.experiments]
    kind = EpisodeKind(
        run.config,
        run.arms,
        lambda _: EpisodeParts(LocalClient, DEFAULT_HOOKS),
        {name: (models or {}).get(name) or CountingModel(name) for name in names},
    )
    return execute_run(run, kind, retries=Retries(attempts=1), **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """An undisturbed run."""
    return play(prepared(tmp_path_factory.mktemp("whole")))


def test_a_run_stops_when_it_is_decided_and_stores_its_looks(whole: RunResult) -> None:
    result = whole
    (one,) = result.decisions
    assert one.decision is Verdict.BETTER
    assert 5 <= one.pairs < 12
    assert (result.status, result.interrupted) == ("finished", False)
    # noop is the baseline here; random plays in the analysed worlds, too.
    assert result.tallies["builtin/random"].results == one.pairs
    played = {name: tally.results for name, tally in result.tallies.items()}
    assert one.pairs <= played["builtin/forager"] <= one.pairs + 5
    assert all(tally.not_started == 0 for tally in result.tallies.values())
    assert result.tallies["builtin/forager"].unneeded == 12 - played["builtin/forager"]
    with Store(result.database).reading() as connection:
        names = sorted({look.experiment_id for look in result.looks})
        stored = load_looks(connection, names)
        assert _format_looks(stored[names[0]]) == _format_looks(result.looks)
        ids = [row.session_id for row in result.episodes]
        earned = load_outcomes(connection, ids)
    by_model: dict[str, list[float]] = {}
    for row in result.episodes:
        by_model.setdefault(row.model, []).append(earned[row.session_id]["achievements"])
    differences = [
        after - before
        for before, after in zip(*(by_model[name] for name in PLAYERS), strict=False)
    ]
    again = looks(differences, one.design)
    assert [(look.pairs, look.decision) for look in again] == [
        (look.pairs, look.decision) for look in result.looks
    ]


def _format_looks(looks: Sequence[Look]) -> list[str]:
    """Format looks without times, which are stored as whole microseconds; NaN equals NaN."""
    plain = (asdict(replace(look, looked_at=0.0)) for look in looks)
    return [json.dumps(look, sort_keys=True) for look in plain]


@pytest.mark.extras
def test_stopped_run_resumes_to_the_same_looks(tmp_path: Path, whole: RunResult) -> None:
    stop = Stop()
    ends = 0

    def listen(event: object) -> None:
        nonlocal ends
        ends += isinstance(event, TrialEnded)
        if ends == 3:
            stop.request()

    few = {"max_concurrent_episodes": 2}
    first = play(prepared(tmp_path, **few), observer=CallbackObserver(listen), stop=stop)
    assert first.interrupted
    assert first.decisions[0].decision is None
    second = play(prepared(tmp_path))
    assert (second.resumed, second.status) == (True, "finished")
    tables = [contents(run.database)["looks"] for run in (whole, second)]
    assert tables[0] == tables[1] != []
    assert second.decisions == whole.decisions


@pytest.mark.extras
def test_lost_connection_delays_looks_until_a_resume(tmp_path: Path) -> None:
    def lost(call: int) -> None:
        if call == 1:
            raise ModelUnavailable("gone")

    first = play(
        prepared(tmp_path), {"builtin/forager": CountingModel("builtin/forager", trouble=lost)}
    )
    assert first.status == "incomplete"
    assert not first.interrupted
    assert (first.decisions[0].decision, first.decisions[0].looks) == (None, 0)
    # No model played on without interim analyses.
    assert first.tallies["builtin/noop"].results <= 5
    second = play(prepared(tmp_path))
    assert second.status == "finished"
    assert second.decisions[0].decision is Verdict.BETTER


@pytest.mark.extras
def test_undecided_models_play_all_worlds(tmp_path: Path) -> None:
    class Twin(CountingModel):
        """Plays like noop under another name."""

        def __init__(self) -> None:
            super().__init__("builtin/noop")
            self.name = "twin"

    run = prepared(tmp_path, models=["builtin/noop", "twin"], episodes=6, baselines=False)
    result = play(run, {"twin": Twin()})
    (one,) = result.decisions
    assert (one.decision, one.pairs) == (Verdict.UNDECIDED, 6)
    assert result.status == "finished"
    assert "are undecided in achievements, after 6 pairs" in one.sentence


def test_interim_analyses_change_the_run_and_not_the_version(tmp_path: Path) -> None:
    plain = prepared(tmp_path, until_decided=None)
    looked = prepared(tmp_path, min_effect=1.0)
    assert [experiment.fingerprint for experiment in plain.record.experiments] == [
        experiment.fingerprint for experiment in looked.record.experiments
    ]
    assert plain.config.identity() != looked.config.identity()


# The command.


def command(where: Path, *arguments: str) -> Finished:
    return call_assay(where, "run", *arguments)


@pytest.mark.parametrize(
    ("arguments", "metric"),
    [
        (("--until-decided", "--models", "builtin/noop", "builtin/random"), "achievements"),
        (("--models", "builtin/noop", "builtin/random", "--until-decided"), "achievements"),
        (("--until-decided", "reward", "--models", "builtin/noop", "builtin/random"), "reward"),
        (("--until-decided=steps", "--models", "builtin/noop", "builtin/random"), "steps"),
    ],
)
def test_option_accepts_a_metric_or_none(
    tmp_path: Path, arguments: tuple[str, ...], metric: str
) -> None:
    with chdir(tmp_path):
        code, out, _ = command(
            tmp_path, *arguments, "--min-effect", "0.5", "--dry-run", "--json"
        )
    config = json.loads(out)["config"]
    assert code == 0
    assert (config["until_decided"], config["min_effect"]) == (metric, 0.5)
    assert config["models"] == ["builtin/noop", "builtin/random"]


def test_command_prints_the_decisions(tmp_path: Path) -> None:
    given = ("--models", *PLAYERS, "--episodes", "12", "--max-turns", "8", "--no-save-traces")
    code, out, _ = command(tmp_path, "--until-decided", *given, "--no-baselines")
    assert code == 0
    assert "builtin/forager is better than builtin/noop in achievements, after " in out


@pytest.mark.extras
def test_decisions_are_printed_as_json(tmp_path: Path) -> None:
    given = ("--models", *PLAYERS, "--episodes", "12", "--max-turns", "8", "--no-save-traces")
    code, out, _ = command(
        tmp_path, "--until-decided", "invalid_rate", *given, "--no-baselines", "--json"
    )
    (one,) = json.loads(out)["decisions"]
    assert code == 0
    assert (one["model"], one["baseline"]) == ("builtin/forager", "builtin/noop")
    assert one["metric"] == "invalid_rate"
    assert one["design"]["lower_is_better"]


def test_dry_run_calls_its_estimate_a_maximum(tmp_path: Path) -> None:
    code, out, _ = command(tmp_path, "--until-decided", "--episodes", "30", "--dry-run")
    assert code == 0
    assert "These are maximums: the run stops as soon as" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--until-decided", "--models", "one"), "is the only one"),
        (("--until-decided", "--episodes", "4"), "needs 5 worlds"),
        (("--until-decided", "rewart"), "did you mean 'reward'?"),
        (("--until-decided", "unlocked/x"), "unlocked/wake_up"),
        (("--until-decided", "--min-effect", "-1"), "--min-effect"),
    ],
)
def test_undecidable_settings_are_rejected(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = command(tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_setting_can_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "assay.toml"
    file.write_text("[experiment]\nepisodes = 20\nuntil_decided = 'reward'\nmin_effect = 0.5\n")
    config = prepare({}, file, dry=True).config
    assert (config.until_decided, config.min_effect) == ("reward", 0.5)
    file.write_text("[experiment]\nuntil_decided = true\n")
    assert prepare({}, file, dry=True).config.until_decided == "achievements"
    file.write_text("[experiment]\nuntil_decided = false\n")
    assert prepare({}, file, dry=True).config.until_decided is None
    file.write_text("[experiment]\nuntil_decided = 3\n")
    with pytest.raises(UsageError, match=r"until_decided: 3 is not allowed"):
        prepare({}, file, dry=True)


def test_options_without_effect_are_reported(tmp_path: Path) -> None:
    warnings = prepare({"min_effect": 1.0, "database": tmp_path / "x"}).warnings
    assert any("min_effect = 1 has no effect" in line for line in warnings)
    warnings = prepare(
        {**SMALL, "concurrent_models": True, "database": tmp_path / "x"}
    ).warnings
    assert any("concurrent_models has no effect" in line for line in warnings)


@pytest.mark.extras
def test_setting_works_in_python(tmp_path: Path) -> None:
    with chdir(tmp_path):
        result = assay.run(models=PLAYERS, baselines=False, save_traces=False, **SMALL)
    assert [found.decision for found in result.decisions] == [Verdict.BETTER]


@pytest.mark.extras
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_run_resumes_to_the_looks_of_an_undisturbed_run(
    tmp_path: Path, seed: int
) -> None:
    more = ("--models", *PLAYERS, "--until-decided", "--run-id", "until", "--no-save-traces")
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    for folder in (plain, killed):
        folder.mkdir()

    def start(folder: Path) -> Program:
        return Program(folder, *run_arguments(folder, *more, episodes=14, turns=8))

    whole, cut = start(plain), start(killed)
    turns = random.Random(seed).randrange(20, 100)
    cut.until(lambda: cut.turns >= turns, "the turn to be killed in")
    cut.kill()
    again = start(killed)
    assert (whole.wait(), again.wait()) == (0, 0), (whole.errors, again.errors)
    tables = [contents(folder / "traces.duckdb")["looks"] for folder in (plain, killed)]
    assert tables[0] == tables[1] != []
    ends = [row["decision"] for row in rows(killed / "traces.duckdb", "looks")]
    assert ends[-1] == "better"
    assert set(ends[:-1]) == {None}
