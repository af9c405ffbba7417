"""Forks: stored episodes continued from one of their states, with several futures each."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import hypot
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import assay
from assay.api.comparison import stored_subjects
from assay.api.runs import prepare_fork
from assay.api.servers import serve_models
from assay.api.traces import open
from assay.cli.program import main
from assay.core.canonical_json import canonical_json
from assay.errors import JournalError, UsageError
from assay.finetune.datasets.formats import RowFormat
from assay.finetune.datasets.manifest import read_row_origins
from assay.finetune.datasets.options import RowOptions
from assay.finetune.datasets.preferences import (
    SharedStates,
    compute_call_states,
    compute_returns,
)
from assay.finetune.datasets.rows import RowMaker
from assay.judge.design import design_differences
from assay.runs.run import RunResult
from assay.store.conversations import load_conversations
from assay.store.journal import Journal, read_journal
from assay.store.load import load_session, load_sessions
from assay.store.records import SessionRecord
from assay.store.store import Store
from assay.store.tracer import SessionTracer
from assay.types import Usage
from tests.runs.programs import Program
from tests.runs.tables import contents

pytestmark = pytest.mark.usefixtures("compiled_engine")

TURNS, AT = 8, 3


def play(folder: Path, **settings: Any) -> RunResult:
    usual = {"models": ["builtin/forager"], "episodes": 2, "max_turns": TURNS}
    chosen = {**usual, "baselines": False, "save_traces": False, **settings}
    return assay.run(database=folder / "traces.duckdb", traces_dir=folder / "files", **chosen)


def fork(folder: Path, *sessions: str, **settings: Any) -> RunResult:
    usual = {"models": ["builtin/random"], "at": AT, "futures": 2, "save_traces": False}
    return assay.fork(
        *sessions,
        database=folder / "traces.duckdb",
        traces_dir=folder / "files",
        **{**usual, **settings},
    )


def session_of(folder: Path, session_id: str) -> SessionRecord:
    with Store(folder / "traces.duckdb").reading() as connection:
        return load_session(connection, session_id)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two complete episodes, and two futures of each after a turn."""
    made = tmp_path_factory.mktemp("forks")
    play(made, run_id="whole")
    fork(made, "whole", run_id="forked")
    return made


@pytest.fixture(scope="module")
def forks(folder: Path) -> list[SessionRecord]:
    rows = open(folder / "traces.duckdb").episodes()
    names = [
        each for each, run in zip(rows.session_id, rows.run_id, strict=True) if run == "forked"
    ]
    return [session_of(folder, name) for name in names]


def test_fork_has_the_turns_of_its_parent_then_its_own(
    folder: Path, forks: list[SessionRecord]
) -> None:
    assert len(forks) == 4
    for made in forks:
        assert made.header.parent is not None
        parent = session_of(folder, made.header.parent)
        assert made.played[:AT] == parent.played[:AT]
        assert made.header.forked_at == sum(len(turn.steps) for turn in parent.played[:AT])
        last = parent.calls[AT - 1].reply
        assert made.messages[: last + 1] == parent.messages[: last + 1]
        # The result of the last shared turn is described in the same words.
        assert made.messages[last + 1].message == parent.messages[last + 1].message
        assert len(made.played) <= TURNS
    assert {(made.header.seed, made.header.replicate) for made in forks} == {
        (seed, replicate) for seed in (42, 43) for replicate in (0, 1)
    }


def test_shared_turns_cost_nothing_and_name_the_paying_session(
    folder: Path, forks: list[SessionRecord]
) -> None:
    for made in forks:
        parent = session_of(folder, str(made.header.parent))
        for call, paid in zip(made.calls[:AT], parent.calls, strict=False):
            assert (call.usage, call.cost_usd, call.latency_s) == (Usage(), 0.0, 0.0)
            assert call.parameters["copied"]["session"] == made.header.parent
            assert call.parameters["copied"]["tokens"] == paid.usage.total > 0
        own = made.calls[AT:]
        assert own
        assert all(call.usage.total and "copied" not in call.parameters for call in own)
        assert made.end is not None
    rows = open(folder / "traces.duckdb").sql(
        "SELECT session_id, prompt_tokens + completion_tokens AS tokens FROM episodes"
        " WHERE run_id = 'forked'"
    )
    spent = dict(zip(rows.session_id, rows.tokens, strict=True))
    assert spent == {
        made.header.session_id: sum(call.usage.total for call in made.calls[AT:])
        for made in forks
    }


def test_each_future_has_its_own_recorded_sampling_seed(forks: list[SessionRecord]) -> None:
    seeds = [{call.parameters["seed"] for call in made.calls[AT:]} for made in forks]
    assert all(len(values) == 1 for values in seeds)
    assert len(set().union(*seeds)) == len(forks)


def test_forks_can_be_verified_and_shown(
    folder: Path, forks: list[SessionRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    database = folder / "traces.duckdb"
    assert {check.finding for check in assay.verify("forked", database=database)} == {"same"}
    made = forks[0].header
    assert main(["traces", "show", made.session_id, "--database", str(database)]) == 0
    printed = capsys.readouterr().out
    assert (
        f"forked from {made.parent} at turn {AT}: the first {made.forked_at} steps" in printed
    )


def test_parent_of_a_fork_is_stored(folder: Path, forks: list[SessionRecord]) -> None:
    rows = open(folder / "traces.duckdb").sql(
        "SELECT id, parent, forked_at FROM trials WHERE parent IS NOT NULL"
    )
    assert {*zip(rows.id, rows.parent, rows.forked_at, strict=True)} == {
        (made.header.session_id, made.header.parent, made.header.forked_at) for made in forks
    }


@pytest.mark.extras
def test_limits_apply_to_the_complete_episode(tmp_path: Path) -> None:
    whole = play(tmp_path, episodes=1, step_limit=20)
    parent = session_of(tmp_path, whole.episodes[0].session_id)
    taken = [call.usage.total for call in parent.calls]
    enough = sum(taken[:AT]) + taken[AT] // 2
    result = fork(tmp_path, parent.header.session_id, futures=1)
    assert result.episodes[0].steps <= 20
    assert result.episodes[0].turns <= TURNS
    # Tokens of the parent count towards the limit, but not as spent.
    play(tmp_path, episodes=1, token_limit=enough, run_id="tokens")
    again = fork(tmp_path, "tokens", futures=1, at=AT).episodes[0]
    assert (again.stop_reason, again.turns) == ("token_limit", AT + 1)
    assert again.prompt_tokens + again.completion_tokens < enough / 2


@pytest.mark.extras
def test_first_request_of_a_fork_equals_that_of_its_parent(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Play as slowly as you can.", "utf-8")
    arm = {"label": "second", "model": "builtin/forager", "view": "short", "history": 2}
    chosen = {"models": None, "arms": [arm], "prompt": prompt, "actions_per_turn": 2}
    play(tmp_path, episodes=1, difficulty=["hard", "classic"], run_id="odd", **chosen)
    result = fork(tmp_path, "odd", futures=1, run_id="forked")
    made = [session_of(tmp_path, row.session_id) for row in result.episodes]
    assert [session.header.difficulty for session in made] == ["hard", "classic"]
    for session in made:
        parent = session_of(tmp_path, str(session.header.parent))
        assert b"as slowly as you can" in session.messages[0].message.encoded
        assert session.header.tools == parent.header.tools
        assert session.header.metadata["agent"] == parent.header.metadata["agent"]
        # The first new request equals the request of its parent after the same turns.
        sent = [
            [side.messages[place].message for place in side.calls[AT].request]
            for side in (session, parent)
        ]
        assert sent[0] == sent[1]


def test_fork_of_a_fork_names_the_paying_session(
    folder: Path, tmp_path: Path, forks: list[SessionRecord]
) -> None:
    (tmp_path / "traces.duckdb").write_bytes((folder / "traces.duckdb").read_bytes())
    first = forks[0].header
    result = fork(tmp_path, first.session_id, at="+1", futures=1, run_id="later")
    made = session_of(tmp_path, result.episodes[0].session_id)
    assert made.header.parent == first.session_id
    assert made.header.metadata["fork"]["turn"] == AT + 1
    paid = [call.parameters["copied"]["session"] for call in made.calls[: AT + 1]]
    assert paid == [first.parent] * AT + [first.session_id]
    assert len({made.header.metadata["fork"]["tokens"], 0}) == 2


def test_best_selects_a_complete_episode_and_not_a_fork(folder: Path) -> None:
    prepared = prepare_fork(
        ["best"],
        "50%",
        1,
        {"models": ["builtin/random"], "database": folder / "traces.duckdb"},
        dry=True,
    )
    (point,) = prepared.config.forks
    assert session_of(folder, point.session).header.run_id == "whole"
    assert point.turn == TURNS // 2


def test_dry_run_counts_only_new_calls(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["fork", "whole", "--model", "builtin/random", "--at", f"{AT},{AT + 2}"]
    given += ["--futures", "3", "--dry-run", "--database", str(folder / "traces.duckdb")]
    assert main([*given, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["episodes"] == 2 * 2 * 3
    assert plan["calls_at_most"] == 2 * 3 * ((TURNS - AT) + (TURNS - AT - 2))
    assert plan["seeds"] == [42, 43]
    assert main(given) == 0
    assert "4 states of 2 stored episodes, 3 futures each" in capsys.readouterr().out


@pytest.mark.extras
def test_budget_covers_only_new_turns(tmp_path: Path) -> None:
    priced = {"price": "100/100", "models": ["builtin/forager"]}
    with serve_models(port=0) as server:
        where = {"openai_base_url": server.base_url}
        whole = play(tmp_path, episodes=1, **priced, **where)
        parent = session_of(tmp_path, whole.episodes[0].session_id)
        costs = [call.cost_usd or 0.0 for call in parent.calls]
        assert sum(costs[:AT]) > 0
        name = parent.header.session_id
        small = fork(tmp_path, name, futures=1, budget=sum(costs[:AT]), **priced, **where)
        assert small.stopped_by is not None
        spent = small.open_spending["builtin/forager"].dollars
        assert spent is not None
        assert 0 <= spent <= sum(costs[:AT])
        assert not small.episodes
        # The same command would work, too.
        more = assay.run(
            resume=small.run_id, budget=1000.0, database=tmp_path / "traces.duckdb"
        )
        assert (more.run_id, more.resumed, len(more.episodes)) == (small.run_id, True, 1)
        done = session_of(tmp_path, more.episodes[0].session_id)
        own = sum(call.cost_usd or 0.0 for call in done.calls[AT:])
        assert more.episodes[0].cost_usd == pytest.approx(own)
        assert server.stats()["outcomes"]["answered"] == len(costs) + len(done.calls) - AT


@pytest.mark.extras
def test_workers_play_the_same_futures(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "traces.duckdb").write_bytes((folder / "traces.duckdb").read_bytes())
    with Store(tmp_path / "traces.duckdb").writing() as connection:
        connection.execute("DELETE FROM session_traces WHERE run_id = 'forked'")
        connection.execute("DELETE FROM runs WHERE id = 'forked'")
    result = fork(tmp_path, "whole", run_id="forked", executor="processes", workers=1)
    rows = open(folder / "traces.duckdb").episodes()
    before = {*zip(rows.session_id, rows.reward, rows.steps, strict=True)}
    assert {(row.session_id, row.reward, row.steps) for row in result.episodes} <= before


def refusal(folder: Path, *sessions: str, **settings: Any) -> str:
    with pytest.raises(UsageError) as error:
        fork(folder, *sessions, **settings)
    return str(error.value)


@pytest.mark.parametrize(
    ("sessions", "settings", "words"),
    [
        (["nobody"], {}, "no episode, experiment or run is named 'nobody'"),
        ([], {}, "give the episodes to fork"),
        (["best"], {"at": TURNS}, f"it has {TURNS} turns; give 0 to {TURNS - 1}"),
        (["best"], {"at": "soon"}, "--at 'soon' is not allowed"),
        (["best"], {"at": "100%"}, "--at '100%' is not allowed"),
        (["best"], {"at": "+1"}, "not a fork; give a turn such as 10"),
        (["best"], {"futures": 0}, "--futures 0 is not allowed"),
        (["best"], {"models": []}, "--model is missing"),
        (["best"], {"models": ["gpt-4o-mimi"]}, "did you mean 'gpt-4o-mini'"),
    ],
    ids=lambda value: None if isinstance(value, list | dict) else value[:30],
)
def test_unforkable_episode_is_reported_before_the_run_starts(
    folder: Path, sessions: list[str], settings: dict[str, Any], words: str
) -> None:
    assert words in refusal(folder, *sessions, **settings)


@pytest.mark.extras
def test_sessions_that_cannot_continue_are_rejected_with_the_reason(
    folder: Path, tmp_path: Path
) -> None:
    database = tmp_path / "traces.duckdb"
    database.write_bytes((folder / "traces.duckdb").read_bytes())
    with SessionTracer(database, name="mine", task="mine") as tracer:
        tracer.step("go")
    assert "is a trial of kind traced; only episodes" in refusal(tmp_path, tracer.session_id)
    play(tmp_path, episodes=1, max_turns=4, difficulty="hard", run_id="hard")
    assert "have different settings: max_turns" in refusal(tmp_path, "whole", "hard")
    with Store(database).writing() as connection:
        connection.execute("UPDATE session_timesteps SET action = 'noop' WHERE step_index = 2")
    assert "differs from the recording" in refusal(tmp_path, "whole")
    with Store(database).writing() as connection:
        connection.execute("UPDATE session_timesteps SET digest = NULL")
    assert "steps without a digest" in refusal(tmp_path, "whole")
    with Store(database).writing() as connection:
        connection.execute("DELETE FROM message_rows")
    assert "are not in this database" in refusal(tmp_path, "whole")
    with Store(database).writing() as connection:
        connection.execute("UPDATE session_traces SET task = 'mine'")
    assert "only episodes of Crafter can be forked" in refusal(tmp_path, "whole")


def test_journal_with_shared_turns_is_written_atomically(
    folder: Path, forks: list[SessionRecord], tmp_path: Path
) -> None:
    begun = replace(forks[0], end=None)
    path = tmp_path / "one.jsonl"
    # A process killed while writing leaves a partial file, which the next one rewrites.
    path.with_name("one.jsonl.part").write_bytes(b"half of a l")
    Journal.create(path, begun)
    assert read_journal(path) == begun
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]
    with pytest.raises(JournalError, match="exists already"):
        Journal.create(path, begun)


def test_pairs_of_futures_have_the_same_prompt_bytes_and_digest(tmp_path: Path) -> None:
    play(tmp_path, episodes=1, max_turns=12, run_id="whole")
    models = ["builtin/expert", "builtin/noop"]
    made = fork(tmp_path, "whole", models=models, at=2, futures=4)
    data = tmp_path / "pairs.jsonl"
    database = tmp_path / "traces.duckdb"
    built = assay.sft_filter(data, database=database, models=models, format="preference")
    (row,) = map(json.loads, data.read_text("utf-8").splitlines())
    (origin,) = read_row_origins(data)
    assert origin.first_turn == 3
    digests = set()
    answers = row["preferred_output"], row["non_preferred_output"]
    for name, answer in zip((origin.session_id, origin.other), answers, strict=True):
        side = session_of(tmp_path, str(name))
        call = side.calls[2]
        sent = [side.messages[place].message.encoded for place in call.request]
        assert sent == [canonical_json(message) for message in row["input"]["messages"]]
        assert side.messages[call.reply].message.value == answer[0]
        digests.add(compute_call_states(side)[3].digest)
    assert len(digests) == 1
    # The value of each answer, by hand: the returns of its futures.
    earned: dict[tuple[str, ...], list[float]] = {}
    for played in made.episodes:
        future = session_of(tmp_path, played.session_id)
        earned.setdefault(future.played[2].asked, []).append(compute_returns(future)[3])
    worse, better = sorted(filter(lambda each: len(each) > 1, earned.values()), key=fmean)
    assert row["margin"] == pytest.approx(fmean(better) - fmean(worse))
    errors = [
        max(stdev(values) / len(values) ** 0.5, 1 / (len(values) + 1))
        for values in (worse, better)
    ]
    assert row["margin_se"] == pytest.approx(hypot(*errors), abs=1e-6)
    for name in ("episodes", "turns", "tokens"):
        removed = sum(getattr(step.removed, name) for step in built.funnel)
        assert getattr(built.found, name) - removed == getattr(built.left, name)
    assert assay.sft_validate(data).ok


def test_training_rows_contain_shared_turns_once(folder: Path, tmp_path: Path) -> None:
    database, data = folder / "traces.duckdb", tmp_path / "data.jsonl"
    for mode in ("call", "episode"):
        built = assay.sft_filter(data, mode=mode, database=database, models=["builtin/random"])
        assert min(origin.first_turn for origin in read_row_origins(data)) == AT + 1
        copied = {step.name: step.removed.turns for step in built.funnel}
        assert copied["not copied from a forked episode"] == 4 * AT
        assert built.left.turns == built.found.turns - 2 * TURNS - 4 * AT


def test_answer_has_exactly_the_futures_that_follow_it(folder: Path, tmp_path: Path) -> None:
    database = tmp_path / "traces.duckdb"
    database.write_bytes((folder / "traces.duckdb").read_bytes())
    rows = open(database).episodes()
    first = next(
        each for each, run in zip(rows.session_id, rows.run_id, strict=True) if run == "forked"
    )
    later = fork(tmp_path, first, at="+1", futures=3)
    chosen = [first, *(row.session_id for row in later.episodes)]
    with Store(database).reading() as connection:
        sessions, records = (
            load_conversations(connection, chosen),
            list(load_sessions(connection, chosen)),
        )
    work, states = RowMaker(RowOptions(form=RowFormat.PREFERENCE)), SharedStates()
    for session, record in zip(sessions, records, strict=True):
        work._drop_copied_calls(session, keep_last=True)
        assert states.add(session, record)
    futures: dict[int, list[int]] = {}
    for shared in states._states.values():
        for those in shared.answers.values():
            futures.setdefault(those[0].turn, []).append(len(those))
    # The first fork shares the answer at which it was forked with its parent.
    assert futures[AT] == [1]
    # Its first new answer: its own future, and three more.
    assert futures[AT + 1] == [4]
    assert min(futures) == AT


def test_analyses_of_all_episodes_exclude_forks_with_a_note(folder: Path) -> None:
    database = folder / "traces.duckdb"
    whole = assay.analyze.costs(database=database)
    assert whole.basis.episodes == 2
    assert "Excluded: 4 forked episodes; --run selects their run." in whole.basis.notes
    forked = assay.analyze.costs(database=database, run="forked")
    assert forked.basis.episodes == 4
    assert any("are forks" in note for note in forked.basis.notes)


def test_futures_of_one_world_count_once_in_experiment_means(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["experiments", "log", "builtin/random forked", "--json"]
    assert main([*given, "--database", str(folder / "traces.duckdb")]) == 0
    printed = json.loads(capsys.readouterr().out)
    first = (printed["experiments"] if isinstance(printed, dict) else printed)[0]
    assert (first["trials"], first["result"]["n"]) == (4, 2)


@pytest.mark.extras
def test_forks_and_whole_episodes_are_not_comparable(folder: Path) -> None:
    database = folder / "traces.duckdb"
    fork(folder, "whole", models=["builtin/random", "builtin/noop"], run_id="both")
    try:
        whole, forked = stored_subjects(["whole", "forked"], database=database)
        found, *_ = design_differences(whole, forked)
        assert found[:3] == ("forks", "none (whole episodes)", "2 states")
        assert found.confounds
        alike = assay.compare("both", database=database, metrics=["reward"])
        (contrast,) = alike.contrasts
        assert not [issue for issue in contrast.design if issue.task]
        # Two futures in each of two worlds: the world is the sampling unit.
        assert (contrast.units.worlds, contrast.units.replicates) == (2, 2)
        assert any("forks, played on from states" in note for note in alike.notes)
    finally:
        assay.delete_sessions("both", database=database)


@pytest.mark.extras
def test_killed_fork_resumes_to_the_result_of_an_undisturbed_fork(
    folder: Path, tmp_path: Path
) -> None:
    def start(where: Path) -> Program:
        given = ["fork", "whole", "--model", "builtin/random", "--at", "2", "--futures", "20"]
        return Program(where, *given, "--run-id", "killed", "--database", "traces.duckdb")

    def found(where: Path) -> Callable[[], bool]:
        journals = where / "traces.duckdb.journal" / "killed"
        return lambda: sum(1 for _ in journals.glob("*.jsonl")) > 5

    for name in ("plain", "killed"):
        (tmp_path / name).mkdir()
        data = (folder / "traces.duckdb").read_bytes()
        (tmp_path / name / "traces.duckdb").write_bytes(data)
    program = start(tmp_path / "plain")
    assert program.wait() == 0, program.errors
    for _ in range(2):
        program = start(tmp_path / "killed")
        program.until(found(tmp_path / "killed"), "journals")
        program.kill()
    program = start(tmp_path / "killed")
    assert program.wait() == 0, program.errors
    databases = [tmp_path / name / "traces.duckdb" for name in ("plain", "killed")]
    assert contents(databases[0]) == contents(databases[1])
