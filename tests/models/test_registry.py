"""The built-in registry, and the resolution of names."""

import os
import re
from datetime import date
from pathlib import Path

import pytest

from assay.errors import ModelRejected
from assay.models.registry import ModelEntry, Registry
from assay.models.registry_file import load_registry

NO_ROWS = Path(os.devnull)
REGISTRY = load_registry(NO_ROWS)
ENTRIES = sorted(REGISTRY.entries.values(), key=lambda entry: entry.name)
NAMED = {
    "gpt-4o-mini": "openai",
    "gpt-4.1-mini": "openai",
    "gpt-4.1-nano": "openai",
    "gpt-4": "openai",
    "gpt-3.5-turbo": "openai",
    "gemini-1.5-flash": "gemini",
    "gemini-2.5-flash-lite": "gemini",
    "gemini-pro": "gemini",
    "qwen3/32b": "groq",
    "claude-3-sonnet": "anthropic",
    "Qwen/Qwen2.5-0.5B-Instruct": "synth",
    "Qwen/Qwen2.5-7B-Instruct": "synth",
    "Qwen/Qwen2.5-14B-Instruct": "synth",
    "Qwen/Qwen2.5-32B-Instruct": "synth",
}
TODAY = date(2026, 11, 16)


@pytest.mark.parametrize(("name", "provider"), NAMED.items(), ids=list(NAMED))
def test_common_models_have_registry_rows(name: str, provider: str) -> None:
    assert REGISTRY.resolve(name) is REGISTRY.entries[name]
    assert REGISTRY.entries[name].provider.name == provider


def test_expected_providers_are_registered() -> None:
    assert {"openai", "gemini", "groq", "openrouter", "anthropic", "vllm", "ollama"} <= set(
        REGISTRY.providers
    )
    synth = REGISTRY.providers["synth"]
    assert (synth.base_url_variable, synth.key_variable) == ("MODAL_BASE_URL", "SYNTH_API_KEY")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_registry_row_has_its_lookup_and_price_dates(entry: ModelEntry) -> None:
    assert entry.looked_up is not None
    if entry.price is not None:
        assert entry.price.dated is not None
        assert entry.price.dated <= entry.looked_up
        assert entry.price.output >= entry.price.input >= (entry.price.cached or 0)
    assert entry.provider is REGISTRY.providers[entry.provider.name]


@pytest.mark.parametrize(
    "entry", [row for row in ENTRIES if row.retired], ids=lambda entry: entry.name
)
def test_retired_model_has_an_available_successor(entry: ModelEntry) -> None:
    assert entry.successor is not None
    successor = REGISTRY.resolve(entry.successor)
    assert successor.retired is None
    successor.check_callable(TODAY)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_model_is_found_by_provider_and_either_name(entry: ModelEntry) -> None:
    for name in (entry.name, entry.remote_name):
        found = REGISTRY.resolve(f"{entry.provider.name}/{name}")
        assert (found.name, found.remote_name) == (
            f"{entry.provider.name}/{name}",
            entry.remote_name,
        )
        assert (found.price, found.retired) == (entry.price, entry.retired)


def test_registry_row_takes_precedence_over_a_provider_prefix() -> None:
    provider = REGISTRY.providers["ollama"]
    row = ModelEntry(name="openai/special", provider=provider, remote_name="special:7b")
    registry = Registry({row.name: row}, REGISTRY.providers)
    assert registry.resolve("openai/special") is row
    assert registry.resolve("openai/other").provider.name == "openai"


def test_unlisted_provider_model_works_without_a_price() -> None:
    found = REGISTRY.resolve("openrouter/meta-llama/llama-9:free")
    assert (found.provider.name, found.remote_name) == (
        "openrouter",
        "meta-llama/llama-9:free",
    )
    assert found.price is None
    assert REGISTRY.resolve("gemini/gemini-9").unsupported == ("seed",)


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("ft:gpt-4o-mini:org::id", "openai"),
        ("ft:gpt-4o-mini-2024-07-18:org:name:id", "openai"),
        ("ft:gpt-99:org::id", "openai"),
        ("ft:qwen2-5-7b-instruct:org-test123:timestamp", "synth"),
        ("ft:Qwen/Qwen2.5-7B-Instruct:me:1", "synth"),
    ],
)
def test_fine_tuned_model_is_called_at_its_provider(name: str, provider: str) -> None:
    found = REGISTRY.resolve(name)
    assert (found.provider.name, found.remote_name, found.price) == (provider, name, None)


def test_fine_tuned_model_is_retired_with_its_base() -> None:
    base = REGISTRY.entries["gpt-4.1-nano"]
    for name in ("ft:gpt-4.1-nano:o::i", "openai/ft:gpt-4.1-nano-2025-04-14:o::i"):
        tuned = REGISTRY.resolve(name)
        assert (tuned.retired, tuned.context) == (base.retired, base.context)
        assert tuned.remote_name == name.removeprefix("openai/")


def test_fine_tuned_model_uses_the_price_of_its_row() -> None:
    row = ModelEntry(
        name="ft:gpt-4o-mini:org::id",
        provider=REGISTRY.providers["openai"],
        remote_name="ft:gpt-4o-mini:org::id",
        price=REGISTRY.entries["gpt-4o-mini"].price,
    )
    registry = Registry({**REGISTRY.entries, row.name: row}, REGISTRY.providers)
    assert registry.resolve(row.name).price is not None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpt-4o-mimi", "'gpt-4o-mini'"),
        ("qwen3-32b", "'qwen3/32b'"),
        ("opnai/gpt-9-turbo-max", "'openai/gpt-9-turbo-max'"),
        ("builtin/forger", "'builtin/forager'"),
        ("openai/", "'openai/NAME'"),
    ],
)
def test_unknown_model_error_suggests_close_names(name: str, near: str) -> None:
    with pytest.raises(ModelRejected) as error:
        REGISTRY.resolve(name, also=["builtin/forager"])
    assert f"unknown model {name!r}; did you mean {near}" in str(error.value)
    assert "assay models" in str(error.value)


@pytest.mark.parametrize("name", ["", "/", "nothing like it at all", "ft:", "ft:llama:x"])
def test_unknown_model_error_without_close_names_has_a_next_step(name: str) -> None:
    with pytest.raises(ModelRejected, match=r"PROVIDER/NAME is any model"):
        REGISTRY.resolve(name)


def test_retired_model_error_has_date_and_successor() -> None:
    entry = REGISTRY.resolve("gpt-4")
    with pytest.raises(ModelRejected) as error:
        entry.check_callable(TODAY)
    assert re.search(r"'gpt-4' was retired on 2026-10-23 .* 'gpt-5.6-sol'", str(error.value))


def test_model_is_available_until_its_retirement_date() -> None:
    entry = REGISTRY.resolve("gpt-4o-mini")
    entry.check_callable(date(2027, 1, 13))
    assert not entry.is_retired(date(2027, 1, 13))
    with pytest.raises(ModelRejected, match="gpt-6-luna"):
        entry.check_callable(date(2027, 1, 14))


def test_model_entry_is_comparable_and_hashable() -> None:
    again = load_registry(NO_ROWS)
    assert again.entries == REGISTRY.entries
    assert len(set(ENTRIES) | set(again.entries.values())) == len(ENTRIES)


def test_docs_page_lists_every_provider_of_the_registry() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    for provider in REGISTRY.providers.values():
        (line,) = [row for row in page.splitlines() if row.startswith(f"| `{provider.name}` |")]
        for part in (provider.base_url, provider.base_url_variable, provider.key_variable):
            assert part is None or f"`{part}`" in line
