"""Training data loads with Hugging Face `datasets` and has the same content there."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.finetune.datasets.formats import read_row
from tests.finetune.datasets.known import known_store
from tests.oracles.asking import ask, needs_oracles

FORMS: dict[str, dict[str, Any]] = {
    "openai.jsonl": {},
    "messages.jsonl": {"format": "messages"},
    "trl.jsonl": {"format": "trl"},
    "completion.jsonl": {"format": "trl", "prompt_completion": True},
    "sharegpt.jsonl": {"format": "sharegpt"},
    "trl.parquet": {"format": "trl"},
    "completion.parquet": {"format": "trl", "prompt_completion": True},
}

PAIRS_AND_PROMPTS = ("preference", "preference-trl", "prompts")


def drop_nulls(value: Any) -> Any:
    """Return a value without the nulls that Arrow adds for missing keys."""
    if isinstance(value, dict):
        return {name: drop_nulls(part) for name, part in value.items() if part is not None}
    return [drop_nulls(part) for part in value] if isinstance(value, list) else value


@pytest.mark.extras
@needs_oracles
def test_every_format_loads_with_datasets(tmp_path: Path) -> None:
    store = known_store(tmp_path / "known.duckdb")
    counts = {
        name: assay.sft_filter(tmp_path / name, database=store, **given).rows
        for name, given in FORMS.items()
    }
    loaded = ask("training_data_side.py", {name: str(tmp_path / name) for name in FORMS})
    shown = assay.sft_show(tmp_path / "openai.jsonl", 7)
    for name, rows in loaded.items():
        assert len(rows) == counts[name]
        back = read_row(drop_nulls(rows[6]))
        contents = [message.get("content") or "" for message in back.messages]
        calls = [len(message.get("tool_calls") or ()) for message in back.messages]
        assert [mask.role for mask in shown.masks] == [
            message["role"] for message in back.messages
        ]
        assert sum(calls) == sum("interact(" in mask.text for mask in shown.masks)
        assert contents[0] == shown.masks[0].text
        assert (back.tools or [{}])[0]["function"]["name"] == "interact"


@pytest.mark.extras
@needs_oracles
def test_pairs_and_prompts_load_unchanged_with_datasets(tmp_path: Path) -> None:
    database = tmp_path / "played.duckdb"
    assay.run(
        models=["builtin/forager", "builtin/expert"],
        episodes=1,
        replicates=6,
        max_turns=12,
        baselines=False,
        database=database,
        traces_dir=tmp_path / "traces",
        save_traces=False,
    )
    files = {form: tmp_path / f"{form}.jsonl" for form in PAIRS_AND_PROMPTS}
    for form, path in files.items():
        assert assay.sft_filter(path, database=database, format=form).rows
    loaded = ask("training_data_side.py", {form: str(path) for form, path in files.items()})
    for form, path in files.items():
        written = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert drop_nulls(loaded[form]) == drop_nulls(written)
