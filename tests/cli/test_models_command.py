"""`assay models` from the command line."""

import asyncio
import json
from datetime import date
from pathlib import Path

import pytest

from assay.agents import make_builtin
from assay.agents.chat_models import send_test_request
from assay.cli.models import list_models, models, try_model
from assay.cli.output import OutputOptions
from assay.errors import UsageError
from assay.types import ChatReply, ChatRequest, Message

KEY = "sk-planted-0123456789abcdef"


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("ASSAY_MODELS", "OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_the_list_shows_price_context_key_and_retirement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert list_models() == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert lines["gpt-4o-mini"].split()[1:8] == [
        *("openai", "yes", "0.15", "0.075", "0.6", "2026-07-02", "128000"),
    ]
    assert lines["gpt-4"].endswith("since 2026-10-23; use gpt-5.6-sol")
    assert "no: GROQ_API_KEY" in lines["qwen3/32b"]
    assert "not needed" in lines["builtin/expert"]
    assert "PROVIDER/NAME" in out
    assert KEY not in out


def test_list_can_be_limited_to_one_provider(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_models(provider="groq", show=OutputOptions(quiet=True)) == 0
    assert capsys.readouterr().out.split() == ["qwen3/32b", "gpt-oss-120b", "qwen3.6/27b"]
    assert list_models(provider="builtin", show=OutputOptions(quiet=True)) == 0
    assert "builtin/noop" in capsys.readouterr().out
    assert list_models(provider="ollama") == 0
    assert "ollama/NAME" in capsys.readouterr().out


def test_unknown_provider_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown provider 'opnai'; did you mean 'openai'"):
        list_models(provider="opnai")


def test_json_list_shows_whether_a_key_is_set_but_not_the_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert list_models(show=OutputOptions(json=True)) == 0
    out = capsys.readouterr().out
    printed = json.loads(out)
    rows = {row["name"]: row for row in printed["models"]}
    assert rows["gpt-4o-mini"]["key_present"] is True
    assert rows["qwen3/32b"]["key_present"] is False
    assert rows["builtin/noop"]["key_present"] is None
    assert rows["gpt-4"]["retired"] == "2026-10-23"
    assert rows["gpt-4"]["is_retired"] is (date.today() >= date(2026, 10, 23))
    assert rows["gpt-4o-mini"]["price"]["dated"] == "2026-07-02"
    assert {"openai", "synth"} <= {row["name"] for row in printed["providers"]}
    assert KEY not in out


def test_a_key_in_the_users_file_is_warned_about_and_never_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.toml"
    file.write_text(f'[providers.openai]\nkey = "{KEY}"\n')
    monkeypatch.setenv("ASSAY_MODELS", str(file))
    for show in (OutputOptions(), OutputOptions(json=True)):
        list_models(provider="openai", show=show)
        shown = capsys.readouterr()
        assert "secret in a file" in shown.err
        assert KEY not in shown.out + shown.err


def test_control_characters_in_model_names_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows.toml"
    file.write_text('[models."[bold]x[/]"]\nprovider = "ollama"\n')
    monkeypatch.setenv("ASSAY_MODELS", str(file))
    list_models(provider="ollama", show=OutputOptions(quiet=True))
    assert capsys.readouterr().out == "[bold]x[/]\n"


def test_commands_of_the_help_are_accepted() -> None:
    for words in ([], ["--provider", "openai", "--json"], ["test", "builtin/noop", "--json"]):
        models.parse_args(words, exit_on_error=False, print_error=False)


class Counting:
    """A model that counts its calls and closings."""

    name, provider = "counting", "tests"

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []
        self.closed = 0

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return ChatReply(Message({"role": "assistant", "content": "ok"}))

    async def close(self) -> None:
        self.closed += 1


def test_model_is_called_once_and_closed() -> None:
    model = Counting()
    assert asyncio.run(send_test_request(model)).message.text == "ok"
    (request,) = model.asked
    assert (len(request.messages), request.tools.value, model.closed) == (1, [], 1)
    assert request.max_tokens <= 256


def test_built_in_model_answers_the_test_call() -> None:
    reply = asyncio.run(send_test_request(make_builtin("builtin/noop")))
    assert reply.message.text
    assert reply.cost_usd == 0.0


def test_trying_a_model_prints_reply_latency_tokens_and_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert try_model("builtin/noop") == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("reply", "latency", "tokens", "cost     $0"))
    assert try_model("builtin/noop", show=OutputOptions(json=True)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["model"], printed["provider"]) == ("builtin/noop", "builtin")
    assert printed["usage"]["prompt"] > 0


def test_trying_an_unknown_model_suggests_a_known_one() -> None:
    with pytest.raises(UsageError, match="builtin/noop"):
        try_model("builtin/nop")
