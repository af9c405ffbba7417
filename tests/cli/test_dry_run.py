"""`assay run --dry-run` estimates a run without keys, network or files."""

import json
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

import assay
from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.runs.control import Stop
from assay.runs.events import CallbackObserver
from tests.support import Finished, call_assay

pytestmark = pytest.mark.usefixtures("compiled_engine")

SMALL = ("--episodes", "2", "--max-turns", "6")


def dry(folder: Path, *arguments: str) -> Finished:
    return call_assay(folder, "run", *SMALL, "--dry-run", *arguments)


def estimate(folder: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = dry(folder, *arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)["estimate"]
    return found


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "ASSAY_MODELS"):
        monkeypatch.delenv(name, raising=False)


def test_calls_tokens_dollars_and_time_are_shown_by_model_and_in_total(tmp_path: Path) -> None:
    chosen = ("--models", "gpt-4o-mini", "gemini-2.5-flash-lite", "--no-baselines")
    code, out, _ = dry(tmp_path, *chosen)
    assert code == 0
    heads = ["model", "calls", "prompt", "tokens", "reply", "tokens", "dollars", "at", "most"]
    lines = [line.split() for line in out.splitlines()]
    assert [*heads, "time"] in lines
    rows = {line[0]: line for line in lines if line}
    assert rows["gpt-4o-mini"][1] == rows["gemini-2.5-flash-lite"][1] == "12"
    assert ["total", "24"] in [line[:2] for line in lines]
    assert "assumes 2 s per call over the network" in out


def test_dry_run_needs_no_key_and_no_network_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a dry run used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    code, out, _ = dry(tmp_path, "--models", "gpt-4o-mini", "--cache", "replies.sqlite")
    assert code == 0
    assert "needed before the run" in out
    assert "OPENAI_API_KEY" in out
    assert list(tmp_path.iterdir()) == []


def test_existing_key_is_not_requested_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    code, out, err = dry(tmp_path, "--models", "gpt-4o-mini")
    assert code == 0
    assert "needed before the run" not in out
    assert "sk-secret-of-mine" not in out + err


def test_the_bound_is_above_the_estimate_and_built_in_models_cost_nothing(
    tmp_path: Path,
) -> None:
    found = estimate(tmp_path, "--models", "gpt-4o-mini", "builtin/expert")
    remote, here = found["models"][:2]
    assert 0 < remote["dollars"] < remote["dollars_at_most"]
    assert (here["dollars"], here["dollars_at_most"], here["provider"]) == (0, 0, "builtin")
    assert found["dollars"] == remote["dollars"]
    assert remote["prompt_tokens"] > 1000 * remote["calls"]


def test_price_of_the_user_is_used_for_an_unpriced_model(tmp_path: Path) -> None:
    chosen = ("--models", "openrouter/some/model", "--no-baselines")
    code, out, _ = dry(tmp_path, *chosen)
    assert code == 0
    assert "unknown price: openrouter/some/model" in out
    assert "--price IN/OUT" in out
    assert estimate(tmp_path, *chosen)["unpriced"] == ["openrouter/some/model"]
    priced = estimate(tmp_path, *chosen, "--price", "1/2")
    twice = estimate(tmp_path, *chosen, "--price", "2/4")
    assert priced["unpriced"] == []
    assert twice["dollars"] == pytest.approx(2 * priced["dollars"])


@pytest.mark.parametrize(
    ("budget", "fit", "words"),
    [
        ("100", "surely", "enough in any case"),
        ("0.001", "no", "not enough by the estimate"),
    ],
)
def test_budget_is_compared_with_the_estimate(
    tmp_path: Path, budget: str, fit: str, words: str
) -> None:
    chosen = ("--models", "gpt-4o-mini", "--budget", budget)
    assert words in dry(tmp_path, *chosen)[1]
    assert estimate(tmp_path, *chosen)["fit"] == fit


def test_budget_with_an_unpriced_model_is_reported(tmp_path: Path) -> None:
    chosen = ("--models", "openrouter/some/model", "--budget", "1")
    _, out, _ = dry(tmp_path, *chosen)
    assert "needed before the run: the budget needs a price" in out


def test_custom_base_url_serves_built_in_names_and_the_openai_url_does_not(
    tmp_path: Path,
) -> None:
    chosen = ("--models", "builtin/forager", "--no-baselines", "--openai-base-url")
    (own,) = estimate(tmp_path, *chosen, "http://127.0.0.1:1/v1")["models"]
    assert (own["provider"], own["dollars"]) == ("custom", None)
    (here,) = estimate(tmp_path, *chosen, "https://api.openai.com/v1")["models"]
    assert here["provider"] == "builtin"


@pytest.mark.parametrize(
    ("model", "word"),
    [("gpt-4o-mimi", "did you mean 'gpt-4o-mini'")],
    ids=["unknown"],
)
def test_unusable_model_is_rejected(tmp_path: Path, model: str, word: str) -> None:
    code, _, err = dry(tmp_path, "--models", model)
    assert code == 2
    assert word in err


def test_only_the_rest_of_a_resumed_run_is_estimated(tmp_path: Path) -> None:
    settings = {
        "models": ["builtin/random"],
        "episodes": 4,
        "max_turns": 6,
        "baselines": False,
        "max_concurrent_episodes": 1,
        "database": tmp_path / "traces.duckdb",
        "traces_dir": tmp_path / "traces",
    }
    stop = Stop()
    ended = []

    def listen(event: object) -> None:
        ended.append(type(event).__name__)
        if ended.count("TrialEnded") == 2:
            stop.request()

    run_prepared(prepare(settings), observer=CallbackObserver(listen), stop=stop)
    again = prepare(settings, dry=True)
    assert again.resumed is not None
    assert 0 < (left := assay.estimate(again).models[0]).calls <= 6 * left.episodes
    assert left.episodes in (1, 2)
    assert assay.estimate(again).calls == left.calls
    assert assay.estimate(prepare(settings, dry=True, fresh=True)).calls == 24


def test_cost_of_user_agents_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def act(view):\n    return 'noop'\n\n\n"
        "class Asking:\n    def __init__(self, model): ...\n    act = staticmethod(act)\n",
        "utf-8",
    )
    who = ("--agents", "mine.py:act", "mine.py:Asking", "--models", "gpt-4o-mini")
    chosen = (*who, "--no-baselines", "--difficulty", "easy", "hard", "--replicates", "2")
    _, out, _ = dry(tmp_path, *chosen)
    assert "Models:   gpt-4o-mini, act, Asking+gpt-4o-mini\n" in out
    assert "Episodes: 8 per model, at most 6 turns each\n" in out
    assert "Worlds:   Crafter (easy, hard), seeds 42 to 43, each world 2 times\n" in out
    assert "agents without model calls: act;" in out
    assert "your own agents: Asking+gpt-4o-mini;" in out
    found = {model["model"]: model for model in estimate(tmp_path, *chosen)["models"]}
    assert found["act"]["calls"] == found["act"]["dollars"] == 0
    assert found["Asking+gpt-4o-mini"]["calls"] == found["gpt-4o-mini"]["calls"] == 8 * 6
    assert found["Asking+gpt-4o-mini"]["dollars_at_most"] is None


def test_retired_model_is_reported_and_model_map_replaces_it(tmp_path: Path) -> None:
    _, out, _ = dry(tmp_path, "--models", "gemini-1.5-flash")
    assert "needed before the run: model 'gemini-1.5-flash' was retired" in out
    assert "--model-map gemini-1.5-flash=" in out
    mapped = ("--model-map", "gemini-1.5-flash=Builtin/Forager")
    _, out, _ = dry(tmp_path, "--models", "gemini-1.5-flash", "BUILTIN/expert", *mapped)
    assert "Models:   builtin/forager, builtin/expert\n" in out
    code, _, said = dry(tmp_path, "--models", "builtin/noop", *mapped)
    assert code == 2
    assert "unknown model in --model-map" in said


def test_unused_configuration_file_is_mentioned(tmp_path: Path) -> None:
    (tmp_path / "multi_model_config.toml").write_text("[experiment]\nepisodes = 2\n", "utf-8")
    _, _, said = dry(tmp_path)
    assert "multi_model_config.toml exists but is not used" in said
