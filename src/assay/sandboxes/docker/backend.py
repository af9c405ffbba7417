"""Docker sandboxes: one container each, in which commands are started one after another.

The engine must run on this machine, because its processes are inspected from here. Each
container has a folder that is locked while its owner is alive, so that the containers of a
killed assay can be distinguished from those in use.
"""

import asyncio
import fcntl
import json
import os
import platform
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from assay.core.aio import finish_despite_cancellation, run_in_own_loop
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    Enforcement,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    SandboxSpec,
)
from assay.sandboxes.cgroups import remove_groups
from assay.sandboxes.docker.container import FOLDER_LABEL, MACHINE_LABEL, Container
from assay.sandboxes.docker.engine import DockerEngine
from assay.sandboxes.docker.images import LABEL, build_image, find_image
from assay.sandboxes.docker.sandbox import DockerSandbox
from assay.sandboxes.egress import describe_network
from assay.sandboxes.folders import (
    OWN_DISK,
    WATCHED_DISK,
    DiskLimit,
    describe_disk_limit,
    enforcement_with_disk,
    new_folder,
    remove_locked,
    sweep_folders,
)
from assay.sandboxes.host_user import lend_folders, return_folders
from assay.sandboxes.roots import USER_ID, prepare, writable_folders


class DockerBackend:
    """Runs commands in Docker containers, with all limits enforced."""

    name = "docker"

    def __init__(self) -> None:
        """Use the engine of `$DOCKER_HOST`, or the default one of this machine."""
        self._is_swept = False

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Describe how these limits are enforced here.

        Raises:
            SandboxUnavailable: A limit cannot be enforced, or no engine responds.
        """
        _check_platform()

        async def describe() -> Enforcement:
            async with DockerEngine.connect() as engine:
                return await _describe_enforcement(engine, limits)

        return run_in_own_loop(describe)

    async def build(self, recipe: ImageRecipe) -> str:
        """Build an image unless the engine has it; return its name.

        Raises:
            UsageError: A base image is neither mapped nor present, or the image has volumes.
            SandboxUnavailable: The build failed; with the end of its output.
        """
        async with DockerEngine.connect() as engine:
            return await build_image(
                engine, recipe, network=await _choose_network(engine, recipe.network)
            )

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ImageSandbox]:
        """Open a container, which is removed on exit."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        _check_platform()
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"cannot mount {mount.source}: it does not exist")
        async with DockerEngine.connect() as engine:
            enforcement = await _describe_enforcement(engine, spec.limits)
            enforcement = enforcement_with_disk(spec.disk, enforcement)
            if not self._is_swept:
                self._is_swept = True
                await _sweep(engine)
            folder, lock = new_folder()
            container = Container(engine, folder)
            writable = [mount.source for mount in spec.mounts if mount.writable]
            try:
                prepare(folder, spec)
                user = await _choose_user(engine, spec)
                if spec.image is None:
                    writable += writable_folders(folder, spec).values()
                    disk = DiskLimit(writable, spec.limits.disk_mb, disk=spec.disk)
                    await asyncio.to_thread(lend_folders, writable, spec.mounts, _user_id())
                else:
                    disk = DiskLimit(writable, spec.limits.disk_mb, container.layer_bytes)
                    _make_writable(spec.mounts)
                await container.create(spec)
                await disk.begin()
                yield DockerSandbox(spec, enforcement, container, user, disk)
            finally:
                await finish_despite_cancellation(_clean_up(container, folder, lock, writable))


async def _clean_up(
    container: Container, folder: Path, lock: int, writable: Sequence[Path]
) -> None:
    try:
        await container.remove()
        await asyncio.to_thread(return_folders, writable)
        await asyncio.to_thread(remove_locked, folder)
    finally:
        os.close(lock)


async def _describe_enforcement(engine: DockerEngine, limits: ResourceLimits) -> Enforcement:
    info = await engine.call("GET", "/info")
    _check_engine(info)
    if limits.network and os.geteuid() != 0:
        raise SandboxUnavailable(
            "a network in a Docker sandbox needs assay to run as root, because its proxy "
            "enters the container's network; run as root, use --sandbox bubblewrap, or leave "
            "--allow-network out"
        )
    mechanism = f"docker, cgroup v{info.get('CgroupVersion', '1')}"
    disk = await asyncio.to_thread(describe_disk_limit)
    if disk == OWN_DISK:
        disk += f"; on the image of a task {WATCHED_DISK}"
    return Enforcement(
        backend=DockerBackend.name,
        memory=mechanism,
        processes=mechanism,
        cpus=mechanism,
        disk=disk,
        network=describe_network(limits.network),
    )


def _check_platform() -> None:
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"sandbox 'docker' needs Linux, and this is {sys.platform}, where the engine runs "
            "in a virtual machine whose processes cannot be followed from here; run assay in a "
            "Linux machine, or without protection, only with agents and tasks you trust: "
            "--sandbox none"
        )


def _check_engine(info: Mapping[str, Any]) -> None:
    """Raise SandboxUnavailable if the engine cannot enforce all limits or be inspected."""
    if info.get("OSType") != "linux":
        raise SandboxUnavailable(
            f"Docker's engine runs {info.get('OSType')} containers, but Linux containers are "
            "required; switch it to Linux containers"
        )
    options = {option.split(",")[0] for option in info.get("SecurityOptions") or ()}
    for option in ("name=rootless", "name=userns"):
        if option in options:
            raise SandboxUnavailable(
                f"Docker's engine maps the users of containers ({option}), so that files "
                "cannot be shared with them; use an engine without it, or --sandbox bubblewrap"
            )
    for key, word in (
        *(("MemoryLimit", "memory"), ("PidsLimit", "process")),
        ("CpuCfsQuota", "CPU"),
    ):
        if not info.get(key):
            raise SandboxUnavailable(
                f"Docker's engine cannot enforce the {word} limit here ({key} in docker info); "
                "the kernel must have that cgroup controller"
            )


async def _choose_network(engine: DockerEngine, allowed: bool) -> str:
    """Return the network mode of a build: `none`, `bridge`, or `host` without a bridge."""
    if not allowed:
        return "none"
    names = {network["Name"] for network in await engine.call("GET", "/networks")}
    return "bridge" if "bridge" in names else "host"


async def _choose_user(engine: DockerEngine, spec: SandboxSpec) -> str:
    """Return the user that runs commands."""
    if spec.image is None:
        return f"{_user_id()}:{_group_id()}"
    image = await find_image(engine, spec.image)
    if image is None:
        raise SandboxUnavailable(
            f"the engine does not have the image {spec.image!r}; build it again"
        )
    return spec.user or image["Config"].get("User") or "0:0"


def _user_id() -> int:
    return os.getuid() or USER_ID


def _group_id() -> int:
    return os.getgid() if os.getuid() else USER_ID


def _make_writable(mounts: Sequence[Mount]) -> None:
    """Make mounts writable for all, because users of an image are unknown here."""
    for mount in mounts:
        if mount.writable and mount.source.is_dir():
            mount.source.chmod(0o777)


async def _sweep(engine: DockerEngine) -> None:
    """Remove the containers and folders of sandboxes whose owner is dead."""
    query = {"all": "1", "filters": json.dumps({"label": [f"{LABEL}=sandbox"]})}
    for found in await engine.call("GET", "/containers/json", query=query):
        labels = found["Labels"]
        folder = Path(labels[FOLDER_LABEL])
        if labels[MACHINE_LABEL] == platform.node() and not _is_locked(folder):
            await Container(engine, folder, found["Id"]).remove()
    await asyncio.to_thread(sweep_folders, remove_groups)


def _is_locked(folder: Path) -> bool:
    """Return whether the owner of a folder is alive."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:  # of another user
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
