"""Bundles: what is packed comes out the same elsewhere, and nothing that was changed does."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from assay import api
from assay.bench.sandboxes.images import images_folder
from assay.errors import UsageError

from .boxes import usable
from .harbor_tasks import harbor_task
from .tasks import make_task
from .test_harbor import Bench


def parts(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


@pytest.mark.bench
def test_a_machine_without_the_base_runs_what_a_bundle_brings(
    tmp_path: Path, image_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable(None)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "here"))
    task = harbor_task(tmp_path / "task", '[task]\nname = "a/bundled"\n')
    file = tmp_path / "bundle.tar"
    packed = api.bench_bundle(task, output=file, base_images=[f"base:1={image_root}"])
    kinds = [part.kind for part in packed]
    assert (kinds.count("tasks"), kinds.count("agents")) == (1, 0)
    built = {path.name for path in images_folder().iterdir() if len(path.name) == 64}
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "there"))
    placed = api.bench_unbundle(file, into=tmp_path / "tasks")
    assert all(part.added for part in placed)
    bench = Bench(tmp_path, "bubblewrap", None)
    (trial,) = bench.run(tmp_path / "tasks/bundled", "oracle")
    assert (trial.outcome, trial.score) == ("solved", 1.0)
    here = {path.name for path in images_folder().iterdir() if len(path.name) == 64}
    assert here == built, "nothing was built anew"
    assert not any(part.added for part in api.bench_unbundle(file, into=tmp_path / "tasks"))


def test_agents_are_packed_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "here"))
    agent = tmp_path / "here/agents/codex"
    agent.mkdir(parents=True)
    said = {"name": "codex", "version": "1.0", "sha256": "x", "binary": "run"}
    (agent / "agent.json").write_text(json.dumps({**said, "installed_at": 1.0}))
    (agent / "run").write_text("#!/bin/sh\n")
    (agent / "run").chmod(0o755)
    file = tmp_path / "bundle.tar"
    api.bench_bundle(make_task(tmp_path / "task"), output=file)
    assert parts(file) == ["bundle.json", "tasks/task.tar", "agents/codex.tar"]
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "there"))
    api.bench_unbundle(file, into=tmp_path / "tasks")
    found = api.bench_agents()["codex"]
    assert (found.installed, found.version) == (True, "1.0")
    assert (tmp_path / "there/agents/codex/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "tasks/task/tb_meta.json").is_file()
    with pytest.raises(UsageError, match="unknown agent 'codec'"):
        api.bench_bundle(tmp_path / "task", output=file, agents=["codec"])
    with pytest.raises(UsageError, match="is not installed"):
        api.bench_bundle(tmp_path / "task", output=file, agents=["claude-code"])


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "bundle.tar"
    api.bench_bundle(make_task(tmp_path / "task"), output=file)
    return file


def rewritten(file: Path, member: str, content: bytes | None) -> None:
    """The same bundle with another member, or without it."""
    folder = file.parent / "rewritten"
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
    if content is None:
        (folder / member).unlink()
    else:
        (folder / member).write_bytes(content)
    with tarfile.open(file, "w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tar.add(path, str(path.relative_to(folder)))
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("member", "content", "said"),
    [
        ("tasks/task.tar", b"other", "its SHA-256 is another"),
        ("tasks/task.tar", None, "no whole bundle"),
        ("bundle.json", None, "no whole bundle"),
        ("bundle.json", b"[]", "no bundle of assay"),
        ("bundle.json", b'{"format": "x"}', "its format is 'x'"),
        (
            "bundle.json",
            b'{"format": "assay-bundle/1", "base_images": {}, "parts": '
            b'[{"kind": "tasks", "name": "../up", "sha256": "0"}]}',
            "tasks/../up cannot be in one",
        ),
    ],
)
def test_nothing_of_a_bundle_that_was_changed_is_unpacked(
    bundle: Path, tmp_path: Path, member: str, content: bytes | None, said: str
) -> None:
    rewritten(bundle, member, content)
    with pytest.raises(UsageError, match=said):
        api.bench_unbundle(bundle, into=tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UsageError, match="no whole bundle"):
        api.bench_unbundle(tmp_path / "text", into=tmp_path / "into")
    with pytest.raises(UsageError, match="no task was named"):
        api.bench_bundle(output=tmp_path / "x")
