"""The rows that come with assay, and what a name means."""

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
def test_a_model_that_people_name_has_a_row(name: str, provider: str) -> None:
    assert REGISTRY.resolve(name) is REGISTRY.entries[name]
    assert REGISTRY.entries[name].provider.name == provider


def test_the_providers_are_there() -> None:
    assert {"openai", "gemini", "groq", "openrouter", "anthropic", "vllm", "ollama"} <= set(
        REGISTRY.providers
    )
    synth = REGISTRY.providers["synth"]
    assert (synth.base_url_variable, synth.key_variable) == ("MODAL_BASE_URL", "SYNTH_API_KEY")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_row_says_when_it_was_looked_up_and_its_price_has_a_day(entry: ModelEntry) -> None:
    assert entry.looked_up is not None
    if entry.price is not None:
        assert entry.price.dated is not None
        assert entry.price.dated <= entry.looked_up
        assert entry.price.output >= entry.price.input >= (entry.price.cached or 0)
    assert entry.provider is REGISTRY.providers[entry.provider.name]


@pytest.mark.parametrize(
    "entry", [one for one in ENTRIES if one.retired], ids=lambda entry: entry.name
)
def test_a_retired_model_has_a_successor_that_is_answered(entry: ModelEntry) -> None:
    assert entry.successor is not None
    successor = REGISTRY.resolve(entry.successor)
    assert successor.retired is None
    successor.check_callable(TODAY)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_model_is_also_known_by_its_provider_and_either_name(entry: ModelEntry) -> None:
    for name in (entry.name, entry.remote_name):
        found = REGISTRY.resolve(f"{entry.provider.name}/{name}")
        assert (found.name, found.remote_name) == (
            f"{entry.provider.name}/{name}",
            entry.remote_name,
        )
        assert (found.price, found.retired) == (entry.price, entry.retired)


def test_a_row_wins_over_what_looks_like_a_provider() -> None:
    provider = REGISTRY.providers["ollama"]
    row = ModelEntry(name="openai/special", provider=provider, remote_name="special:7b")
    registry = Registry({row.name: row}, REGISTRY.providers)
    assert registry.resolve("openai/special") is row
    assert registry.resolve("openai/other").provider.name == "openai"


def test_any_name_of_a_provider_works_without_a_price() -> None:
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
def test_a_fine_tuned_model_goes_to_whoever_trained_it(name: str, provider: str) -> None:
    found = REGISTRY.resolve(name)
    assert (found.provider.name, found.remote_name, found.price) == (provider, name, None)


def test_a_fine_tuned_model_goes_when_its_base_goes() -> None:
    base = REGISTRY.entries["gpt-4.1-nano"]
    for name in ("ft:gpt-4.1-nano:o::i", "openai/ft:gpt-4.1-nano-2025-04-14:o::i"):
        tuned = REGISTRY.resolve(name)
        assert (tuned.retired, tuned.context) == (base.retired, base.context)
        assert tuned.remote_name == name.removeprefix("openai/")


def test_a_price_of_a_fine_tuned_model_counts_if_there_is_a_row() -> None:
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
def test_an_unknown_name_gets_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(ModelRejected) as error:
        REGISTRY.resolve(name, also=["builtin/forager"])
    assert f"unknown model {name!r}; did you mean {near}" in str(error.value)
    assert "assay models" in str(error.value)


@pytest.mark.parametrize("name", ["", "/", "nothing like it at all", "ft:", "ft:llama:x"])
def test_a_name_like_no_other_still_gets_the_next_step(name: str) -> None:
    with pytest.raises(ModelRejected, match=r"PROVIDER/NAME is any model"):
        REGISTRY.resolve(name)


def test_a_retired_model_says_since_when_and_what_comes_after() -> None:
    entry = REGISTRY.resolve("gpt-4")
    with pytest.raises(ModelRejected) as error:
        entry.check_callable(TODAY)
    assert re.search(r"'gpt-4' was retired on 2026-10-23 .* 'gpt-5.6-sol'", str(error.value))


def test_a_model_is_answered_until_the_day_of_its_retirement() -> None:
    entry = REGISTRY.resolve("gpt-4o-mini")
    entry.check_callable(date(2027, 1, 13))
    assert not entry.is_retired(date(2027, 1, 13))
    with pytest.raises(ModelRejected, match="gpt-6-luna"):
        entry.check_callable(date(2027, 1, 14))


def test_an_entry_can_be_compared_and_hashed() -> None:
    again = load_registry(NO_ROWS)
    assert again.entries == REGISTRY.entries
    assert len(set(ENTRIES) | set(again.entries.values())) == len(ENTRIES)


def test_the_page_about_models_names_every_provider_as_the_rows_have_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    for provider in REGISTRY.providers.values():
        (line,) = [row for row in page.splitlines() if row.startswith(f"| `{provider.name}` |")]
        for part in (provider.base_url, provider.base_url_variable, provider.key_variable):
            assert part is None or f"`{part}`" in line
