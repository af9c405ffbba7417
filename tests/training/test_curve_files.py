"""Training runs are read from files of every format, and invalid files get an error message."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.errors import UsageError
from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.readers.tables import read_run_file

STEPS = [0, 10, 20]
VALUES = [0.5, 1.5, 2.5]
ROWS = [{"step": s, "overview/reward": v} for s, v in zip(STEPS, VALUES, strict=True)]


def read(path: Path, text: str | bytes) -> TrainingRun:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_run_file(path)


def points(run: TrainingRun, metric: str = "overview/reward") -> list[tuple[int, float]]:
    curve = run.curves[metric]
    return list(zip(curve.steps_P.tolist(), curve.values_P.tolist(), strict=True))


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"step": STEPS, "overview/reward": VALUES}), sink)
    return bytes(sink.getvalue())


LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
TABLE = "step,overview/reward\n0,0.5\n10,1.5\n20,2.5\n"
KINDS: dict[str, str | bytes] = {
    "a.csv": TABLE,
    "b.csv": "\ufeff" + TABLE.replace("step", "_step", 1),
    "c.tsv": TABLE.replace(",", "\t"),
    "d.jsonl": LINES,
    "e.json": json.dumps(ROWS),
    "f.json": json.dumps({"points": ROWS}),
    "g.json": json.dumps({"step": STEPS, "overview/reward": VALUES}),
    "h.jsonl": LINES.replace('"overview/reward": 0.5', '"overview": {"reward": 0.5}'),
    "i.csv": "step,overview/reward\n20,2.5\n0,0.5\n10.0,1.5\n",
    "j.parquet": parquet(),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_file_format_gives_the_same_curve(name: str, tmp_path: Path) -> None:
    run = read(tmp_path / name, KINDS[name])
    assert points(run) == list(zip(STEPS, VALUES, strict=True))
    assert run.id == name[0]
    assert run.seed is None
    assert run.status is TrainingStatus.FINISHED


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("base.vit.seed1072.csv", 1072),
        ("Seed_7.csv", 7),
        ("run3.csv", None),
        ("a.seed=5.csv", 5),
    ],
)
def test_the_seed_is_taken_from_the_name_if_the_file_has_none(
    name: str, seed: int | None, tmp_path: Path
) -> None:
    assert read(tmp_path / name, TABLE).seed == seed


def test_values_in_the_file_override_its_name(tmp_path: Path) -> None:
    text = "step,m,seed,status,id,commit,subject\n0,1,42,failed,other,abc,trxl\n5,2,42,,,,\n"
    run = read(tmp_path / "x.seed1.csv", text)
    assert (run.id, run.seed, run.status) == ("other", 42, TrainingStatus.CRASHED)
    assert (run.subject, run.commit) == ("trxl", "abc")
    assert set(run.curves) == {"m"}


def test_lines_without_a_step_may_describe_the_run(tmp_path: Path) -> None:
    head = json.dumps({"seed": 9, "status": "running", "config": {"lr": 0.1}})
    run = read(tmp_path / "a.jsonl", f"{head}\n{LINES}" + '{"status": "finished"}\n')
    assert (run.seed, run.status) == (9, TrainingStatus.FINISHED)
    assert run.configuration == {"lr": 0.1}


def test_an_empty_cell_is_skipped_and_nan_is_counted(tmp_path: Path) -> None:
    text = "step,a,b\n0,1,\n1,nan,2\n2,inf,\n3,4,5\n"
    run = read(tmp_path / "a.csv", text)
    assert points(run, "a") == [(0, 1.0), (3, 4.0)]
    assert run.curves["a"].dropped == 2
    assert points(run, "b") == [(1, 2.0), (3, 5.0)]
    assert run.curves["b"].dropped == 0


def test_the_later_line_of_a_repeated_step_is_used(tmp_path: Path) -> None:
    run = read(tmp_path / "a.csv", "step,a\n0,1\n1,2\n2,3\n1,20\n2,30\n")
    assert points(run, "a") == [(0, 1.0), (1, 20.0), (2, 30.0)]
    assert run.curves["a"].repeated == 2


def test_a_text_column_is_not_a_metric(tmp_path: Path) -> None:
    run = read(tmp_path / "a.csv", "step,a,phase\n0,1,warm\n1,2,7\n")
    assert set(run.curves) == {"a"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        pytest.param("a.csv", "", "empty", id="empty"),
        pytest.param("a.csv", "time,reward\n1,2\n", "no column 'step'", id="no step"),
        pytest.param("a.csv", "step,a\n", "no rows", id="header only"),
        pytest.param("a.csv", "step,a\n1.5,2\n", "1.5", id="half a step"),
        pytest.param("a.csv", "step,a\nx,2\n", "line 2: step 'x'", id="step of letters"),
        pytest.param("a.csv", "step,a\n9007199254740993,2\n", "up to 9,007,", id="huge step"),
        pytest.param("a.csv", "step,a\n1,2,3\n", "line 2 has 3 cells", id="ragged"),
        pytest.param("a.csv", "step,a,a\n1,2,3\n", "'a' appears twice", id="twice"),
        pytest.param("a.csv", 'step,a\n1,"2\n', "cannot be read", id="open quote"),
        pytest.param("a.csv", b"step,a\n1,\xff\n", "UTF-8", id="not text"),
        pytest.param("a.csv", "step,a\n1,hello\n", "no numeric metric", id="no numbers"),
        pytest.param("a.csv", "step,a,seed\n1,2,3\n2,3,4\n", "one run", id="two seeds"),
        pytest.param("a.csv", "step,a,status\n1,2,odd\n", "unknown status 'odd'", id="status"),
        pytest.param("a.csv", "step,a,seed\n1,2,x\n", "seed 'x'", id="seed of letters"),
        pytest.param("a.jsonl", "{\n", "line 1 is not valid JSON", id="broken line"),
        pytest.param("a.jsonl", "[1]\n", "line 1 is not a JSON object", id="a list"),
        pytest.param("a.jsonl", '{"a": 1}\n', "line 1 has no step", id="no step in a line"),
        pytest.param("a.json", "{", "cannot be read", id="broken JSON"),
        pytest.param("a.json", "5", "points must be", id="a number"),
        pytest.param("a.json", '{"step": [1, 2], "a": [1]}', "different lengths", id="columns"),
        pytest.param("a.json", "[" * 100_000, "nested too deeply", id="deep"),
        pytest.param("a.json", "[" + "1" * 5_000 + "]", "points must be", id="long number"),
        pytest.param(
            "a.json",
            r'{"id": "a\ud800", "step": [1], "a": [2]}',
            "not a valid character",
            id="half a letter",
        ),
        pytest.param(
            "a.json",
            r'{"step": [1], "a\udfff": [2]}',
            "metric 'a",
            id="half a letter of a metric",
        ),
        pytest.param(
            "a.json",
            r'{"config": {"\ud800": 1}, "step": [1], "a": [2]}',
            "not a valid character",
            id="config",
        ),
        pytest.param("a.json", '{"id": {"a": 1}, "step": [1], "a": [2]}', "not text", id="id"),
        pytest.param("a.parquet", "hello", "not a readable Parquet", id="no Parquet"),
        pytest.param("a.txt", "step,a\n", "unsupported file type", id="suffix"),
    ],
)
def test_an_invalid_file_is_rejected_with_a_message(
    name: str, text: str | bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path / name, text)
    assert words in str(caught.value)
    assert name in str(caught.value)


def test_a_too_large_file_is_rejected_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = pa.array(np.zeros(10_000_001, np.int8))
    pq.write_table(pa.table({"step": zeros, "a": zeros}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    with pytest.raises(UsageError, match=r"a.parquet': it has 20,000,002 points; .* leave out"):
        read_run_file(tmp_path / "a.parquet")
    wide = ",".join(f"m{number}" for number in range(10_001))
    with pytest.raises(UsageError, match=r"a.csv': it has 10,001 metrics; the limit is 10,000"):
        read(tmp_path / "a.csv", f"step,{wide}\n")
    lines = "".join(f'{{"step": 1, "m{number}": 1}}\n' for number in range(10_001))
    with pytest.raises(UsageError, match=r"a.jsonl': it has 10,001 metrics"):
        read(tmp_path / "a.jsonl", lines)
    monkeypatch.setattr("assay.training.readers.tables._MAX_BYTES", len(parquet()))
    packed = pa.table({"step": [1], "a": ["x" * 10_000]})
    pq.write_table(packed, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < len(parquet())
    with pytest.raises(UsageError, match=r"a.parquet': it unpacks to 1\d,\d{3} bytes; "):
        read_run_file(tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=r"a.csv': it has 2,\d{3} bytes; the limit"):
        read(tmp_path / "a.csv", "step,a\n" + "1,2\n" * 500)


def test_points_and_metrics_up_to_the_limits_are_accepted(tmp_path: Path) -> None:
    wide = ",".join(f"m{number}" for number in range(10_000))
    run = read(tmp_path / "a.csv", f"step,{wide}\n1{',5' * 10_000}\n")
    assert len(run.curves) == 10_000


def test_a_pipe_is_rejected_with_a_message(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="it is not a regular file"):
        read_run_file(tmp_path / "a.csv")


def test_text_columns_in_parquet_describe_the_run(tmp_path: Path) -> None:
    table = pa.table({"step": [1, 2], "a": [0.5, None], "task": ["walk", "walk"]})
    pq.write_table(table, tmp_path / "a.parquet")
    run = read_run_file(tmp_path / "a.parquet")
    assert (run.task, points(run, "a")) == ("walk", [(1, 0.5)])


def test_a_missing_file_is_rejected_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_run_file(tmp_path / "a.csv")
