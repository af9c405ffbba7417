"""Errors that `assay sft validate` finds; it finds none in valid data."""

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import UsageError
from assay.finetune.datasets.message_checks import RowFault
from assay.finetune.datasets.validate import ValidationReport
from assay.store.store import Store
from assay.types import TrialState
from tests.finetune.datasets.known import known_store
from tests.store.sessions import make_run, make_session
from tests.store.stores import fill

TOOL = {
    "type": "function",
    "function": {
        "name": "interact",
        "parameters": {
            "type": "object",
            "properties": {
                "actions": {
                    "type": "array",
                    "items": {"type": "string", "enum": ["do", "noop"]},
                    "minItems": 1,
                    "maxItems": 2,
                },
                "depth": {"type": ["integer", "null"]},
            },
            "required": ["actions"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return known_store(tmp_path_factory.mktemp("validation") / "known.duckdb")


def call(arguments: Any = '{"actions":["do"]}', name: str = "interact") -> dict[str, Any]:
    function = {"arguments": arguments, "name": name}
    calls = [{"function": function, "id": "call_1", "type": "function"}]
    return {"content": None, "role": "assistant", "tool_calls": calls}


def row(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    first = [{"content": "You play.", "role": "system"}, {"content": "Go.", "role": "user"}]
    return {"messages": [*first, *messages], "tools": [TOOL], **more}


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"content": content, "role": role, **more}


def write_lines(path: Path, *rows: Any, dump: Callable[[Any], str] = json.dumps) -> Path:
    lines = [
        row_or_text if isinstance(row_or_text, str) else dump(row_or_text)
        for row_or_text in rows
    ]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def kinds(report: ValidationReport) -> dict[RowFault, list[int]]:
    return {finding.kind: [line for line, _ in finding.first] for finding in report.findings}


GOOD = row(call())
OTHER = row(call(), message("user", "x"), call())
WRONG = {
    "no JSON": ('{"messages": [', RowFault.JSON),
    "a number that is none": ('{"messages": [], "x": NaN}', RowFault.JSON),
    "a list": ([1], RowFault.SHAPE),
    "no messages": ({"messages": []}, RowFault.SHAPE),
    "another shape": ({"text": "x"}, RowFault.SHAPE),
    "messages that are none": ({"messages": ["x"]}, RowFault.SHAPE),
    "an unknown role": (row(message("narrator", "x"), call()), RowFault.ROLE),
    "no role": (row({"content": "x"}, call()), RowFault.ROLE),
    "system in the middle": (row(message("system", "x"), call()), RowFault.ORDER),
    "two answers": (row(message("assistant", "x"), call()), RowFault.ORDER),
    "a result without a call": (
        row(message("tool", "x", tool_call_id="call_1"), call()),
        RowFault.ORDER,
    ),
    "a result of another call": (
        row(call(), message("tool", "x", tool_call_id="call_7"), call()),
        RowFault.ORDER,
    ),
    "no answer at the end": (row(call(), message("user", "x")), RowFault.ORDER),
    "an empty answer": (row(message("assistant", "")), RowFault.CONTENT),
    "a user without content": (row(message("user", None), call()), RowFault.CONTENT),
    "arguments that are not JSON": (row(call('{"actions":')), RowFault.CALL),
    "arguments that are a list": (row(call("[1]")), RowFault.CALL),
    "a call without a function": (
        row({"content": None, "role": "assistant", "tool_calls": [{"id": "a"}]}),
        RowFault.CALL,
    ),
    "a tool that is not there": (row(call("{}", "fly")), RowFault.SCHEMA),
    "a missing argument": (row(call("{}")), RowFault.SCHEMA),
    "a wrong type": (row(call('{"actions":"do"}')), RowFault.SCHEMA),
    "a value that is not allowed": (row(call('{"actions":["fly"]}')), RowFault.SCHEMA),
    "too many items": (row(call('{"actions":["do","do","do"]}')), RowFault.SCHEMA),
    "too few items": (row(call('{"actions":[]}')), RowFault.SCHEMA),
    "an undeclared argument": (row(call('{"actions":["do"],"x":1}')), RowFault.SCHEMA),
    "a flag for a number": (row(call('{"actions":["do"],"depth":true}')), RowFault.SCHEMA),
    "nothing to train": (row(message("user", "x"), {**call(), "weight": 0}), RowFault.NOTHING),
    "a key": (row(message("user", "use sk-abcdefghijklmnop1234"), call()), RowFault.SECRET),
    "a password": (row(message("user", "http://me:secret@host/"), call()), RowFault.SECRET),
}


@pytest.mark.parametrize("dump", [json.dumps, compact], ids=["spaced", "compact"])
def test_each_kind_of_error_is_found_only_on_its_line(
    tmp_path: Path, dump: Callable[[Any], str]
) -> None:
    for name, (damaged, kind) in WRONG.items():
        path = write_lines(tmp_path / "data.jsonl", GOOD, damaged, OTHER, dump=dump)
        report = assay.sft_validate(path)
        assert kinds(report) == {kind: [2]}, name
        assert not report.ok
        assert report.rows == 3


@pytest.mark.parametrize("dump", [json.dumps, compact], ids=["spaced", "compact"])
def test_a_valid_row_has_no_errors_and_its_mask_is_reported(
    tmp_path: Path, dump: Callable[[Any], str]
) -> None:
    answer = message("tool", "done", tool_call_id="call_1")
    more = row({**call(), "weight": 0}, answer, call('{"actions":["noop"],"depth":null}'))
    path = write_lines(tmp_path / "data.jsonl", GOOD, more, dump=dump)
    report = assay.sft_validate(path)
    assert report.findings == ()
    assert (report.answers, report.untrained_answers) == (2, 1)
    assert report.actions == {"do": 1, "noop": 1}
    shown = assay.sft_show(path, 2)
    assert [mask.trained for mask in shown.masks] == [False, False, False, False, True]
    assert shown.tools == ["interact"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"format": "messages"},
        {"format": "trl"},
        {"format": "trl", "prompt_completion": True},
        {"format": "sharegpt"},
        {"mode": "window", "turns": 2},
        {"mode": "episode"},
    ],
    ids=str,
)
def test_all_files_of_the_filter_are_valid(
    store: Store, tmp_path: Path, given: dict[str, Any]
) -> None:
    path = tmp_path / "data.jsonl"
    built = assay.sft_filter(path, database=store, **given)
    report = assay.sft_validate(path)
    assert [f.kind for f in report.findings if f.is_error] == []
    assert report.rows == built.rows
    assert report.lengths is not None
    assert 0 < report.lengths.trained < report.lengths.total


@pytest.mark.parametrize("completion", [False, True], ids=["messages", "prompt and completion"])
def test_parquet_gives_the_same_report_as_json_lines(
    store: Store, tmp_path: Path, completion: bool
) -> None:
    lines, table = tmp_path / "data.jsonl", tmp_path / "table.parquet"
    for path in (lines, table):
        assay.sft_filter(path, database=store, format="trl", prompt_completion=completion)
    of_lines, of_table = assay.sft_validate(lines), assay.sft_validate(table)
    assert of_table.findings == of_lines.findings
    assert of_table.lengths == of_lines.lengths
    assert of_table.actions == of_lines.actions
    for number in (1, 7):
        assert assay.sft_show(table, number).masks == assay.sft_show(lines, number).masks
    with pytest.raises(UsageError, match="only --format trl"):
        assay.sft_filter(tmp_path / "other.parquet", database=store)
    (tmp_path / "no.parquet").write_text("x")
    with pytest.raises(UsageError, match="not a readable Parquet file"):
        assay.sft_validate(tmp_path / "no.parquet")


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", GOOD, GOOD)
    path.write_bytes(path.read_bytes()[:-40])
    (json_error, *_) = assay.sft_validate(path).findings
    assert json_error.kind is RowFault.JSON
    assert json_error.first[0][0] == 2
    assert "it is incomplete" in json_error.first[0][1]


def test_duplicates_and_empty_lines_are_warnings(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", GOOD, "", OTHER, GOOD)
    report = assay.sft_validate(path)
    assert report.ok
    assert kinds(report) == {RowFault.DUPLICATE: [4], RowFault.BLANK: [2]}


def test_a_row_longer_than_the_limit_is_an_error(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", GOOD, row(message("user", "x " * 4000), call()))
    assert assay.sft_validate(path).ok
    assert kinds(assay.sft_validate(path, max_tokens=1000)) == {RowFault.LONG: [2]}


def test_one_action_in_most_replies_is_reported(tmp_path: Path) -> None:
    rows = [row(message("user", f"turn {n}"), call()) for n in range(30)]
    report = assay.sft_validate(write_lines(tmp_path / "data.jsonl", *rows))
    assert [finding.kind for finding in report.findings] == [RowFault.ONE_SIDED]
    assert report.ok


def test_held_out_worlds_in_the_manifest_are_found(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    assay.sft_filter(path, database=store, holdout_seeds="42")
    report = assay.sft_validate(path)
    assert report.ok
    assert report.checked_against == (42,)
    leaked = assay.sft_validate(path, holdout_seeds="43-44")
    assert RowFault.LEAK in kinds(leaked)
    assert not leaked.ok
    lines = path.read_text("utf-8").splitlines()
    path.write_text("".join(f"{line}\n" for line in lines[:-1]), "utf-8")
    assert RowFault.CHANGED in kinds(assay.sft_validate(path))


def test_a_long_invalid_file_is_reported_with_the_first_lines_of_each_error(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "data.jsonl"
    write_lines(path, *[bad_row for bad_row, _ in WRONG.values()] * 400)
    started = time.perf_counter()
    report = assay.sft_validate(path)
    record_property(
        "note", f"{report.rows:,} damaged rows in {time.perf_counter() - started:.1f} s"
    )
    assert report.rows == 400 * len(WRONG)
    assert all(len(finding.first) <= 3 for finding in report.findings)
    found = {finding.kind for finding in report.findings if finding.is_error}
    assert found == {kind for _, kind in WRONG.values()}


def test_missing_and_empty_files_are_rejected_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="assay sft filter"):
        assay.sft_validate(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UsageError, match="has no rows"):
        assay.sft_validate(tmp_path / "empty.jsonl")
    with pytest.raises(UsageError, match="its rows are 1 to 1"):
        assay.sft_show(write_lines(tmp_path / "one.jsonl", GOOD), 2)


def test_one_episode_is_enough_and_an_empty_database_is_rejected_with_advice(
    tmp_path: Path,
) -> None:
    run = make_run(models=["gpt-a"])
    database = fill(tmp_path / "one.duckdb", run, [make_session(run)])
    assert assay.sft_filter(tmp_path / "one.jsonl", database=database).rows == 4
    assert assay.sft_stats(tmp_path / "one.jsonl").report.rows == 4
    empty = fill(tmp_path / "empty.duckdb", run, [])
    with pytest.raises(UsageError, match="assay run"):
        assay.sft_filter(tmp_path / "none.jsonl", database=empty)
    with pytest.raises(UsageError, match="not found"):
        assay.sft_filter(tmp_path / "none.jsonl", database=tmp_path / "no.duckdb")


def test_data_that_gives_no_rows_is_rejected_with_advice_and_closes_the_writer(
    tmp_path: Path,
) -> None:
    run = make_run(models=["gpt-a"])
    session = make_session(run)
    without = fill(tmp_path / "without.duckdb", run, [session])
    with without.writing() as connection:
        connection.execute("DELETE FROM message_rows")
        connection.execute("DELETE FROM message_bodies")
    for name, form in (("a.jsonl", "openai"), ("a.parquet", "trl"), ("b.jsonl", "prompts")):
        with pytest.raises(UsageError, match="rows need stored messages"):
            assay.sft_filter(tmp_path / name, database=without, format=form)
    database = fill(tmp_path / "one.duckdb", run, [session])
    with pytest.raises(UsageError, match="Crafter episodes recorded by assay"):
        assay.sft_filter(tmp_path / "c.jsonl", database=database, format="preference")
    failed = make_session(run, turns=0, state=TrialState.INFRASTRUCTURE)
    silent = fill(tmp_path / "silent.duckdb", run, [failed])
    with pytest.raises(UsageError, match="assay run --resume"):
        assay.sft_filter(tmp_path / "d.jsonl", database=silent)


WORDS = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
}
"""A tokenizer that makes every word a token."""


def write_text_row(folder: Path) -> Path:
    data = folder / "words.jsonl"
    messages = [
        {"role": "user", "content": "what do you see there"},
        {"role": "assistant", "content": "a tree"},
    ]
    data.write_text(json.dumps({"messages": messages}) + "\n", "utf-8")
    return data


@pytest.mark.skipif(find_spec("tokenizers") is not None, reason="tokenizers is installed")
def test_a_missing_tokenizer_library_is_named(tmp_path: Path) -> None:
    data, file = write_text_row(tmp_path), tmp_path / "tokenizer.json"
    with pytest.raises(UsageError, match=r"is not a file; name the tokenizer\.json"):
        assay.sft_validate(data, tokenizer=file)
    file.write_text(json.dumps(WORDS), "utf-8")
    with pytest.raises(UsageError, match="pip install tokenizers"):
        assay.sft_validate(data, tokenizer=file)


@pytest.mark.extras
@pytest.mark.skipif(find_spec("tokenizers") is None, reason="tokenizers is not installed")
def test_token_counts_with_a_tokenizer_are_exact(tmp_path: Path) -> None:
    data, file = write_text_row(tmp_path), tmp_path / "tokenizer.json"
    file.write_text(json.dumps(WORDS), "utf-8")
    report = assay.sft_validate(data, tokenizer=file)
    assert report.lengths is not None
    assert (report.lengths.total, report.lengths.trained) == (7, 2)
    assert report.tokenizer == str(file)
    assert assay.sft_validate(data, max_tokens=7, tokenizer=file).ok
    assert not assay.sft_validate(data, max_tokens=6, tokenizer=file).ok
    file.write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"no tokenizer\.json that can be read"):
        assay.sft_validate(data, tokenizer=file)
