"""Bundles: what is packed comes out the same elsewhere, and nothing that was changed does."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay import api
from assay._util.loops import run_apart
from assay.bench.sandboxes.docker_archives import rewrite_archive
from assay.bench.sandboxes.docker_engine import DockerEngine
from assay.bench.sandboxes.docker_images import has_image
from assay.bench.sandboxes.images import images_folder
from assay.errors import SandboxUnavailable, UsageError

from .boxes import usable
from .harbor_tasks import harbor_task
from .roots import small_root
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
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:1")  # no engine is asked
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


# Images of Docker

NAME = f"assay-bundled:{'0' * 32}"
FOREIGN = "debian:assay-test"
MANIFEST = {"Config": "c", "RepoTags": [NAME], "Layers": ["l", "again/l"]}


def tar_of(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for name, linked in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, linked
            tar.addfile(entry)
    return target.getvalue()


def archive_of(*images: Mapping[str, Any], **files: bytes) -> bytes:
    """An image as an engine saves it, with two layers, one of which is a link to the other."""
    whole = {"manifest.json": json.dumps(images).encode(), "c": b"{}", "l": b"layer", **files}
    return tar_of(whole, {"again/l": "../l"})


def bundle_with(file: Path, archive: bytes, name: str = NAME) -> Path:
    """A bundle of one image, whose hash is right."""
    part = {
        "kind": "docker-images",
        "name": name,
        "sha256": hashlib.sha256(archive).hexdigest(),
    }
    told = {"format": "assay-bundle/1", "base_images": {}, "parts": [part]}
    inner = {"bundle.json": json.dumps(told).encode(), f"docker-images/{name}.tar": archive}
    file.write_bytes(tar_of(inner))
    return file


def images_over(layer: str) -> set[str]:
    """The names of all images of the engine that start with a layer."""

    async def ask() -> set[str]:
        async with DockerEngine.connected() as engine:
            listed = await engine.call("GET", "/images/json")
            # A build of somebody else, at the same time, has images without a name.
            tags = [name for image in listed for name in image["RepoTags"] or ()]
            names = [name for name in tags if name != "<none>:<none>"]
            found = {name: await has_image(engine, name) for name in names}
        return {
            name
            for name, image in found.items()
            if image and image["RootFS"]["Layers"][0] == layer
        }

    return run_apart(ask)


def remove_images(*names: str) -> None:
    async def remove() -> None:
        async with DockerEngine.connected() as engine:
            for name in names:
                path = f"/images/{name}"
                await engine.call("DELETE", path, query={"force": "1"}, accept=(404,))

    run_apart(remove)


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def test_an_engine_gets_one_image_of_an_archive_under_one_name_and_nothing_else(
    tmp_path: Path,
) -> None:
    more = {"repositories": b'{"debian": {"12": "c"}}', "index.json": b"{}"}
    (tmp_path / "saved").write_bytes(archive_of(MANIFEST, **more))
    rewrite_archive(tmp_path / "saved", NAME, tmp_path / "own", "assay-bundled:mine")
    with tarfile.open(tmp_path / "own") as tar:
        contents = {
            entry.name: (tar.extractfile(entry) or io.BytesIO()).read() for entry in tar
        }
    (image,) = json.loads(contents.pop("manifest.json"))
    assert image["RepoTags"] == ["assay-bundled:mine"]
    assert contents == {"config.json": b"{}", "0.tar": b"layer", "1.tar": b"layer"}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (archive_of({**MANIFEST, "RepoTags": [FOREIGN]}), f"calls itself.*{FOREIGN}"),
        (archive_of({**MANIFEST, "RepoTags": [NAME, FOREIGN]}), f"calls itself.*{FOREIGN}"),
        (archive_of({**MANIFEST, "RepoTags": None}), "calls itself None"),
        (archive_of(MANIFEST, {**MANIFEST, "RepoTags": [FOREIGN]}), "no whole image"),
        (archive_of({**MANIFEST, "Layers": ["gone"]}), "no whole image.*gone"),
        (archive_of({**MANIFEST, "Config": 5}), "no whole image"),
        (tar_of({}, {"manifest.json": "manifest.json"}), "no whole image"),
        (archive_of(MANIFEST)[:1200], "no whole image"),
        (b"text", "no whole image"),
    ],
    ids=[
        *("another name", "a second name", "no name", "two images", "no layer", "no path"),
        *("a link to itself", "cut off", "no archive"),
    ],
)
def test_an_image_that_is_not_what_the_bundle_says_never_reaches_the_engine(
    archive: bytes, said: str, tmp_path: Path
) -> None:
    file = bundle_with(tmp_path / "bundle.tar", archive)
    with pytest.raises(UsageError, match=said):
        api.bench_unbundle(file, into=tmp_path / "into")


@pytest.mark.parametrize("name", [FOREIGN, "assay-bundled:latest", "assay-task:" + "0" * 32])
def test_a_bundle_brings_images_only_under_names_of_its_own(name: str, tmp_path: Path) -> None:
    file = bundle_with(tmp_path / "bundle.tar", archive_of(MANIFEST), name)
    with pytest.raises(UsageError, match=f"cannot be called '{name}'"):
        api.bench_unbundle(file, into=tmp_path / "into")


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_nothing_of_a_bundle_for_docker_is_unpacked(
    bundle: Path, tmp_path: Path
) -> None:
    archive = archive_of(MANIFEST)
    with tarfile.open(bundle) as tar:
        contents = json.load(tar.extractfile("bundle.json") or io.BytesIO())
    digest = hashlib.sha256(archive).hexdigest()
    contents["parts"].append({"kind": "docker-images", "name": NAME, "sha256": digest})
    with tarfile.open(bundle, "a") as tar:
        for name, content in {
            f"docker-images/{NAME}.tar": archive,
            "bundle.json": json.dumps(contents).encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    with pytest.raises(
        SandboxUnavailable, match=r"has images of Docker.*no engine.*DOCKER_HOST"
    ):
        api.bench_unbundle(bundle, into=tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.usefixtures("no_engine")
def test_images_are_packed_for_the_sandbox_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, file = harbor_task(tmp_path / "task"), tmp_path / "bundle.tar"
    with pytest.raises(SandboxUnavailable, match="no engine of Docker answers"):
        api.bench_bundle(task, output=file, sandbox="docker")
    with pytest.raises(UsageError, match="'none' cannot start from an image"):
        api.bench_bundle(task, output=file, sandbox="none")
    monkeypatch.setenv("SANDBOX_BACKEND", "docker")
    with pytest.raises(SandboxUnavailable, match="no engine of Docker answers"):
        api.bench_bundle(task, output=file)
    assert not file.exists()


@pytest.mark.docker
def test_an_engine_without_the_base_runs_what_a_bundle_brings_and_builds_nothing(
    tmp_path: Path,
) -> None:
    usable("docker")
    root = small_root(tmp_path / "root")
    (root / "etc/own").write_text(str(tmp_path))  # so that no other test has this base
    files = {"environment/Dockerfile": "FROM base:1\nWORKDIR /app\nRUN echo once > made\n"}
    task = harbor_task(tmp_path / "task", '[task]\nname = "a/bundled"\n', files)
    file = tmp_path / "bundle.tar"
    packed = api.bench_bundle(
        task,
        output=file,
        base_images=[f"base:1={root}"],
        build_network=True,
        sandbox="docker",
    )
    (image,) = (part for part in packed if part.kind == "docker-images")
    with (
        tarfile.open(file) as tar,
        tarfile.open(fileobj=tar.extractfile(f"docker-images/{image.name}.tar")) as saved,
    ):
        config = json.load(saved.extractfile("config.json") or io.BytesIO())
    base = config["rootfs"]["diff_ids"][0]
    assert {name.partition(":")[0] for name in images_over(base)} == {
        "assay-base",
        "assay-task",
    }
    remove_images(*images_over(base))
    assert not images_over(base)
    try:
        placed = api.bench_unbundle(file, into=tmp_path / "tasks")
        assert {part.name: (part.sha256, part.size) for part in placed} == {
            part.name: (part.sha256, part.size) for part in packed
        }
        assert all(part.added for part in placed)
        (trial,) = Bench(tmp_path, "docker", None).run(tmp_path / "tasks/bundled", "oracle")
        assert (trial.outcome, trial.score) == ("solved", 1.0)
        assert images_over(base) == {image.name}
        again = api.bench_unbundle(file, into=tmp_path / "tasks")
        assert not any(part.added for part in again)
        (tmp_path / "tasks/bundled/environment/start.txt").write_text("changed")
        (trial,) = Bench(tmp_path, "docker", None).run(tmp_path / "tasks/bundled", "oracle")
        assert "'base:1' is not in the engine" in (trial.error or ""), "another image"
    finally:
        remove_images(image.name)


@pytest.mark.docker
def test_an_image_that_the_engine_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    usable("docker")
    wrong = {"os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{'0' * 64}"]}}
    manifest = {**MANIFEST, "Layers": ["l"]}
    layer = tar_of({"file": b"content"})
    archive = archive_of(manifest, c=json.dumps(wrong).encode(), l=layer)
    file = bundle_with(tmp_path / "bundle.tar", archive)
    with pytest.raises(SandboxUnavailable, match=r"has images of Docker.*Nothing else"):
        api.bench_unbundle(file, into=tmp_path / "into")
    assert not (tmp_path / "into").exists()
