"""Sandboxes that start from a Docker image: building, changing, exporting, restoring."""

import asyncio
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay.core.aio import run_in_own_loop
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    Command,
    CommandEnd,
    ImageBackend,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    SandboxSpec,
)
from assay.sandboxes.docker.backend import DockerBackend
from assay.sandboxes.docker.engine import DockerEngine

from .boxes import SMALL, found, leftovers, usable
from .roots import small_root

pytestmark = pytest.mark.docker

DOCKERFILE = """
ARG BASE=debian:12
FROM ${BASE} AS first
COPY given /srv/
RUN echo built > /srv/built && mkdir /srv/old && touch /srv/old/a /srv/old/b
ENV GREETING=hello
WORKDIR /srv
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_root(tmp_path_factory.mktemp("base") / "root")


@pytest.fixture(scope="module")
def backend() -> Iterator[DockerBackend]:
    backend = usable("docker")
    assert isinstance(backend, DockerBackend)
    yield backend
    run_in_own_loop(_remove_images)


async def _remove_images() -> None:
    async with DockerEngine.connect() as engine:
        for kind in ("task", "base"):
            query = {"filters": f'{{"label": ["assay={kind}"]}}'}
            for image in await engine.call("GET", "/images/json", query=query):
                path = f"/images/{image['Id']}"
                await engine.call("DELETE", path, query={"force": "1"}, accept=(404, 409))


@pytest.fixture
def recipe(tmp_path: Path, base: Path) -> ImageRecipe:
    context = tmp_path / "environment"
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    (context / "given").write_text("for the image\n")
    return ImageRecipe(context=context, base_images={"debian:12": str(base)})


def built(backend: ImageBackend, recipe: ImageRecipe) -> str:
    return asyncio.run(backend.build(recipe))


@pytest.fixture
def image(backend: DockerBackend, recipe: ImageRecipe) -> str:
    return built(backend, recipe)


def spec(image: str, *mounts: Mount, limits: ResourceLimits = SMALL) -> SandboxSpec:
    return SandboxSpec(mounts=mounts, workdir="/srv", limits=limits, image=image)


def run(
    backend: DockerBackend, given: SandboxSpec, *scripts: str, export: Path | None = None
) -> list[CommandEnd]:
    """Run scripts in one sandbox, then export it."""

    async def main() -> list[CommandEnd]:
        async with backend.open(given) as sandbox:
            ends = [await _shell(sandbox, script) for script in scripts]
            if export is not None:
                await sandbox.export(export, exclude=["/srv/left out"])
            return ends

    return asyncio.run(main())


async def _shell(sandbox: ImageSandbox, script: str) -> CommandEnd:
    return await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=30))


def entries(file: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(file) as tar:
        return {entry.name: entry for entry in tar}


def images(name: str) -> Sequence[dict[str, object]]:
    async def ask() -> list[dict[str, object]]:
        async with DockerEngine.connect() as engine:
            query = {"filters": f'{{"reference": ["{name}"]}}'}
            listed: list[dict[str, object]] = await engine.call(
                "GET", "/images/json", query=query
            )
            return listed

    return run_in_own_loop(ask)


def test_an_image_is_built_without_a_registry_and_only_once(
    backend: DockerBackend, recipe: ImageRecipe, image: str
) -> None:
    assert image.startswith("assay-task:")
    (listed,) = images(image)
    assert listed["Labels"] == {"assay": "task"}
    assert built(backend, recipe) == image
    assert images(image) == [listed]
    where_it_says = replace(spec(image), workdir="")
    (end,) = run(backend, where_it_says, "cat given built; echo $GREETING; pwd; id -u")
    assert end.output.split() == [b"for", b"the", b"image", b"built", b"hello", b"/srv", b"0"]


@pytest.mark.parametrize("change", ["context", "arguments", "base", "network"])
def test_different_content_gives_a_different_image(
    backend: DockerBackend,
    recipe: ImageRecipe,
    image: str,
    change: str,
    base: Path,
    tmp_path: Path,
) -> None:
    if change == "context":
        (recipe.context / "given").write_text("something else\n")
    elif change == "arguments":
        recipe = replace(recipe, arguments={"UNUSED": "1", "BASE": "debian:12"})
    elif change == "base":
        other = shutil.copytree(base, tmp_path / "other")
        (other / "srv" / "more").touch()
        recipe = replace(recipe, base_images={"debian:12": str(other)})
    else:
        recipe = replace(recipe, network=True)
    assert built(backend, recipe) != image


def test_files_are_copied_with_the_requested_mode(
    backend: DockerBackend, recipe: ImageRecipe
) -> None:
    with (recipe.context / "Dockerfile").open("a") as file:
        file.write("COPY --chmod=711 given /srv/program\nCOPY . /srv/all\n")
    (end,) = run(backend, spec(built(backend, recipe)), "ls -l given program; ls all")
    given, program, *names = end.output.decode().splitlines()
    assert given.startswith("-rw-r--r--")
    assert program.startswith("-rwx--x--x")
    assert names == ["Dockerfile", "given"]


def test_missing_base_image_is_reported_before_the_build(
    backend: DockerBackend, recipe: ImageRecipe
) -> None:
    with pytest.raises(UsageError, match=r"'debian:12' is not in the engine.*--base-image"):
        built(backend, replace(recipe, base_images={}))
    with pytest.raises(UsageError, match=r"'no-such' \(debian:12\) is not in the engine"):
        built(backend, replace(recipe, base_images={"debian:12": "no-such"}))


def test_failed_build_step_shows_its_output(
    backend: DockerBackend, recipe: ImageRecipe
) -> None:
    with (recipe.context / "Dockerfile").open("a") as file:
        file.write("RUN echo the reason; false-command\n")
    with pytest.raises(SandboxUnavailable, match=r"(?s)non-zero code: 127.*the reason"):
        built(backend, recipe)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("VOLUME /data", "volumes"),
        ("RUN --mount=type=cache,target=/x true", "mount"),
        ("HOPE", "HOPE"),
    ],
)
def test_unsupported_instruction_is_rejected_by_name(
    backend: DockerBackend, recipe: ImageRecipe, line: str, named: str
) -> None:
    with (recipe.context / "Dockerfile").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UsageError, match=f"(?i){named}"):
        built(backend, recipe)


def test_a_build_has_no_network(backend: DockerBackend, recipe: ImageRecipe) -> None:
    with (recipe.context / "Dockerfile").open("a") as file:
        file.write("RUN cat /proc/net/dev > /srv/devices\n")
    image = built(backend, recipe)
    (end,) = run(backend, spec(image), "cat devices")
    assert b"lo:" in end.output
    assert b"eth" not in end.output


def test_changes_are_exported_and_applied_to_a_new_sandbox(
    backend: DockerBackend, image: str, tmp_path: Path
) -> None:
    (tmp_path / "mounted").mkdir()
    mount = Mount(tmp_path / "mounted", "/srv/mounted", writable=True)
    layer = tmp_path / "layer.tar"
    script = """
        echo changed > given; rm built; rm -r old
        mkdir new; echo 1 > new/one; ln new/one new/two
        ln -s given link; mkdir 'left out'; touch 'left out/x' mounted/seen; chmod 700 new/one
        echo kept > /home/coder/file; sleep 1000 &
    """
    (end,) = run(backend, spec(image, mount), script, export=layer)
    assert found(end) == {"left_processes"}
    assert (tmp_path / "mounted" / "seen").exists()
    there = entries(layer)
    assert {*there} == {
        *("srv/given", "srv/.wh.built", "srv/.wh.old", "srv/new", "srv/new/one", "srv/new/two"),
        *("srv/link", "home/coder/file"),
    }
    assert there["srv/link"].issym()
    assert there["srv/new/one"].mode == 0o700
    fresh = replace(spec(image), layer=layer)
    look = "cat given new/two link /home/coder/file; ls"
    more = "rm new/two; echo again > built; rm /home/coder/file"
    second = tmp_path / "second.tar"
    ends = run(backend, fresh, look, more, export=second)
    assert ends[0].output.split()[:4] == [b"changed", b"1", b"changed", b"kept"]
    assert ends[0].output.split()[4:] == [b"given", b"link", b"new"]
    # All that differs from the image, by whichever sandbox.
    names = {*entries(second)}
    assert {"srv/given", "srv/built", "srv/.wh.old", "srv/new/one"} <= names
    assert not names & {"srv/.wh.built", "srv/new/two", "home/coder/file"}
    assert not leftovers()
    assert not images("assay-layer")


def test_sandbox_never_changes_its_image(backend: DockerBackend, image: str) -> None:
    run(backend, spec(image), "rm -r /srv/*")
    (end,) = run(backend, spec(image), "cat built")
    assert end.output == b"built\n"


def test_writes_in_an_image_are_limited(backend: DockerBackend, image: str) -> None:
    fill = "i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero > /srv/$i || exit 3; done"
    (end,) = run(backend, spec(image), fill)
    assert "disk_limit" in found(end)
    assert not end.timed_out


@pytest.mark.parametrize(("user", "number"), [("coder", b"1000"), ("1234", b"1234")])
def test_commands_run_as_the_requested_user(
    backend: DockerBackend, image: str, user: str, number: bytes
) -> None:
    (end,) = run(backend, replace(spec(image), user=user), "id -u; touch /srv/x")
    assert end.output.startswith(number)
    assert end.exit_code != 0


def test_image_root_has_rights_only_inside_the_image(
    backend: DockerBackend, image: str
) -> None:
    look = "while read name value; do case $name in CapEff:) echo $value;; esac; done"
    ends = run(
        backend,
        spec(image),
        f"{look} < /proc/self/status",
        "sleep 100 & kill -9 -1; sleep 5",
        "echo again",
    )
    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID, and no more
    assert ends[0].output == b"00000000000000db\n"
    (end,) = run(backend, replace(spec(image), user="coder"), f"{look} < /proc/self/status")
    assert end.output == b"0000000000000000\n"
    assert found(ends[1]) == {"supervisor_killed"}
    assert ends[1].exit_code == 137
    assert ends[1].seconds < 5
    assert ends[2].output == b"again\n"
    assert not leftovers()


def test_missing_image_is_reported(backend: DockerBackend) -> None:
    with pytest.raises(SandboxUnavailable, match="does not have the image 'assay-task:gone'"):
        run(backend, spec("assay-task:gone"), "true")
