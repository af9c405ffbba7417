"""The container of one sandbox: made, started, killed and removed.

Its first process is ours, of a user that commands do not have. It waits for the end of its
standard input, which comes when assay closes it or dies; the kernel then kills all others.
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
from assay.sandboxes.cgroups import GroupOfProcess
from assay.sandboxes.docker.engine import DockerEngine, EngineStream
from assay.sandboxes.docker.images import LABEL, root_image
from assay.sandboxes.docker.layers import deleted_in, put_layer, without_deleted
from assay.sandboxes.egress import proxy_variables
from assay.sandboxes.procfs import descendants, is_alive
from assay.sandboxes.roots import ENVIRONMENT, hidden_paths, root_mounts

_KEEPER_ID: Final = 64_999
"""The user of our own process in a container, where no command has it."""
_PATIENCE_S: Final = 30.0
_KEEPER: Final = ("/bin/sh", "-c", "exec 3<&0; (read end <&3) & wait $!")
"""Ends with its standard input; waiting, it also buries those who have no parent any more."""
_OWN_PROCESSES: Final = 2
"""Those of ours, which the limit would count."""
FOLDER_LABEL: Final = "assay.folder"
MACHINE_LABEL: Final = "assay.machine"
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    *("/sys/devices/virtual/powercap", "/sys/firmware"),
)
"""What Docker itself hides; a list of ours replaces its own."""
_ROOT_OF_AN_IMAGE: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID")
"""What root may do to the files and users of its image; no other user has any of it."""
_COUNT_IPV6: Final = {"net.ipv6.conf.all.disable_ipv6": "0"}
"""Docker turns it off where there is no network, and attempts would not be counted."""


class RunningContainer(NamedTuple):
    """A container that runs."""

    init: int
    """Its first process, as this machine numbers it."""
    waiting: int
    """The child of that, which waits."""
    group: GroupOfProcess
    keeper: EngineStream
    """Our end of the standard input that keeps it alive."""

    @property
    def is_kept(self) -> bool:
        """Whether both of ours live: without the one that waits, the first is about to end."""
        return is_alive(self.waiting) and is_alive(self.init)

    def processes(self) -> list[int]:
        """All that live in it, but ours."""
        ours = (self.init, self.waiting)
        return [pid for pid in self.group.processes() if pid not in ours and is_alive(pid)]


class Container:
    """The container of one sandbox, named as its folder is."""

    def __init__(self, engine: DockerEngine, folder: Path, number: str | None = None) -> None:
        self.engine = engine
        self._folder = folder
        self._id = number
        self.deleted: list[str] = []
        """What the layer that it began with had deleted."""
        self._running: RunningContainer | None = None
        self._may_run = False

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/containers/{self._id or self._folder.name}"

    async def create(self, spec: SandboxSpec) -> None:
        """Make it; nothing runs yet."""
        labels = {
            LABEL: "sandbox",
            FOLDER_LABEL: str(self._folder),
            MACHINE_LABEL: platform.node(),
        }
        info = await self.engine.call("GET", "/info")
        image = spec.image or await root_image(self.engine)
        if spec.layer is not None:
            self.deleted = await asyncio.to_thread(deleted_in, spec.layer)
        if self.deleted:
            image, without = self._own_image, image
            await without_deleted(self.engine, without, self.deleted, image)
        made = await self.engine.call(
            "POST",
            "/containers/create",
            query={"name": self._folder.name},
            body={
                **_creation(spec, self._folder, image, info["NCPU"]),
                "Labels": labels,
            },
        )
        self._id = made["Id"]
        if spec.layer is not None:
            targets = [mount.target for mount in spec.mounts]
            await put_layer(self.engine, self.path, spec.layer, exclude=targets)

    @property
    def _own_image(self) -> str:
        """The image that it alone has, if it needs one."""
        return f"assay-layer:{self._folder.name}"

    async def running(self) -> RunningContainer:
        """Start it, unless it runs."""
        if self._running is None:
            keeper = await self.engine.attach(f"{self.path}/attach?stream=1&stdin=1")
            self._may_run = True
            try:
                await self.engine.call("POST", f"{self.path}/start", accept=(304,))
                state = (await self.engine.call("GET", f"{self.path}/json"))["State"]
                init = int(state["Pid"])
                group = self._group(init)
                waiting = await self._waiting(init)
                self._running = RunningContainer(init, waiting, group, keeper)
            except BaseException:
                keeper.close()
                raise
        return self._running

    async def _waiting(self, init: int) -> int:
        """The only other process, before there was any command."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (below := descendants(init)):
            if time.monotonic() > deadline or not is_alive(init):
                raise SandboxUnavailable(
                    "a container ended as soon as it was started; its image must have /bin/sh"
                )
            await asyncio.sleep(0.002)
        return below[0]

    def _group(self, pid: int) -> GroupOfProcess:
        try:
            group = GroupOfProcess(pid)
        except (OSError, KeyError):  # no such process, or no such group here
            group = None
        if group is None or (self._id or "") not in group.name:
            raise SandboxUnavailable(
                "the processes of Docker's engine cannot be seen from here; assay must run on "
                "the machine of the engine, or in a container with --pid=host --cgroupns=host"
            )
        return group

    async def kill(self) -> None:
        """Kill all that runs in it, and wait until it is dead."""
        running, self._running = self._running, None
        if not self._may_run:
            return
        await self.engine.call("POST", f"{self.path}/kill", accept=(404, 409))
        await self.engine.call("POST", f"{self.path}/wait", accept=(404,))
        self._may_run = False
        if running is not None:
            running.keeper.close()

    async def remove(self) -> None:
        """Remove it, whatever runs in it."""
        running, self._running = self._running, None
        query = {"force": "1", "v": "1"}
        await self.engine.call("DELETE", self.path, query=query, accept=(404, 409))
        await self.engine.call("DELETE", f"/images/{self._own_image}", accept=(404, 409))
        if running is not None:
            running.keeper.close()

    async def layer_bytes(self) -> int:
        """What was written into its copy of the image."""
        found = await self.engine.call("GET", f"{self.path}/json", query={"size": "1"})
        return int(found.get("SizeRw") or 0)


def _creation(spec: SandboxSpec, folder: Path, image: str, cpus: int) -> dict[str, Any]:
    """What the engine is asked for."""
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
        # Root of an image gets its rights from the first process.
        "User": "0:0" if spec.image else f"{_KEEPER_ID}:{_KEEPER_ID}",
        "Env": environment_list(environment),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "Sysctls": _COUNT_IPV6 if _has_ipv6() else {},
            "CapDrop": ["ALL"],
            "CapAdd": list(_ROOT_OF_AN_IMAGE) if spec.image else [],
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


def environment_list(environment: Mapping[str, str]) -> list[str]:
    """Variables as the engine takes them."""
    return [f"{name}={value}" for name, value in environment.items()]
