"""Subjects from files: reading, errors and writing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.judge.subjects import Subject, TrialOutcome
from assay.store.experiments_file import (
    disambiguate,
    read_experiments_file,
    read_results_file,
    write_experiments_file,
)
from assay.store.load import load_outcomes, load_stored_run
from assay.store.queries import episodes
from assay.store.results_file import write_results
from assay.store.subjects import load_subjects
from assay.types import TrialState
from tests.store.sessions import make_run, make_session, make_sessions
from tests.store.stores import fill

from .experiments_file import SEED_FILE

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(content: Any, name: str = "file.json") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return write


def experiment(**fields: Any) -> dict[str, Any]:
    entry = {"name": "a", "achievements": [1, 2], "instances": ["easy", "hard"], **fields}
    return {"experiments": [entry]}


def test_original_experiments_layout_is_read(save: Save) -> None:
    path = save(SEED_FILE)
    baseline, improved = read_experiments_file(path)
    assert (baseline.id, baseline.name, baseline.version) == (
        "baseline-7b",
        "baseline-7b",
        "v1.0",
    )
    assert improved.model == "ft:qwen2-5-7b-instruct:org-test123:timestamp"
    assert improved.facts == {"training_data": "crafter_improved.jsonl", "epochs": 5}
    assert improved.source == str(path)
    assert [trial.values for trial in improved.trials] == [
        {"achievements": value} for value in (3.2, 3.5, 3.1)
    ]
    assert [trial.pair for trial in improved.trials] == ["easy #1", "medium #1", "hard #1"]
    assert [trial.pair for trial in improved.trials] == [
        trial.pair for trial in baseline.trials
    ]


def test_trials_without_seeds_are_paired_by_occurrence(save: Save) -> None:
    content = experiment(achievements=[1, 2, 3], instances=["hard", "easy", "hard"])
    (subject,) = read_experiments_file(save(content))
    assert [(trial.pair, trial.replicate) for trial in subject.trials] == [
        ("hard #1", 0),
        ("easy #1", 0),
        ("hard #2", 0),
    ]


def test_seeds_success_and_durations_are_read(save: Save) -> None:
    content = experiment(
        achievements=[1, 2, 3, None],
        instances=["easy", "easy", "hard", 7],
        seeds=[42, 42, 42, 9],
        success=[True, 0, None, False],
        durations=[1.5, 2, 3, 4],
        colour="blue",
    )
    (subject,) = read_experiments_file(save(content))
    assert subject.facts == {"colour": "blue"}
    assert [(trial.pair, trial.replicate) for trial in subject.trials] == [
        ("easy 42", 0),
        ("easy 42", 1),
        ("hard 42", 0),
        ("7 9", 0),
    ]
    assert [trial.values for trial in subject.trials] == [
        {"achievements": 1.0, "success": 1.0, "duration_s": 1.5},
        {"achievements": 2.0, "success": 0.0, "duration_s": 2.0},
        {"achievements": 3.0, "duration_s": 3.0},
        {},
    ]
    assert subject.trials[3].state is TrialState.FAILURE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (experiment(achievements=[1]), "'a' of .* has 1 achievements but 2 instances"),
        (experiment(seeds=[1]), "2 achievements but 1 seeds"),
        (experiment(achievements=[]), "achievements is empty"),
        (experiment(achievements=None), "'a' of .* has no achievements"),
        (experiment(achievements=3), "achievements is 3; give a list"),
        (experiment(achievements=["1", 2]), 'value 1 of achievements is "1"; give a number'),
        (experiment(achievements=[1, True]), "value 2 of achievements is true"),
        (experiment(achievements=[1, [2]]), "value 2 of achievements is a list of 1"),
        (experiment(achievements=[1, 10**400]), "value 2 of achievements .* finite number"),
        (experiment(instances=["easy", {}]), "value 2 of instances is an object of 0"),
        (experiment(success=[1, 2]), "value 2 of success is 2; give true or false"),
        (experiment(durations=[1, -2]), "value 2 of durations is -2; .* at least 0"),
        (experiment(seeds=[1, 2.5]), "value 2 of seeds is 2.5; give a whole number"),
        (experiment(seeds=[1, 2**70]), "value 2 of seeds is a number of more than 18 digits"),
        (experiment(name=""), 'experiment 1 of .*: name is ""'),
        (experiment(name="x" * 400), "name is .*…; give text of 1 to 300"),
        (experiment(model=["a"]), "model is a list of 1"),
        ({"experiments": 2 * experiment()["experiments"]}, "two experiments .* named 'a'"),
        ({"experiments": []}, "a list of 0 as 'experiments'"),
        ({"experiments": ["a"]}, 'experiment 1 .* is "a"; give an object'),
        ({"runs": []}, "no 'experiments'; give a list of objects"),
        ({"models": {}}, "is a results file; pass it as --baseline"),
        ([1, 2], "contains a list of 2; give a JSON object"),
        ("[" * 100_000, "not complete, valid JSON"),
        ('{"experiments": ', "not complete, valid JSON"),
        ('{"experiments": [{"name": "a", "achievements": [NaN]}]}', "NaN .* write null"),
        ('{"x": ' + "1" * 5000 + "}", "not complete, valid JSON"),
    ],
)
def test_invalid_experiments_file_gives_a_clear_error(
    save: Save, content: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_experiments_file(save(content))
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_binary_missing_or_oversized_files_are_reported(tmp_path: Path) -> None:
    for read in (read_experiments_file, read_results_file):
        with pytest.raises(UsageError, match=r"nowhere\.json' cannot be read"):
            read(tmp_path / "nowhere.json")
        with pytest.raises(UsageError, match="cannot be read: Is a directory"):
            read(tmp_path)
        (tmp_path / "binary.json").write_bytes(b"\xff\xfe{}")
        with pytest.raises(UsageError, match="UTF-8"):
            read(tmp_path / "binary.json")
        with (tmp_path / "large.json").open("wb") as stream:
            stream.truncate(2_000_000_000)
        with pytest.raises(UsageError, match=r"has 2,000 MB, but at most 1,?0"):
            read(tmp_path / "large.json")


def test_control_characters_in_names_are_escaped(save: Save) -> None:
    nasty = "\x1b[2J\u202ered\n"
    with pytest.raises(UsageError) as caught:
        read_experiments_file(save(experiment(name=nasty, seeds=[1])))
    assert str(caught.value).isprintable()
    models: dict[str, Any] = {nasty: {}, "b": {}}
    with pytest.raises(UsageError) as caught:
        read_results_file(save({"models": models}))
    assert str(caught.value).isprintable()


def entry(**fields: Any) -> dict[str, Any]:
    metrics = {"achievements": [3, None, 5], "cost_usd": [0.5, None, None]}
    return {"name": "gpt v1.0", "seeds": [42, 43, 44], "metrics": metrics, **fields}


def test_single_entry_is_read_as_a_results_file(save: Save) -> None:
    path = save(entry(), "improved.json")
    (subject,) = read_results_file(path)
    assert (subject.name, subject.id, subject.model) == ("gpt v1.0", str(path), None)
    assert [trial.pair for trial in subject.trials] == ["42", "43", "44"]
    assert [trial.values for trial in subject.trials] == [
        {"achievements": 3.0, "cost_usd": 0.5},
        {},
        {"achievements": 5.0},
    ]
    assert subject.trials[1].state is TrialState.FAILURE
    assert read_results_file(f"{path}#gpt v1.0") == [subject]


def test_hash_suffix_selects_a_model(save: Save) -> None:
    models = {"a/x": entry(), "b#1": entry(name="b"), "noop": entry(baseline=True)}
    path = save({"models": models}, "run #3.json")
    (subject,) = read_results_file(f"{path}#b#1")
    assert (subject.name, subject.model, subject.id) == ("b", "b#1", f"{path}#b#1")
    assert read_results_file(f"{path}#noop")[0].baseline
    assert read_results_file(f"{path}#b") == [subject]
    with pytest.raises(UsageError, match=r"has 3 models; .*#a/x': a/x, b#1, noop"):
        read_results_file(path)
    with pytest.raises(UsageError, match="unknown model 'a/y'; did you mean 'a/x'"):
        read_results_file(f"{path}#a/y")
    del models["b#1"]
    assert read_results_file(save({"models": models}))[0].model == "a/x"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (entry(seeds=[1]), "has 1 seeds but 3 values of metric 'achievements'"),
        (entry(metrics={"x": ["a", 1, 2]}), "value 1 of metric 'x' is \"a\""),
        (entry(metrics=[1]), "metrics is a list of 1"),
        (entry(seeds=[]), "seeds is empty"),
        ({"name": "a"}, "has no seeds; a results file has"),
        ({"models": {"a": 1}}, "model 'a' of .* is not an object"),
        ({"models": []}, "'models' is a list of 0"),
        (experiment(), "pass it as --experiments"),
    ],
)
def test_invalid_results_file_gives_a_clear_error(save: Save, content: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_results_file(save(content))


RUN = make_run(baselines=["builtin/expert"])
SESSIONS = [
    *make_sessions(RUN),
    make_session(RUN, episode=2, state=TrialState.INFRASTRUCTURE),
    make_session(RUN, episode=3, state=TrialState.FAILURE),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Subject]]:
    """The results file of a run, and its subjects from the database."""
    folder = tmp_path_factory.mktemp("files")
    store = fill(folder / "t.duckdb", RUN, SESSIONS)
    with store.reading() as connection:
        rows = episodes(connection, run_id=RUN.id)
        run = load_stored_run(connection, RUN.id)
        earned = load_outcomes(connection, [row.session_id for row in rows])
        subjects = load_subjects(connection, [experiment.id for experiment in RUN.experiments])
    for name, detailed in (("run.json", True), ("brief.json", False)):
        write_results(folder / name, run, rows, earned, {}, detailed=detailed)
    return folder, subjects


def numbers(subject: Subject) -> list[tuple[int | None, int, str, dict[str, float]]]:
    return [
        (trial.seed, trial.replicate, trial.state.value, dict(trial.values))
        for trial in subject.trials
    ]


@pytest.mark.parametrize("name", ["run.json", "brief.json"])
def test_results_file_equals_the_database(
    name: str, stored: tuple[Path, list[Subject]]
) -> None:
    folder, subjects = stored
    for model, known in zip(("builtin/forager", "builtin/expert"), subjects, strict=True):
        (subject,) = read_results_file(f"{folder / name}#{model}")
        assert numbers(subject) == numbers(known)
        for field in ("name", "series", "version", "run_id", "created_at", "baseline"):
            assert getattr(subject, field) == getattr(known, field)
        assert subject.facts["seed"] == 42
    (only,) = read_results_file(folder / name)
    assert only.model == "builtin/forager"


def test_experiments_file_round_trips(
    tmp_path: Path, stored: tuple[Path, list[Subject]]
) -> None:
    path = tmp_path / "experiments.json"
    assert write_experiments_file(path, stored[1]) == 2
    content = json.loads(path.read_text("utf-8"))
    assert content["experiments"][0]["instances"] == ["easy", "easy"]
    assert content["experiments"][0]["without_result"] == 2
    for known, subject in zip(stored[1], read_experiments_file(path), strict=True):
        results = [trial for trial in known.trials if trial.values]
        for field in ("name", "model", "series", "version", "commit", "note"):
            assert getattr(subject, field) == getattr(known, field)
        assert [trial.seed for trial in subject.trials] == [trial.seed for trial in results]
        for metric in ("achievements", "duration_s"):
            assert [trial.values[metric] for trial in subject.trials] == [
                trial.values[metric] for trial in results
            ]


def test_file_without_subjects_or_trials_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name one or more"):
        write_experiments_file(tmp_path / "x.json", [])
    empty = Subject(id="a", name="a", trials=(TrialOutcome(trial_id="1", pair=None),))
    with pytest.raises(UsageError, match="'a' has no results with achievements"):
        write_experiments_file(tmp_path / "x.json", [empty])
    assert not (tmp_path / "x.json").exists()


def test_subjects_with_equal_names_are_distinguished_by_file() -> None:
    def subject(name: str, source: str) -> Subject:
        return Subject(id=f"{source}#{name}", name=name, source=source)

    given = [subject("a", "old/x.json"), subject("b", "x.json"), subject("a", "new/y.json")]
    assert [subject.name for subject in disambiguate(given)] == [
        "a (x.json)",
        "b",
        "a (y.json)",
    ]
    twice = disambiguate([given[0], given[0]])
    assert (
        len({subject.name for subject in twice}) == len({subject.id for subject in twice}) == 2
    )
