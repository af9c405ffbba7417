"""Registry rows of the user: overrides, errors, and secret keys."""

import os
import pickle
from datetime import date
from pathlib import Path

import pytest

from assay.errors import ModelRejected, UsageError
from assay.models.registry import Price, Registry, find_base_url, find_key
from assay.models.registry_file import load_registry, user_rows

NO_ROWS = Path(os.devnull)
KEY = "sk-planted-0123456789abcdef"


def load(path: Path, text: str) -> Registry:
    file = path / "models.toml"
    file.write_text(text, "utf-8")
    return load_registry(file)


def test_user_file_can_add_a_provider_and_a_model(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        """
        [providers.mine]
        base_url = "https://models.example/v1/"
        key_variable = "MY_KEY"
        limit_field = "max_completion_tokens"
        timeout_s = 600
        unsupported = ["seed"]

        [models."my/small"]
        provider = "mine"
        remote_name = "small-2"
        price = { input = 1, cached = 0.5, output = 2.5, dated = 2026-11-01 }
        context = 32_000
        tools = false
        requests_per_minute = 60
        unsupported = ["temperature"]
        send = { reasoning_effort = "low" }
        """,
    )
    entry = registry.resolve("my/small")
    assert entry.provider.base_url == "https://models.example/v1"
    assert entry.price == Price(input=1, cached=0.5, output=2.5, dated=date(2026, 11, 1))
    assert (entry.remote_name, entry.context, entry.tools) == ("small-2", 32_000, False)
    assert entry.unsupported == ("seed", "temperature")
    assert entry.send == {"reasoning_effort": "low"}
    assert entry.requests_per_minute == 60
    assert entry.provider.timeout_s == 600
    assert registry.resolve("mine/other").unsupported == ("seed",)
    assert "gpt-4o-mini" in registry.entries


def test_row_without_a_provider_updates_a_known_model(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        "[models.gpt-4o-mini]\nprice = {input = 9, output = 10, dated = 2026-11-01}\n",
    )
    entry = registry.resolve("gpt-4o-mini")
    assert entry.price is not None
    assert entry.price.input == 9
    assert entry.context == 128_000


def test_row_with_a_provider_replaces_the_known_model(tmp_path: Path) -> None:
    entry = load(tmp_path, '[models."qwen3/32b"]\nprovider = "ollama"\n').resolve("qwen3/32b")
    assert (entry.provider.name, entry.remote_name) == ("ollama", "qwen3/32b")
    assert (entry.price, entry.retired) == (None, None)
    entry.check_callable()


def test_changed_provider_applies_to_all_its_models(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        '[providers.gemini]\nbase_url = "http://127.0.0.1:9/v1"\nunsupported = []\n',
    )
    entry = registry.resolve("gemini-2.5-flash-lite")
    assert entry.provider.base_url == "http://127.0.0.1:9/v1"
    assert entry.provider.key_variable == "GEMINI_API_KEY"
    assert entry.unsupported == ()


def test_user_file_is_found_by_variable_or_in_the_settings_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_rows({}) is None
    usual = tmp_path / "assay" / "models.toml"
    usual.parent.mkdir()
    usual.write_text('[models.here]\nprovider = "ollama"\n')
    assert user_rows({}) == usual
    assert load_registry(environment={}).resolve("here").provider.name == "ollama"
    other = tmp_path / "other.toml"
    other.write_text('[models.there]\nprovider = "vllm"\n')
    named = load_registry(environment={"ASSAY_MODELS": str(other)})
    assert "there" in named.entries
    assert "here" not in named.entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model.x]", "unknown table 'model'; did you mean 'models'?"),
        ("models = 3", "models must be a table"),
        ("[models]\nx = 3", "must be a table: write its keys below"),
        ('[models.x]\nprovdier = "openai"', "unknown key 'provdier'; did you mean 'provider'?"),
        ('[models.x]\nprovider = "opnai"', "unknown provider 'opnai'; did you mean 'openai'?"),
        ("[models.x]\ncontext = 5", "has no provider; choose from: openai"),
        ('[models.x]\nprovider = "openai"\ncontext = "big"', "context: 'big' is not allowed"),
        ('[models.x]\nprovider = "openai"\ncontext = true', "a whole number of tokens"),
        ('[models.x]\nprovider = "openai"\ntools = 1', "give true or false"),
        ('[models.x]\nprovider = "openai"\nretired = "soon"', "a day such as"),
        ('[models.x]\nprovider = "openai"\nprice = 3', "dollars per million tokens"),
        (
            '[models.x]\nprovider = "openai"\nprice = {input = 1, output = 2}',
            "a price with 'dated' too",
        ),
        (
            '[models.x]\nprovider = "openai"\n'
            "price = {input = 1, ouput = 2, dated = 2026-01-01}",
            "unknown key 'ouput'; did you mean 'output'?",
        ),
        (
            '[models.x]\nprovider = "openai"\n'
            "price = {input = -1, output = 2, dated = 2026-01-01}",
            "dollars per million tokens",
        ),
        (
            '[models.x]\nprovider = "openai"\n'
            "price = {input = inf, output = 2, dated = 2026-01-01}",
            "dollars per million tokens",
        ),
        (
            '[models.x]\nprovider = "openai"\nsend = {messages = "none"}',
            "'messages' is set by assay",
        ),
        ('[models.x]\nprovider = "openai"\nunsupported = ["tools"]', "temperature, seed"),
        ('[models." x"]\nprovider = "openai"', "is not a valid name"),
        ('[providers."a/b"]\nbase_url = "http://h"', "is not a valid name"),
        ("[providers.mine]\nnote = 'x'", "give base_url or base_url_variable"),
        ('[providers.mine]\nbase_url = "ftp://h"', "a URL such as"),
        ('[providers.mine]\nbase_url = "http://[h"', "a URL such as"),
        ('[providers.mine]\nbase_url = "http://h"\nlimit_field = "n"', "'max_tokens' or"),
        ("[providers.mine", "not valid TOML"),
        ("a = " + "[" * 3000, "not valid TOML"),
    ],
)
def test_invalid_models_file_is_rejected_with_a_next_step(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, text)
    assert message in str(error.value)
    assert "models.toml" in str(error.value)


def test_unreadable_models_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml.*file not found"):
        load_registry(environment={"ASSAY_MODELS": str(tmp_path / "gone.toml")})
    with pytest.raises(UsageError, match="cannot read the models"):
        load_registry(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        load_registry(binary)


def test_a_key_comes_from_the_environment_and_is_not_shown() -> None:
    openai = load_registry(NO_ROWS).providers["openai"]
    key = find_key(openai, {"OPENAI_API_KEY": f" {KEY}\n"})
    assert key is not None
    assert key.reveal() == KEY
    assert KEY not in f"{key} {key!r}"


def test_missing_key_error_names_the_variable() -> None:
    registry = load_registry(NO_ROWS)
    for empty in ({}, {"GROQ_API_KEY": "  "}):
        with pytest.raises(ModelRejected, match="set the variable GROQ_API_KEY"):
            find_key(registry.providers["groq"], empty)


def test_some_providers_need_no_key() -> None:
    providers = load_registry(NO_ROWS).providers
    assert find_key(providers["ollama"], {}) is None
    assert find_key(providers["vllm"], {}) is None
    assert find_key(providers["vllm"], {"VLLM_API_KEY": KEY}) is not None


@pytest.mark.parametrize("value", [f"{KEY} x", f"{KEY}é", f"{KEY}\x1b"])
def test_invalid_key_is_rejected_and_not_repeated(value: str) -> None:
    openai = load_registry(NO_ROWS).providers["openai"]
    with pytest.raises(
        ModelRejected, match="OPENAI_API_KEY does not contain a valid key"
    ) as error:
        find_key(openai, {"OPENAI_API_KEY": value})
    assert KEY not in str(error.value)


def test_key_in_a_file_is_used_with_a_warning_and_not_shown(tmp_path: Path) -> None:
    registry = load(tmp_path, f'[providers.openai]\nkey = "{KEY}"\n')
    openai = registry.providers["openai"]
    key = find_key(openai, {})
    assert key is not None
    assert key.reveal() == KEY
    other = find_key(openai, {"OPENAI_API_KEY": "sk-of-the-environment"})
    assert other is not None
    assert other.reveal() == "sk-of-the-environment"
    assert len(registry.warnings) == 1
    assert "[providers.openai] key is a secret" in registry.warnings[0]
    assert KEY not in f"{registry!r} {registry.warnings} {registry.resolve('gpt-4')}"


@pytest.mark.parametrize(
    "line",
    [
        f'key = "{KEY} x"',
        f'key_variable = "{KEY}"',
        f'key_variable = "gsk_{KEY.replace("-", "_")}"',
        f'base_url = "https://me:{KEY}@host/v1"',
    ],
)
def test_a_key_in_the_wrong_place_is_not_repeated(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, f"[providers.openai]\n{line}\n")
    assert "planted" not in str(error.value)


def test_an_address_comes_from_the_variable_or_the_row() -> None:
    providers = load_registry(NO_ROWS).providers
    assert find_base_url(providers["openai"], {}) == "https://api.openai.com/v1"
    moved = {"OPENAI_BASE_URL": "http://127.0.0.1:8902/v1/"}
    assert find_base_url(providers["openai"], moved) == "http://127.0.0.1:8902/v1"


@pytest.mark.parametrize("address", ["https://x.modal.run", "https://x.modal.run/v1/"])
def test_bare_host_address_gets_the_api_path(address: str) -> None:
    synth = load_registry(NO_ROWS).providers["synth"]
    assert find_base_url(synth, {"MODAL_BASE_URL": address}) == "https://x.modal.run/v1"


def test_missing_or_invalid_address_error_names_the_variable() -> None:
    synth = load_registry(NO_ROWS).providers["synth"]
    with pytest.raises(ModelRejected, match="set the variable MODAL_BASE_URL"):
        find_base_url(synth, {})
    for bad in ("x.modal.run", "http://", f"https://me:{KEY}@h", "http://h:0", "http://h:x"):
        with pytest.raises(
            ModelRejected, match="MODAL_BASE_URL does not contain a valid URL"
        ) as error:
            find_base_url(synth, {"MODAL_BASE_URL": bad})
        assert KEY not in str(error.value)


def test_registry_can_be_pickled() -> None:
    registry = load_registry(NO_ROWS)
    assert pickle.loads(pickle.dumps(registry)) == registry
