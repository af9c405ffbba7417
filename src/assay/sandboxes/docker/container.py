"""The container of one sandbox: create, start, kill and remove it.

Its first process, the keeper, has a user that commands do not have. It ends with its standard
input, when assay closes it or dies; the kernel then kills all other processes.
"""

import asyncio
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import MIB, SandboxSpec
from assay.sandboxes.cgroups import ProcessCgroup
from assay.sandboxes.docker.engine import DockerEngine, EngineStream
from assay.sandboxes.docker.images import LABEL, ensure_root_image
from assay.sandboxes.docker.layers import build_without, find_deleted, put_layer
from assay.sandboxes.egress import proxy_variables
from assay.sandboxes.procfs import descendants, is_alive
from assay.sandboxes.roots import ENVIRONMENT, hidden_paths, root_mounts

_KEEPER_ID: Final = 64_999
"""User of the keeper, which no command has."""
_START_TIMEOUT_S: Final = 30.0
_KEEPER: Final = ("/bin/sh", "-c", "exec 3<&0; (read end <&3) & wait $!")
"""Ends with its standard input; waiting also reaps orphaned processes."""
_OWN_PROCESSES: Final = 2
"""Processes of the keeper, which the limit would count."""
FOLDER_LABEL: Final = "assay.folder"
MACHINE_LABEL: Final = "assay.machine"
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    *("/sys/devices/virtual/powercap", "/sys/firmware"),
)
"""Paths that Docker hides by default; this list replaces the default."""
_ROOT_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID")
"""Capabilities of root for the files and users of its image; other users have none."""
_ENABLE_IPV6: Final = {"net.ipv6.conf.all.disable_ipv6": "0"}
"""Docker disables IPv6 without a network, and attempts would not be counted."""


class RunningContainer(NamedTuple):
    """A running container."""

    init: int
    """Pid of its first process, on this machine."""
    waiting: int
    """Pid of that process's child, which waits."""
    group: ProcessCgroup
    keeper: EngineStream
    """Our end of the standard input that keeps it alive."""

    @property
    def is_kept(self) -> bool:
        """Whether both keeper processes are alive: the first one ends after the other."""
        return is_alive(self.waiting) and is_alive(self.init)

    def processes(self) -> list[int]:
        """Return all its live processes except the keeper."""
        keeper = (self.init, self.waiting)
        return [pid for pid in self.group.processes() if pid not in keeper and is_alive(pid)]


class Container:
    """The container of one sandbox, named after its folder."""

    def __init__(self, engine: DockerEngine, folder: Path, number: str | None = None) -> None:
        self.engine = engine
        self._folder = folder
        self._id = number
        self.deleted: list[str] = []
        """Paths deleted by the layer it started with."""
        self._running: RunningContainer | None = None
        self._may_run = False

    @property
    def path(self) -> str:
        """Path of the container in the API."""
        return f"/containers/{self._id or self._folder.name}"

    async def create(self, spec: SandboxSpec) -> None:
        """Create the container without starting it."""
        labels = {
            LABEL: "sandbox",
            FOLDER_LABEL: str(self._folder),
            MACHINE_LABEL: platform.node(),
        }
        info = await self.engine.call("GET", "/info")
        image = spec.image or await ensure_root_image(self.engine)
        if spec.layer is not None:
            self.deleted = await asyncio.to_thread(find_deleted, spec.layer)
        if self.deleted:
            image, base = self._own_image, image
            await build_without(self.engine, base, self.deleted, image)
        created = await self.engine.call(
            "POST",
            "/containers/create",
            query={"name": self._folder.name},
            body={
                **_make_request(spec, self._folder, image, info["NCPU"]),
                "Labels": labels,
            },
        )
        self._id = created["Id"]
        if spec.layer is not None:
            targets = [mount.target for mount in spec.mounts]
            await put_layer(self.engine, self.path, spec.layer, exclude=targets)

    @property
    def _own_image(self) -> str:
        """Name of an image for this container alone, if it needs one."""
        return f"assay-layer:{self._folder.name}"

    async def start(self) -> RunningContainer:
        """Start the container unless it is running."""
        if self._running is None:
            keeper = await self.engine.attach(f"{self.path}/attach?stream=1&stdin=1")
            self._may_run = True
            try:
                await self.engine.call("POST", f"{self.path}/start", accept=(304,))
                state = (await self.engine.call("GET", f"{self.path}/json"))["State"]
                init = int(state["Pid"])
                group = self._find_group(init)
                waiting = await self._find_waiting(init)
                self._running = RunningContainer(init, waiting, group, keeper)
            except BaseException:
                keeper.close()
                raise
        return self._running

    async def _find_waiting(self, init: int) -> int:
        """Return the only other process, before the first command."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (below := descendants(init)):
            if time.monotonic() > deadline or not is_alive(init):
                raise SandboxUnavailable(
                    "a container ended as soon as it was started; its image must have /bin/sh"
                )
            await asyncio.sleep(0.002)
        return below[0]

    def _find_group(self, pid: int) -> ProcessCgroup:
        try:
            group = ProcessCgroup(pid)
        except (OSError, KeyError):  # the process or its group does not exist here
            group = None
        if group is None or (self._id or "") not in group.name:
            raise SandboxUnavailable(
                "the processes of Docker's engine cannot be seen from here; assay must run on "
                "the machine of the engine, or in a container with --pid=host --cgroupns=host"
            )
        return group

    async def kill(self) -> None:
        """Kill all its processes, and wait until they are dead."""
        running, self._running = self._running, None
        if not self._may_run:
            return
        await self.engine.call("POST", f"{self.path}/kill", accept=(404, 409))
        await self.engine.call("POST", f"{self.path}/wait", accept=(404,))
        self._may_run = False
        if running is not None:
            running.keeper.close()

    async def remove(self) -> None:
        """Remove the container, even if processes are running."""
        running, self._running = self._running, None
        query = {"force": "1", "v": "1"}
        await self.engine.call("DELETE", self.path, query=query, accept=(404, 409))
        await self.engine.call("DELETE", f"/images/{self._own_image}", accept=(404, 409))
        if running is not None:
            running.keeper.close()

    async def layer_bytes(self) -> int:
        """Return the number of bytes written to its copy of the image."""
        found = await self.engine.call("GET", f"{self.path}/json", query={"size": "1"})
        return int(found.get("SizeRw") or 0)


def _make_request(spec: SandboxSpec, folder: Path, image: str, cpus: int) -> dict[str, Any]:
    """Return the request body that creates the container."""
    limits = spec.limits
    environment = {
        **({} if spec.image else ENVIRONMENT),
        **proxy_variables(limits.network),
        **spec.environment,
    }
    mounts = list(spec.mounts) if spec.image else root_mounts(folder, spec)
    masked = _MASKED if spec.image else (*_MASKED, "/sys", *hidden_paths(spec.mounts))
    return {
        "Image": image,
        "Entrypoint": list(_KEEPER),
        "Cmd": [],
        # Root of an image gets its capabilities from the first process.
        "User": "0:0" if spec.image else f"{_KEEPER_ID}:{_KEEPER_ID}",
        "Env": format_environment(environment),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "Sysctls": _ENABLE_IPV6 if _has_ipv6() else {},
            "CapDrop": ["ALL"],
            "CapAdd": list(_ROOT_CAPABILITIES) if spec.image else [],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": spec.image is None,
            "IpcMode": "private",
            "Memory": limits.memory_mb * MIB,
            "MemorySwap": limits.memory_mb * MIB,
            "PidsLimit": limits.processes + _OWN_PROCESSES,
            "NanoCpus": round(min(limits.cpus, cpus) * 1e9),
            "ShmSize": min(64, limits.disk_mb) * MIB,
            "Ulimits": [
                {"Name": "fsize", "Soft": limits.disk_mb * MIB, "Hard": limits.disk_mb * MIB},
                {"Name": "core", "Soft": 0, "Hard": 0},
            ],
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": os.path.realpath(mount.source),
                    "Target": mount.target,
                    "ReadOnly": not mount.writable,
                }
                for mount in mounts
            ],
            "MaskedPaths": list(masked),
            "LogConfig": {"Type": "none"},
        },
        "Hostname": "sandbox",
    }


def _has_ipv6() -> bool:
    return os.path.exists("/proc/sys/net/ipv6/conf/all/disable_ipv6")


def format_environment(environment: Mapping[str, str]) -> list[str]:
    """Format variables for the engine."""
    return [f"{name}={value}" for name, value in environment.items()]
