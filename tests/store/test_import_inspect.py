"""Logs of Inspect: archives and plain JSON, whole and damaged."""

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay.errors import UsageError
from assay.store.formats.foreign import open_archive
from assay.store.imports import ImportReport, import_traces, trace_files
from assay.store.store import Store
from tests.store.stores import rows_of
from tests.support import query

LONG = "You see a tree. " * 20
HASH = "0123456789abcdef0123456789abcdef"


def header(**changes: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": "eval-1",
            "run_id": "run-1",
            "created": "2026-03-04T05:06:07+00:00",
            "task": "crafter",
            "task_id": "task-1",
            "dataset": {"sample_ids": ["a", 2]},
            "model": "openai/gpt-4o-mini",
            "config": {"epochs": 2},
            "packages": {"inspect_ai": "0.3.285"},
        },
        **changes,
    }


def call(name: str, function: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "function": function, "arguments": {"actions": ["noop"]}, **more}


def answer(name: str, text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "role": "assistant", "content": text, "tool_calls": list(calls)}


def asked(reply: dict[str, Any], end: int, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 70, "output_tokens": 20, "input_tokens_cache_read": 30}
    return {
        "event": "model",
        "timestamp": "2026-03-04T05:06:10+00:00",
        "completed": "2026-03-04T05:06:12+00:00",
        "model": "openai/gpt-4o-mini",
        "input": [],
        "input_refs": [[0, end]],
        "tools": [{"name": "interact", "parameters": {}}],
        "config": {"temperature": 0.5},
        "output": {
            "choices": [{"message": reply, "stop_reason": "tool_calls"}],
            "usage": {**usage, "reasoning_tokens": 5, "total_cost": 0.25},
            "time": 1.5,
        },
        **more,
    }


def sample(name: str | int = "a", epoch: int = 1, **changes: Any) -> dict[str, Any]:
    """A sample of two turns, the second with a tool that is not there."""
    said: list[dict[str, Any]] = [
        {"id": "m1", "role": "system", "content": "You play."},
        {"id": "m2", "role": "user", "content": f"attachment://{HASH}"},
        answer("m3", "I do nothing.", call("c1", "interact")),
        {"id": "m4", "role": "tool", "tool_call_id": "c1", "content": "nothing happens"},
        answer("m5", "", call("c2", "fly"), call("c3", "interact", parse_error="not JSON")),
    ]
    thoughts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Bye."}]
    last = {"id": "m6", "role": "assistant", "content": thoughts}
    scoring = [
        {"event": "span_begin", "type": "scorers", "id": "s"},
        asked(answer("g1", "GRADE: C"), 1),
        {"event": "span_end", "id": "s"},
    ]
    return {
        "id": name,
        "epoch": epoch,
        "uuid": f"uuid-{name}-{epoch}",
        "messages": [*said, last],
        "metadata": {"seed": 7},
        "scores": {
            "includes": {"value": "C"},
            "multi": {"value": {"reward": 1.5, "achievements": 3, "note": "x"}},
        },
        "events": [asked(said[2], 2), {"event": "tool"}, asked(said[4], 4), *scoring],
        "events_data": {"messages": said},
        "attachments": {HASH: LONG},
        "model_usage": {"openai/gpt-4o-mini": {"input_tokens": 140, "output_tokens": 40}},
        "started_at": "2026-03-04T05:06:08+00:00",
        "completed_at": "2026-03-04T05:06:20+00:00",
        "working_time": 9.0,
        **changes,
    }


def write_log(path: Path, entries: dict[str, bytes], *, damaged: tuple[str, ...] = ()) -> Path:
    """A zip archive compressed with Zstandard, as Inspect writes it."""
    body, directory = b"", b""
    codec = pa.Codec("zstd")
    for name, content in entries.items():
        packed = codec.compress(content, asbytes=True)
        crc = zlib.crc32(content) ^ (1 if name in damaged else 0)
        fields = (93, 0, 0x21, crc, len(packed), len(content), len(name), 0)
        at = len(body)
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 63, 0, *fields) + name.encode() + packed
        start = struct.pack("<4sHHHHHHIIIHH", b"PK\1\2", 63, 63, 0, *fields)
        directory += start + struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode()
    count = len(entries)
    end = (0, 0, count, count, len(directory), len(body), 0)
    path.write_bytes(body + directory + struct.pack("<4sHHHHIIH", b"PK\5\6", *end))
    return path


def archive(path: Path, *samples: dict[str, Any], **more: Any) -> Path:
    entries = {
        f"samples/{data['id']}_epoch_{data['epoch']}.json": json.dumps(data).encode()
        for data in samples
    }
    entries = {"_journal/start.json": json.dumps(header()).encode(), **entries}
    return write_log(path, {**entries, "header.json": json.dumps(header()).encode()}, **more)


def plain(path: Path, *samples: Any) -> Path:
    path.write_text(json.dumps(header(samples=list(samples))))
    return path


def imported(folder: Path, *paths: Path) -> tuple[Store, ImportReport]:
    store = Store(folder / "store.duckdb")
    return store, import_traces(store, trace_files(paths))


@pytest.mark.parametrize("make", [archive, plain], ids=["eval", "json"])
def test_scores_tokens_turns_and_seeds_are_imported(make: Any, tmp_path: Path) -> None:
    path = make(tmp_path / ("log.eval" if make is archive else "log.json"), sample(2, 2))
    store, report = imported(tmp_path, path)
    assert (report.added, report.damaged) == (1, ())
    assert report.unverifiable[0].sessions == 1
    assert "Inspect" in report.unverifiable[0].reason
    row = query(
        store,
        "SELECT model, task, seed, episode, replicate, state, turns, actions_asked,"
        " unknown_actions, malformed_replies, prompt_tokens, completion_tokens, cached_tokens,"
        " reasoning_tokens, cost_usd, duration_s, reward, num_achievements, verifiable, source"
        " FROM episodes",
    )
    assert row == [
        (
            *("openai/gpt-4o-mini", "inspect/crafter/2", 7, 3, 1, "result", 2, 3, 1, 1),
            *(200, 40, 60, 10, 0.5, 9.0, 1.5, 3, False, "inspect"),
        )
    ]
    outcomes = dict(query(store, "SELECT metric, value FROM outcomes"))
    assert outcomes == {
        **{"includes": 1.0, "reward": 1.5, "achievements": 3.0, "turns": 2.0},
        **{"tokens": 240.0, "cost_usd": 0.5, "duration_s": 9.0, "invalid_rate": 1 / 3},
    }


def test_messages_are_imported_once_with_their_references(tmp_path: Path) -> None:
    store, _ = imported(tmp_path, archive(tmp_path / "log.eval", sample()))
    assert query(store, "SELECT role, turn, text FROM messages ORDER BY position") == [
        ("system", 0, "You play."),
        ("user", 0, LONG),
        ("assistant", 1, "I do nothing."),
        ("tool", 1, "nothing happens"),
        ("assistant", 2, ""),
        ("assistant", 2, "Bye."),
    ]
    calls = "SELECT request, reply FROM events WHERE event_type = 'cais' ORDER BY turn"
    assert query(store, calls) == [([0, 1], 2), ([0, 1, 2, 3], 4)]


def test_a_sample_without_events_keeps_its_totals(tmp_path: Path) -> None:
    bare = sample()
    del bare["events"], bare["events_data"]
    store, _ = imported(tmp_path, plain(tmp_path / "log.json", bare))
    row = query(store, "SELECT turns, prompt_tokens, completion_tokens, cost_usd FROM episodes")
    assert row == [(3, 140, 40, None)]


@pytest.mark.parametrize(
    ("message", "state"),
    [
        ("RuntimeError('the sandbox is gone')", "infrastructure"),
        ("BadRequestError('maximum context length is 8192 tokens')", "failure"),
    ],
)
def test_sample_error_is_imported_as_its_end(message: str, state: str, tmp_path: Path) -> None:
    wrong = sample(scores={}, error={"message": message, "traceback": "Traceback"})
    store, _ = imported(tmp_path, archive(tmp_path / "log.eval", wrong))
    row = query(store, "SELECT state, error_type, error_message FROM episodes")
    assert row == [(state, message.split("(")[0], message)]
    assert query(store, "SELECT count(*) FROM outcomes") == [(0,)]


def test_limit_is_a_stop_reason_and_not_an_error(tmp_path: Path) -> None:
    stopped = sample(limit={"type": "token", "limit": 1000})
    store, _ = imported(tmp_path, archive(tmp_path / "log.eval", stopped))
    assert query(store, "SELECT state, stop_reason FROM episodes") == [("result", "token")]


def test_importing_twice_adds_nothing_in_either_form(tmp_path: Path) -> None:
    samples = [sample(), sample(epoch=2), sample(2)]
    store, _ = imported(tmp_path, archive(tmp_path / "log.eval", *samples))
    before = rows_of(store)
    _, report = imported(tmp_path, tmp_path, plain(tmp_path / "log.json", *samples))
    assert (report.added, report.present, report.damaged) == (0, 6, ())
    assert rows_of(store) == before


def test_damaged_samples_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    bad = "samples/2_epoch_1.json"
    path = archive(tmp_path / "log.eval", sample(), sample(2), damaged=(bad,))
    odd = plain(tmp_path / "odd.json", sample("c"), 3, sample("d", messages=[{"role": "x"}]))
    torn = tmp_path / "torn.eval"
    torn.write_bytes(path.read_bytes()[:-60])
    empty = plain(tmp_path / "empty.json")
    _, report = imported(tmp_path, path, odd, torn, empty)
    assert report.added == 2
    assert [bad.where for bad in report.damaged] == [
        f"{path}, {bad}",
        f"{odd}, sample 2",
        f"{odd}, sample 3",
        str(torn),
    ]
    assert "checksum" in report.damaged[0].reason
    assert (str(empty), "is an Inspect log without samples") in report.skipped


def test_scoring_calls_are_not_turns_in_any_log_version(tmp_path: Path) -> None:
    first = sample()["events"][0]
    older = [
        {"event": "step", "action": "begin", "type": "solver", "name": "generate"},
        first,
        {"event": "step", "action": "end", "type": "solver", "name": "generate"},
        {"event": "step", "action": "begin", "type": "scorer", "name": "model_graded_qa"},
        asked(answer("g1", "GRADE: C"), 1),
        {"event": "step", "action": "end", "type": "scorer", "name": "model_graded_qa"},
    ]
    store, _ = imported(tmp_path, plain(tmp_path / "log.json", sample(events=older)))
    assert query(store, "SELECT calls FROM model_usage") == [(1,)]
    assert "GRADE: C" not in {text for (text,) in query(store, "SELECT text FROM messages")}


def test_list_scores_are_kept_and_non_numeric_scores_reported(tmp_path: Path) -> None:
    scores = {"many": {"value": [1, "I", 0.5]}, "words": {"value": "well done"}}
    path = plain(tmp_path / "log.json", sample(scores=scores))
    store, report = imported(tmp_path, path)
    asked_for = "SELECT metric, value FROM outcomes WHERE metric LIKE 'many%' ORDER BY 1"
    assert query(store, asked_for) == [("many/1", 1.0), ("many/2", 0.0), ("many/3", 0.5)]
    assert report.skipped == ((f"{path}, sample 1", "the score 'words' is not a number"),)


def test_json_logs_are_found_in_subfolders(tmp_path: Path) -> None:
    below = tmp_path / "logs" / "2026"
    below.mkdir(parents=True)
    plain(below / "2026-11-16T21-52-57-00-00_quiz_oJvZykLB2PyYgZJp3Pstet.json", sample())
    plain(below / "2026-11-16T21-52-58+00-00_other_GVBSVuvubugWWpQ9qBZY7f.json", sample(2))
    (below / "notes.json").write_text("{}")
    _, report = imported(tmp_path, tmp_path / "logs")
    assert (report.added, report.damaged) == (2, ())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first try first", "retry first"])
def test_a_retried_evaluation_is_one_experiment_without_its_errors(
    order: tuple[int, int], tmp_path: Path
) -> None:
    error = {"message": "RuntimeError('boom')"}
    first = header(status="error", samples=[sample(), sample(2, uuid="u-1", error=error)])
    again = header(samples=[sample(), sample(2, uuid="u-2")])
    # A retry has a run and an evaluation of its own, and the task of the first try.
    again["eval"] |= {"run_id": "run-2", "eval_id": "eval-2"}
    paths = [tmp_path / "first.json", tmp_path / "again.json"]
    for path, log in zip(paths, (first, again), strict=True):
        path.write_text(json.dumps(log))
    for place in order:
        store, report = imported(tmp_path, paths[place])
    retried = "ended with an error and was retried"
    assert sum(reason == retried for _, reason in report.skipped) == (order == (1, 0))
    assert query(store, "SELECT state FROM episodes") == [("result",)] * 2
    assert query(store, "SELECT count(*), any_value(series) FROM experiments") == [
        (1, "inspect crafter openai/gpt-4o-mini")
    ]
    assert imported(tmp_path, *paths)[1].added == 0


def test_unfinished_log_imports_its_completed_samples(tmp_path: Path) -> None:
    entries = {
        "_journal/start.json": json.dumps(header(status="started")).encode(),
        "samples/a_epoch_1.json": json.dumps(sample()).encode(),
    }
    store, report = imported(tmp_path, write_log(tmp_path / "log.eval", entries))
    assert report.added == 1
    assert query(store, "SELECT status FROM runs") == [("incomplete",)]


@pytest.mark.parametrize("method", ["zstd", "deflate"])
def test_zip_entry_above_the_size_limit_is_rejected(method: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    content = b"0" * 100_000
    if method == "zstd":
        write_log(path, {"header.json": content})
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("header.json", content)
    with open_archive(path, 10_000) as opened, pytest.raises(UsageError, match="unpacks"):
        opened.read("header.json")
    with open_archive(path, 100_000) as opened:
        assert opened.read("header.json") == content


@pytest.mark.extras
def test_nested_references_cannot_expand_without_limit(tmp_path: Path) -> None:
    said = [{"id": f"m{i}", "role": "user", "content": "x"} for i in range(3000)]
    many = [asked(answer(f"r{i}", ""), 10**9) for i in range(2000)]
    path = plain(tmp_path / "log.json", sample(events=many, events_data={"messages": said}))
    _, report = imported(tmp_path, path)
    assert "more than 5000000 messages" in report.damaged[0].reason
    text = f"attachment://{HASH} " * 1000
    large = sample(attachments={HASH: "y" * (1 << 20)}, events=[])
    large["messages"] = [{"role": "user", "content": text}]
    _, report = imported(tmp_path, plain(tmp_path / "large.json", large))
    assert "256 MB" in report.damaged[0].reason


def test_image_is_replaced_by_a_note(tmp_path: Path) -> None:
    seen = sample(attachments={HASH: "data:image/png;base64,AAAA"})
    store, _ = imported(tmp_path, archive(tmp_path / "log.eval", seen))
    said = query(store, "SELECT text FROM messages WHERE position = 1")
    assert said == [("[image]",)]
