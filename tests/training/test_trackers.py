"""Runs of other trackers are read without their packages, and problems in them are reported.

The files in `golden/curves` were written by the real packages; its README says which.
"""

import shutil
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

from assay.errors import AmbiguousName, UsageError
from assay.store.store import Store
from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.gather import gather_runs
from assay.training.readers.sources import is_source, list_runs_at, read_all_runs, read_source
from assay.training.readers.wandb import EventFrames, WandbFrames, read_fields
from tests.training.made import METRIC

GOLDEN = Path(__file__).parents[1] / "golden" / "curves"
WANDB = GOLDEN / "wandb"
[WHOLE] = WANDB.glob("*x7f3k2qa")
[KILLED] = WANDB.glob("*killed00")
[FAILED] = WANDB.glob("*failed00")
EVENTS = GOLDEN / "tensorboard"
[MLRUN] = (GOLDEN / "mlruns").glob("*/*/")


def points(run: TrainingRun, metric: str = METRIC) -> dict[int, float]:
    curve = run.curves[metric]
    return dict(zip(curve.steps_P.tolist(), curve.values_P.round(6).tolist(), strict=True))


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    connection = sqlite3.connect(path)
    written = (GOLDEN / "mlflow.sql").read_text("utf-8")
    connection.executescript(f"BEGIN; {written} COMMIT;")
    connection.close()
    return path


def test_an_offline_wandb_run_is_read_with_its_metadata() -> None:
    run = read_source(str(WHOLE))
    assert (run.id, run.seed, run.series) == ("x7f3k2qa", 1072, "vit")
    assert run.status is TrainingStatus.FINISHED
    assert run.configuration == {
        "seed": 1072,
        "lr": 0.1,
        "net": {"width": 64},
        "parameters": 120000,
    }
    assert (run.provenance["wandb"], run.provenance["project"]) == ("0.31.0", "crafter")
    assert points(run) == {s * 1000: s / 10 for s in range(11) if s not in (3, 4)}
    assert run.curves[METRIC].dropped == 2, "one NaN, one infinity"
    assert points(run, "nested.inner.x") == {2000: 1.0}
    assert set(run.curves) == {METRIC, "loss", "nested.inner.x", "flag"}, "no histogram"


def test_a_metric_with_text_values_is_reported() -> None:
    assert read_source(str(WHOLE)).notes == (
        "'phase' has text values in addition to numbers, so it is not used as a metric",
    )


def test_a_killed_run_keeps_its_written_points_and_reports_lost_ones() -> None:
    run = read_source(str(KILLED))
    assert run.status is TrainingStatus.CRASHED
    assert points(run) == {s * 1000: round(1.1 * s / 130, 6) for s in range(85)}
    torn, unended = run.notes
    assert torn.startswith("its file ends within a record: the last ")
    assert unended == "it is unknown how it ended: it was killed, or is still running"


def test_a_failed_run_has_its_exit_code() -> None:
    run = read_source(str(FAILED / "run-failed00.wandb"))
    assert (run.status, run.seed) == (TrainingStatus.CRASHED, 3014)
    assert run.notes == ("it ended with exit code 1",)


def test_a_killed_run_is_reported_and_excluded(tmp_path: Path) -> None:
    found = gather_runs([str(WANDB)], METRIC, Store(tmp_path / "none.duckdb"))
    assert [Path(run.name).name[-8:] for run in found.runs] == ["x7f3k2qa"]
    reasons = {Path(run.name).name[-8:]: run.reason for run in found.unusable}
    assert "it was killed, or is still running" in reasons["killed00"]
    assert "exit code 1" in reasons["failed00"]
    assert any("2 points are NaN" in note for note in found.notes)
    assert any("text values in addition to numbers" in note for note in found.notes)


def test_a_damaged_run_or_one_without_the_metric_is_reported_and_excluded(
    tmp_path: Path,
) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(EVENTS / "vit.seed1072", tmp_path / "runs" / name)
    for path in (tmp_path / "runs" / "c").glob("*.host.0"):
        path.write_bytes(b"x" * 100)
    store = Store(tmp_path / "none.duckdb")
    found = gather_runs([str(tmp_path / "runs")], METRIC, store)
    assert [Path(run.name).name for run in found.runs] == ["a", "b"]
    reasons = [run.reason for run in found.unusable]
    assert sum("unknown metric 'overview/reward'" in reason for reason in reasons) == 3
    assert sum("is damaged" in reason for reason in reasons) == 1
    with pytest.raises(UsageError, match="is damaged"):
        gather_runs([str(tmp_path / "runs" / "c")], METRIC, store)


def test_a_truncated_wandb_file_gives_the_start_of_its_curve_or_an_error_message(
    tmp_path: Path,
) -> None:
    content = (WHOLE / "run-x7f3k2qa.wandb").read_bytes()
    whole = points(read_source(str(WHOLE)))
    path = tmp_path / "run-cut.wandb"
    for size in range(0, len(content), 397):
        path.write_bytes(content[:size])
        if not [*WandbFrames(content[:size])]:
            with pytest.raises(UsageError, match=f"none of its {size} bytes"):
                read_source(str(path))
            continue
        run = read_source(str(path))
        assert run.status is TrainingStatus.CRASHED
        own = points(run) if METRIC in run.curves else {}
        assert [*own.items()] == [*whole.items()][: len(own)]


def test_damage_in_the_middle_is_rejected_and_trailing_zeros_are_accepted(
    tmp_path: Path,
) -> None:
    for source, name, frames in (
        (KILLED / "run-killed00.wandb", "run-a.wandb", WandbFrames),
        (
            next((EVENTS / "vit.seed1072").glob("*.host.0")),
            "events.out.tfevents.1",
            EventFrames,
        ),
    ):
        content = bytearray(source.read_bytes())
        content[len(content) // 2] ^= 1
        path = tmp_path / name
        path.write_bytes(content)
        place = path if name.endswith("wandb") else tmp_path
        with pytest.raises(UsageError, match="is damaged: its checksum"):
            read_source(str(place))
        zeros = frames(source.read_bytes() + bytes(500))
        assert len([*zeros]) == len([*frames(source.read_bytes())])
        assert zeros.incomplete is not None
        path.unlink()


def test_a_record_may_be_longer_than_a_block(tmp_path: Path) -> None:
    records = [b"a" * 100, b"b" * 100_000, b"c" * (32 * 1024 - 7 - 3), b"", b"d"]
    assert [*WandbFrames(leveldb(records))] == records


def leveldb(records: list[bytes]) -> bytes:
    """Return records in the format of LevelDB's log, by its specification."""
    content = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        first = True
        while True:
            left = 32_768 - len(content) % 32_768
            if left < 7:
                content += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if not record else 2) if first else (4 if not record else 3)
            content += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind)
            content += part
            first = False
            if not record:
                break
    return bytes(content)


def test_a_truncated_message_is_an_error() -> None:
    assert [*read_fields(b"\x08\x96\x01\x12\x02hi\x1d\x00\x00\x80\x3f")] == [
        *((1, 150), (2, b"hi"), (3, b"\x00\x00\x80\x3f")),
    ]
    for broken in (b"\x08", b"\x12\x05hi", b"\x0b", b"\xff" * 11):
        with pytest.raises(ValueError, match=r"cut off|longer|unknown"):
            list(read_fields(broken))


def test_event_files_of_a_folder_are_one_run_and_a_restart_replaces_later_steps() -> None:
    run = read_source(str(EVENTS / "vit.seed1072"))
    assert (run.id, run.seed, run.status) == ("vit.seed1072", 1072, TrainingStatus.FINISHED)
    first = {s * 1000: s / 10 for s in range(8) if s != 3}
    assert points(run) == {**first, **{s * 1000: 2.0 + s for s in range(8, 12)}}
    assert run.curves[METRIC].dropped == 1
    assert set(run.curves) == {METRIC, "loss"}, "neither the histogram nor the text"
    assert run.notes == (
        "it restarted at step 8,000: 6 points logged before the restart, from that step on, "
        "are left out",
    )


def test_scalars_may_be_tensors() -> None:
    run = read_source(str(EVENTS / "tensors"))
    assert points(run) == {s: s * 0.5 for s in range(4)}
    assert points(run, "double") == {s: round(s * 0.1, 6) for s in range(4)}
    assert points(run, "content") == {s: s * 0.25 for s in range(4)}
    assert points(run, "whole") == {s: -s for s in range(4)}


def test_tensorboard_hyperparameters_are_read_as_the_configuration() -> None:
    run = read_source(str(EVENTS / "vit.seed1072" / "hparams"))
    assert run.configuration == {"lr": 0.1, "seed": 1072, "net": "mlp", "big": True}
    assert run.seed == 1072


def test_a_truncated_event_file_is_a_crashed_run(tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(EVENTS / "tensors", folder)
    [file] = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    run = read_source(str(folder))
    assert run.status is TrainingStatus.CRASHED
    assert "ends within a record" in run.notes[0]
    assert len(run.curves[METRIC]) == 4
    assert len(run.curves["whole"]) == 3


def test_runs_of_an_mlflow_database_are_found_by_name_or_id(mlflow: Path) -> None:
    run = read_source(f"{mlflow}:vit.seed1072")
    assert (run.seed, run.series, run.commit) == (1072, "vit", "c0ffee")
    assert run.configuration == {"seed": 1072, "lr": 0.1, "net": "mlp"}
    assert points(run) == {0: 0.0, 1000: 0.2, 2000: 9.0, 3000: 0.6, 4000: 0.8, 5000: 1.0}
    assert run.curves[METRIC].repeated == 1
    assert run.curves["loss"].dropped == 2, "one NaN, one infinity"
    assert read_source(f"{mlflow}:{run.id[:6]}").id == run.id
    statuses = {found.provenance["name"]: found.status for found in read_all_runs(str(mlflow))}
    assert statuses == {
        "vit.seed1072": TrainingStatus.FINISHED,
        "vit.seed2043": TrainingStatus.CRASHED,
        "other": TrainingStatus.RUNNING,
    }, "the deleted one is not there"


def test_a_folder_in_mlruns_is_read_as_a_run() -> None:
    run = read_source(str(MLRUN))
    assert (run.seed, run.series, run.status) == (1072, "vit", TrainingStatus.FINISHED)
    assert points(run)[2000] == 9.0
    assert run.curves["loss"].dropped == 2


def test_an_unknown_or_ambiguous_mlflow_run_is_rejected_with_a_message(mlflow: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown MLflow run 'vat.seed1072'; did you mean"):
        read_source(f"{mlflow}:vat.seed1072")
    with pytest.raises(AmbiguousName, match=r"vit\.seed2043"):
        read_source(f"{mlflow}:vit.seed")


def test_another_database_is_not_read_as_mlflow(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE x (y INTEGER)")
    connection.close()
    with pytest.raises(UsageError, match="not a readable MLflow database: no such table"):
        list_runs_at(str(tmp_path / "a.db"))


def test_a_folder_includes_all_runs_below_it_in_numeric_order(tmp_path: Path) -> None:
    for seed in (10, 2, 1):
        shutil.copytree(EVENTS / "tensors", tmp_path / f"vit.seed{seed}")
    shutil.copytree(WHOLE, tmp_path / "wandb" / WHOLE.name)
    (tmp_path / "wandb" / "latest-run").symlink_to(WHOLE.name)
    (tmp_path / "wandb" / "logs").mkdir()
    assert [Path(name).name for name in list_runs_at(str(tmp_path))] == [
        *("vit.seed1", "vit.seed2", "vit.seed10", WHOLE.name)
    ]
    assert [run.id for run in read_all_runs(str(tmp_path))][1:] == [
        *("vit.seed2", "vit.seed10", "x7f3k2qa")
    ]
    with pytest.raises(UsageError, match="it contains 4 runs; choose one of them"):
        read_source(str(tmp_path))


def test_empty_folders_and_missing_paths_are_rejected_with_a_message(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="it contains no run; name a file of points"):
        read_source(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="no such file or folder"):
        read_source(str(tmp_path / "gone"))
    assert not is_source(str(tmp_path / "gone"))
    (tmp_path / "run-x.wandb").write_bytes(b"hello there")
    with pytest.raises(UsageError, match=r"begins with b'hello t'"):
        read_source(str(tmp_path / "run-x.wandb"))
    (tmp_path / "run-x.wandb").write_bytes(leveldb([]) + b"\xff" * 30)
    with pytest.raises(UsageError, match=r"run-x.wandb': none of its 37 bytes"):
        read_source(str(tmp_path / "run-x.wandb"))
