"""Images that are built without an engine, and sandboxes that start from them."""

import asyncio
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from assay.bench.sandboxes.image_roots import CopiedRoot, OverlaidRoot, overlays
from assay.bench.sandboxes.images import images_folder
from assay.bench.sandboxes.layers import unpack_layer, write_layer
from assay.bench.seams import (
    Command,
    CommandEnd,
    ImageBackend,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    SandboxSpec,
)
from assay.errors import SandboxUnavailable, UsageError

from .boxes import MARK, found, leftovers, usable
from .tasks import write

pytestmark = pytest.mark.bench
SMALL = ResourceLimits(memory_mb=128, processes=24, disk_mb=32)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has users in a sandbox")


@pytest.fixture
def backend(image_cache: Path) -> ImageBackend:
    return usable(None)


def built(
    backend: ImageBackend,
    folder: Path,
    root: Path,
    files: Mapping[str, str],
    arguments: Mapping[str, str] | None = None,
) -> str:
    write(folder, dict(files))
    bases = {"base:1": str(root)}
    recipe = ImageRecipe(context=folder, base_images=bases, arguments=arguments or {})
    return asyncio.run(backend.build(recipe))


def ran(
    backend: ImageBackend,
    image: str,
    *scripts: str,
    layer: Path | None = None,
    target: Path | None = None,
    user: str | None = None,
    mounts: tuple[Mount, ...] = (),
    exclude: tuple[str, ...] = (),
) -> CommandEnd:
    """Run scripts in one sandbox, export it, and give how the last one ended."""
    spec = SandboxSpec(
        mounts=mounts, workdir="", limits=SMALL, image=image, layer=layer, user=user
    )

    async def main() -> CommandEnd:
        async with backend.open(spec) as opened:
            sandbox = cast(ImageSandbox, opened)
            for script in scripts:
                end = await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60))
            if target is not None:
                await sandbox.export(target, exclude=exclude)
            return end

    return asyncio.run(main())


def names(layer: Path) -> list[str]:
    with tarfile.open(layer) as tar:
        return sorted(member.name for member in tar if not member.isdir())


def test_every_instruction_does_what_it_says(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    dockerfile = """\
ARG NAME=base
FROM ${NAME}:1
ARG WHO=nobody
ENV GREETING="hello $WHO" PATH=/opt/bin:$PATH
WORKDIR /srv
WORKDIR app
COPY one.txt two.txt ./
COPY --chmod=600 folder /data
COPY one.txt renamed.txt
ADD files.tar.gz /unpacked/
RUN echo "$GREETING in $(pwd)" > said.txt && cat one.txt >> said.txt
RUN ["sh", "-c", "echo list > list.txt"]
"""
    files = {"Dockerfile": dockerfile, "one.txt": "1\n", "two.txt": "2\n"}
    write(tmp_path / "context", {**files, "folder/deep/three.txt": "3\n"})
    with tarfile.open(tmp_path / "context/files.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "context/one.txt", "packed.txt")
    image = built(backend, tmp_path / "context", image_root, files, arguments={"WHO": "Ada"})
    end = ran(
        backend,
        image,
        "pwd; cat said.txt list.txt renamed.txt /data/deep/three.txt /unpacked/packed.txt; "
        "ls -ld /data/deep/three.txt | cut -c1-10; echo $GREETING",
        user="0",
    )
    lines = end.output.decode().split("\n")
    assert lines[:7] == ["/srv/app", "hello Ada in /srv/app", "1", "list", "1", "3", "1"]
    assert "hello Ada" in lines


def test_the_same_content_is_built_once_and_another_is_built_anew(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    files = {"Dockerfile": "FROM base:1\nCOPY a .\nRUN cat a > /made\n", "a": "1"}
    first = built(backend, tmp_path / "x", image_root, files)
    when = (images_folder() / first / "image.json").stat().st_mtime_ns
    assert built(backend, tmp_path / "y", image_root, files) == first
    assert (images_folder() / first / "image.json").stat().st_mtime_ns == when
    assert built(backend, tmp_path / "z", image_root, {**files, "a": "2"}) != first


def test_a_base_may_be_a_tar_file(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    packed = tmp_path / "base.tar"
    subprocess.run(["tar", "-C", str(image_root), "-cf", str(packed), "."], check=True)
    image = built(backend, tmp_path / "x", packed, {"Dockerfile": "FROM base:1\nRUN id\n"})
    assert ran(backend, image, "id -u").output == b"0\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"Dockerfile": "FROM other:2\n"}, "base image 'other:2' is not here.*--base-image"),
        ({"Dockerfile": "FROM base:1\nCOPY missing /x\n"}, "there is no 'missing'"),
        ({"Dockerfile": "FROM base:1\nCOPY ../up /x\n"}, "leads out of the folder"),
        ({"Dockerfile": "FROM base:1\nADD https://a.org/x /x\n"}, "cannot be honoured"),
        ({"Dockerfile": "FROM base:1\n", ".dockerignore": "x"}, r"\.dockerignore"),
        ({"Dockerfile": "FROM base:1\nUSER bob\nRUN id\n"}, "no user 'bob'; it has: root, ada"),
    ],
)
def test_what_cannot_be_built_is_refused(
    backend: ImageBackend,
    tmp_path: Path,
    image_root: Path,
    files: dict[str, str],
    said: str,
) -> None:
    with pytest.raises(UsageError, match=said):
        built(backend, tmp_path / "x", image_root, files)


def test_a_link_in_the_context_copies_nothing_of_this_machine(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/link").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="there is no 'link'"):
        built(
            backend, tmp_path / "x", image_root, {"Dockerfile": "FROM base:1\nCOPY link /x\n"}
        )


def test_a_run_that_fails_says_what_it_printed_and_leaves_no_image(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    files = {"Dockerfile": "FROM base:1\nRUN echo broken && exit 3\n"}
    before = set(images_folder().iterdir()) if images_folder().is_dir() else set()
    with pytest.raises(SandboxUnavailable, match=r"Dockerfile:2: RUN .* code 3(.|\n)*broken"):
        built(backend, tmp_path / "x", image_root, files)
    left = [path for path in images_folder().iterdir() if path not in before]
    assert not [path for path in left if path.name.startswith(".making")]
    assert not leftovers()


def test_what_a_killed_build_left_is_removed_by_the_next(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    left = images_folder() / ".making-killed"
    write(left, {"lock": "", "upper/file": "x"})
    built(backend, tmp_path / "x", image_root, {"Dockerfile": "FROM base:1\nRUN echo swept\n"})
    assert not left.exists()


def test_building_reaches_no_network_and_nothing_of_this_machine(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    script = "cat /proc/net/dev > /devices; ls / > /top; ls /home > /homes"
    files = {"Dockerfile": f"FROM base:1\nRUN {script}\n"}
    image = built(backend, tmp_path / "x", image_root, files)
    end = ran(backend, image, "cat /devices /homes")
    assert b"eth" not in end.output
    assert end.output.endswith(b"ada\n")


def test_changes_are_exported_and_come_back_over_the_image(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    made = "RUN mkdir -p gone/in kept; echo a > kept/a"
    files = {"Dockerfile": f"FROM base:1\nWORKDIR /app\n{made}\n"}
    image = built(backend, tmp_path / "x", image_root, files)
    layer = tmp_path / "layer.tar"
    change = (
        "echo new > new.txt; ln -s new.txt link; ln new.txt hard; echo b >> kept/a; "
        "rm -r gone; rm -r kept; mkdir kept; echo c > kept/c; mkdir -p /tests; "
        "echo t > /tests/t; chmod 750 new.txt; mkdir /mounted/in; echo m > /mounted/in/m"
    )
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    ran(
        backend,
        image,
        change,
        target=layer,
        exclude=("/tests",),
        mounts=(Mount(mounted, "/mounted", writable=True),),
    )
    assert names(layer) == [
        *(
            "app/.wh.gone",
            "app/hard",
            "app/kept/.wh.a",
            "app/kept/c",
            "app/link",
            "app/new.txt",
        ),
    ]
    end = ran(
        backend, image, "cat link hard kept/*; ls; ls -l new.txt | cut -c1-10", layer=layer
    )
    shown = end.output.decode().split()
    assert shown[:8] == ["new", "new", "c", "hard", "kept", "link", "new.txt", "-rwxr-x---"]
    untouched = ran(backend, image, "ls; cat kept/a").output.decode().split()
    assert untouched == ["gone", "kept", "a"], "the image itself is as it was"


def test_a_second_export_has_what_the_first_layer_deleted(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    image = built(
        backend, tmp_path / "x", image_root, {"Dockerfile": "FROM base:1\nRUN echo a > /a\n"}
    )
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    ran(backend, image, "rm /a; echo b > /b", target=one)
    ran(backend, image, "echo c > /c", layer=one, target=two)
    assert names(two) == [".wh.a", "b", "c"]


@as_root
def test_commands_run_as_the_user_that_is_named(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    files = {"Dockerfile": "FROM base:1\nRUN mkdir /own && chown ada:team /own\nUSER ada\n"}
    image = built(backend, tmp_path / "x", image_root, files)
    told = ran(backend, image, "id -u; id -G; echo $HOME; touch /own/a && echo may; touch /b")
    lines = told.output.decode().split("\n")
    assert lines[:4] == ["1234", "1234 77", "/home/ada", "may"]
    assert "Permission denied" in lines[4]
    assert ran(backend, image, "id -u", user="0").output == b"0\n"
    with pytest.raises(UsageError, match="no user 'eve'"):
        ran(backend, image, "id", user="eve")


def test_root_of_an_image_is_contained(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    image = built(backend, tmp_path / "x", image_root, {"Dockerfile": "FROM base:1\n"})
    tried = (
        "mount -t tmpfs none /tmp && echo mounted; unshare --user true && echo nested; "
        f"cat {tmp_path}/x/Dockerfile && echo saw; cat /proc/net/dev | grep -c eth"
    )
    end = ran(backend, image, tried)
    assert not {b"mounted", b"nested", b"saw"} & set(end.output.split())
    assert end.output.split()[-1] == b"0"
    left = ran(backend, image, f"sh -c 'sleep 1000; echo {MARK}' & echo started")
    assert found(left) == {"left_processes"}
    assert not leftovers(MARK)


def test_the_limits_hold_on_an_image(
    backend: ImageBackend, tmp_path: Path, image_root: Path
) -> None:
    image = built(backend, tmp_path / "x", image_root, {"Dockerfile": "FROM base:1\n"})
    eats = "python3 -c \"x = b'x' * 10**9\""
    assert "memory_limit" in found(ran(backend, image, eats))
    writes = (
        "for i in 1 2 3 4 5 6; do python3 -c \"open('/f$i', 'wb').write(b'x' * 2**24)\"; done"
    )
    assert "disk_limit" in found(ran(backend, image, writes))


@pytest.mark.parametrize("kind", [OverlaidRoot, CopiedRoot])
def test_both_ways_to_have_a_root_see_the_same_changes(
    tmp_path: Path, kind: type[OverlaidRoot] | type[CopiedRoot]
) -> None:
    if kind is OverlaidRoot and not overlays():
        pytest.skip("no overlays here")
    image = tmp_path / "image"
    write(image, {"etc/a": "a", "etc/b": "b", "usr/c": "c", "old/x": "x", "old/y": "y"})
    (tmp_path / "box").mkdir()
    root = kind([image], tmp_path / "box", None)
    script = (
        "cd $0 && echo n > etc/n && echo B > etc/b && rm usr/c && rm -r old && mkdir old && "
        "echo z > old/z && ln -s /etc link && mkdir -p new/in"
    )
    subprocess.run([*root.prefix, "sh", "-c", script, str(root.path)], check=True)
    target = tmp_path / "layer.tar"
    write_layer(target, root.changes(), ())
    wanted = ["etc/b", "etc/n", "link", "old/.wh.x", "old/.wh.y", "old/z", "usr/.wh.c"]
    assert names(target) == wanted
    with tarfile.open(target) as tar:
        assert "new/in" in tar.getnames()


def test_a_layer_does_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        for name in ("a/b", "../c", "/d", "e/../../f"):
            tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "root").mkdir()
    unpack_layer(evil, tmp_path / "root", lambda place: None)
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["a", "d"]
    assert not (tmp_path / "c").exists()
