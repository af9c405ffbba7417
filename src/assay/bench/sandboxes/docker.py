"""Sandboxes by Docker: a container each, in which commands are started one after another.

The first process of a container is ours, of a user that commands do not have. It waits for the
end of its standard input, which comes when assay closes it or dies, and the kernel then kills
all others. A command is followed from outside, by /proc and its control group, so that it can
report nothing wrong; one that leaves processes behind has the container killed, and the next
command starts it again on the same files.
"""

import asyncio
import fcntl
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay._util.loops import run_apart
from assay.bench.sandboxes.cgroups import (
    GroupCounts,
    GroupOfProcess,
    limit_findings,
    remove_noted,
)
from assay.bench.sandboxes.disk import DiskLimit
from assay.bench.sandboxes.docker_engine import Engine, EngineStream
from assay.bench.sandboxes.docker_images import LABEL, build_image, has_image, root_image
from assay.bench.sandboxes.docker_layers import (
    deleted_in,
    export_layer,
    put_layer,
    without_deleted,
)
from assay.bench.sandboxes.folders import new_folder, remove_locked, sweep_folders
from assay.bench.sandboxes.limits import MIB
from assay.bench.sandboxes.processes import is_alive, names_of, parent, refused_connections
from assay.bench.sandboxes.roots import (
    ENVIRONMENT,
    USER_ID,
    WRITABLE,
    hidden_paths,
    prepare,
    root_mounts,
)
from assay.bench.seams import (
    Command,
    CommandEnd,
    Enforcement,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    SandboxSpec,
    TrialFinding,
)
from assay.errors import SandboxUnavailable

__all__ = ["DockerBackend"]

_KEEPER_ID: Final = 64_999
"""The user of our own process in a container; no command has it."""
_KEEPER: Final = ("/bin/sh", "-c", "exec 3<&0; (read end <&3) & wait $!")
"""Ends with its standard input; waiting, it also buries those who have no parent any more."""
_WRAPPED: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
"""Output and errors in one pipe, so that they come in their order."""
_OWN_PROCESSES: Final = 2
"""Those of ours, which the limit would count."""
_FOLDER_LABEL: Final = "assay.folder"
_MACHINE_LABEL: Final = "assay.machine"
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats"),
    *("/sys/devices/virtual/powercap", "/sys/firmware"),
)
"""What Docker itself hides; a list of ours replaces its own."""
_COUNT_IPV6: Final = {"net.ipv6.conf.all.disable_ipv6": "0"}
"""Docker turns it off where there is no network, and attempts would not be counted."""
_LOOK_S: Final = 0.05
_DISK_S: Final = 0.1
_GRACE_S: Final = 0.1
"""How long processes may take to end after the command that started them."""
_PATIENCE_S: Final = 30.0
"""How long what is killed may take to be gone."""


class DockerBackend:
    """Runs commands in containers of Docker's engine, with all limits held."""

    name = "docker"

    def __init__(self) -> None:
        """Use the engine that `$DOCKER_HOST` names, else that of this machine."""
        self._is_swept = False

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """By what these limits are held here.

        Raises:
            SandboxUnavailable: One of them cannot be, or no engine answers.
        """

        async def ask() -> Enforcement:
            async with Engine.connected() as engine:
                return await _enforcement(engine, limits)

        return run_apart(ask)

    async def build(self, recipe: ImageRecipe) -> str:
        """Build an image, unless the engine has it; its name.

        Raises:
            UsageError: A base image is neither mapped nor there, or the image has volumes.
            SandboxUnavailable: The build failed; with the end of what it printed.
        """
        async with Engine.connected() as engine:
            return await build_image(
                engine, recipe, network=await _network(engine, recipe.network)
            )

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ImageSandbox]:
        """A container, which is removed when it is left."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"{mount.source} is to be mounted and is not there")
        async with Engine.connected() as engine:
            enforcement = await _enforcement(engine, spec.limits)
            if not self._is_swept:
                self._is_swept = True
                await _sweep(engine)
            folder, lock = new_folder()
            container = _Container(engine, folder)
            given: list[Path] = []
            try:
                prepare(folder, network=spec.limits.network)
                user = await _user(engine, spec)
                if spec.image is None:
                    given += [mount.source for mount in spec.mounts if mount.writable]
                    given += [folder / name for name in WRITABLE]
                    await asyncio.to_thread(_hand_over, given, spec.mounts)
                else:
                    _let_write(spec.mounts)
                await container.create(spec, await _network(engine, spec.limits.network))
                disk = DiskLimit(
                    [mount.source for mount in spec.mounts if mount.writable]
                    + ([] if spec.image else [folder / name for name in WRITABLE]),
                    spec.limits.disk_mb,
                    *([container.layer_bytes] if spec.image else []),
                )
                await disk.begin()
                yield _DockerSandbox(spec, enforcement, container, user, disk)
            finally:
                await _finished(_clear_up(container, folder, lock, given))


async def _clear_up(
    container: "_Container", folder: Path, lock: int, given: Sequence[Path]
) -> None:
    try:
        await container.remove()
        await asyncio.to_thread(_take_back, given)
        await asyncio.to_thread(remove_locked, folder)
    finally:
        os.close(lock)


async def _finished(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end, even if whoever waits for it is cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


async def _enforcement(engine: Engine, limits: ResourceLimits) -> Enforcement:
    info = await engine.call("GET", "/info")
    _check_engine(info)
    held = f"docker, cgroup v{info.get('CgroupVersion', '1')}"
    network = await _network(engine, limits.network)
    return Enforcement(
        backend=DockerBackend.name,
        memory=held,
        processes=held,
        cpus=held,
        disk="watcher and RLIMIT_FSIZE",
        network={
            "none": "network namespace without a way out",
            "bridge": "allowed, by the bridge of the engine",
            "host": "allowed, that of this machine",
        }[network],
    )


def _check_engine(info: Mapping[str, Any]) -> None:
    """SandboxUnavailable if this engine cannot hold all limits, or not be looked at."""
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"an engine of Docker answers, but on {sys.platform} it runs in a virtual machine "
            "whose processes cannot be followed from here; run assay on Linux, or in that "
            "machine"
        )
    if info.get("OSType") != "linux":
        raise SandboxUnavailable(
            f"Docker's engine runs containers of {info.get('OSType')}, and those of linux are "
            "needed; switch it to Linux containers"
        )
    options = {option.split(",")[0] for option in info.get("SecurityOptions") or ()}
    for option in ("name=rootless", "name=userns"):
        if option in options:
            raise SandboxUnavailable(
                f"Docker's engine gives containers other users than this machine ({option}), "
                "so that files cannot be shared with them; use an engine without it, or "
                "--sandbox bubblewrap"
            )
    for key, word in (
        *(("MemoryLimit", "memory"), ("PidsLimit", "processes")),
        ("CpuCfsQuota", "CPUs"),
    ):
        if not info.get(key):
            raise SandboxUnavailable(
                f"Docker's engine cannot hold the limit on {word} here ({key} in docker info); "
                "the kernel must have that controller of control groups"
            )


async def _network(engine: Engine, allowed: bool) -> str:
    """The mode: none, that of the engine's bridge, or this machine's where it has no bridge."""
    if not allowed:
        return "none"
    names = {network["Name"] for network in await engine.call("GET", "/networks")}
    return "bridge" if "bridge" in names else "host"


async def _user(engine: Engine, spec: SandboxSpec) -> str:
    """Who runs commands."""
    if spec.image is None:
        return f"{_user_id()}:{_group_id()}"
    image = await has_image(engine, spec.image)
    if image is None:
        raise SandboxUnavailable(
            f"the engine has no image {spec.image!r} (any more); build it again"
        )
    return spec.user or image["Config"].get("User") or "0:0"


def _user_id() -> int:
    return os.getuid() or USER_ID


def _group_id() -> int:
    return os.getgid() if os.getuid() else USER_ID


def _hand_over(folders: Sequence[Path], mounts: Sequence[Mount]) -> None:
    """Let the user of the sandbox have what it may write; root's files are not for it else."""
    if os.getuid() != 0:
        return
    _change_owner(folders, _user_id(), _group_id())
    for mount in mounts:
        needed = 0o005 if mount.source.is_dir() else 0o004
        mode = mount.source.stat().st_mode
        if not mount.writable and mode & needed != needed:
            raise SandboxUnavailable(
                f"{mount.source} is to be mounted, and the user {USER_ID} of the sandbox may "
                "not read it; allow it: chmod o+rX"
            )


def _take_back(folders: Sequence[Path]) -> None:
    if os.getuid() == 0:
        _change_owner(folders, 0, 0)


def _change_owner(folders: Sequence[Path], user: int, group: int) -> None:
    """Of these and all below them; links are not followed."""
    if folders:
        paths = [os.path.realpath(folder) for folder in folders]
        command = ["chown", "-hR", f"{user}:{group}", "--", *paths]
        subprocess.run(command, check=False, capture_output=True)


def _let_write(mounts: Sequence[Mount]) -> None:
    """An image has users of its own, whom the folders of this machine do not know."""
    for mount in mounts:
        if mount.writable and mount.source.is_dir():
            mount.source.chmod(0o777)


async def _sweep(engine: Engine) -> None:
    """Remove the containers and folders of sandboxes whose owner is dead."""
    query = {"all": "1", "filters": f'{{"label": ["{LABEL}=sandbox"]}}'}
    for found in await engine.call("GET", "/containers/json", query=query):
        labels = found["Labels"]
        if labels.get(_MACHINE_LABEL) == platform.node() and not _is_locked(
            Path(labels.get(_FOLDER_LABEL, ""))
        ):
            await _Container(engine, Path(labels[_FOLDER_LABEL]), found["Id"]).remove()
    await asyncio.to_thread(sweep_folders, remove_noted)


def _is_locked(folder: Path) -> bool:
    """Whether whoever made it lives; a folder is removed after its container."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:  # somebody else's
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


class _Running(NamedTuple):
    """A container that runs."""

    init: int
    """Its first process, as this machine numbers it."""
    group: GroupOfProcess
    keeper: EngineStream
    """Our end of the standard input that keeps it alive."""

    def processes(self) -> list[int]:
        """All that live in it, but ours."""
        return [
            pid for pid in self.group.processes() if not self._is_ours(pid) and is_alive(pid)
        ]

    def _is_ours(self, pid: int) -> bool:
        if pid == self.init:
            return True
        try:
            owner = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            return False
        return owner == _KEEPER_ID and parent(pid) == self.init


class _Container:
    """The container of one sandbox, named as its folder is."""

    def __init__(self, engine: Engine, folder: Path, number: str | None = None) -> None:
        self.engine = engine
        self._folder = folder
        self._id = number
        self.deleted: list[str] = []
        """What the layer that it began with had deleted."""
        self._running: _Running | None = None
        self._may_run = False

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/containers/{self._id or self._folder.name}"

    async def create(self, spec: SandboxSpec, network: str) -> None:
        """Make it; nothing runs yet."""
        labels = {
            LABEL: "sandbox",
            _FOLDER_LABEL: str(self._folder),
            _MACHINE_LABEL: platform.node(),
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
                **_creation(spec, self._folder, image, network, info["NCPU"]),
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

    async def running(self) -> _Running:
        """Start it, unless it runs."""
        if self._running is None:
            keeper = await self.engine.attach(f"{self.path}/attach?stream=1&stdin=1")
            self._may_run = True
            try:
                await self.engine.call("POST", f"{self.path}/start", accept=(304,))
                state = (await self.engine.call("GET", f"{self.path}/json"))["State"]
                self._running = _Running(state["Pid"], self._group(state["Pid"]), keeper)
            except BaseException:
                keeper.close()
                raise
        return self._running

    def _group(self, pid: int) -> GroupOfProcess:
        try:
            group = GroupOfProcess(pid)
        except OSError:
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


def _creation(
    spec: SandboxSpec, folder: Path, image: str, network: str, cpus: int
) -> dict[str, Any]:
    """What the engine is asked for."""
    limits = spec.limits
    environment = {**({} if spec.image else ENVIRONMENT), **spec.environment}
    mounts = list(spec.mounts) if spec.image else root_mounts(folder, spec)
    masked = _MASKED if spec.image else (*_MASKED, "/sys", *hidden_paths(spec.mounts))
    body = {
        "Image": image,
        "Entrypoint": list(_KEEPER),
        "Cmd": [],
        "User": f"{_KEEPER_ID}:{_KEEPER_ID}",
        "Env": _variables(environment),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": network,
            "Sysctls": _COUNT_IPV6 if network == "none" and _has_ipv6() else {},
            "CapDrop": ["ALL"],
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
                # With a network, it is the engine that knows how names are looked up.
                if network == "none" or mount.target != "/etc/resolv.conf"
            ],
            "MaskedPaths": list(masked),
            "LogConfig": {"Type": "none"},
        },
    }
    return body if network == "host" else {**body, "Hostname": "sandbox"}


def _has_ipv6() -> bool:
    return os.path.exists("/proc/sys/net/ipv6/conf/all/disable_ipv6")


def _variables(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


class _Stop(NamedTuple):
    """Why a command stopped."""

    timed_out: bool = False
    finding: TrialFinding | None = None

    @property
    def ended(self) -> bool:
        """Whether by itself."""
        return not self.timed_out and self.finding is None


class _Before(NamedTuple):
    """What was counted before a command began."""

    counts: GroupCounts
    refused: int


class _DockerSandbox:
    """Runs one command after another on the same files."""

    def __init__(
        self,
        spec: SandboxSpec,
        enforcement: Enforcement,
        container: _Container,
        user: str,
        disk: DiskLimit,
    ) -> None:
        self.enforcement = enforcement
        self._spec = spec
        self._container = container
        self._engine = container.engine
        self._user = user
        self._disk = disk
        self._turn = asyncio.Lock()

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after those that were given before."""
        async with self._turn:
            try:
                return await self._run(command)
            except BaseException:
                await _finished(self._container.kill())
                raise

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, mounts left out."""
        async with self._turn:
            await _finished(self._container.kill())
            without = (*exclude, *(mount.target for mount in self._spec.mounts))
            await export_layer(
                self._engine,
                self._container.path,
                target,
                exclude=without,
                deleted=self._container.deleted,
            )

    async def _run(self, command: Command) -> CommandEnd:
        running = await self._container.running()
        before = _Before(running.group.counts(), refused_connections(running.init))
        started = time.monotonic()
        execution = await self._prepared(command)
        stream = await self._engine.attach(f"/exec/{execution}/start", {"Detach": False})
        gathering = asyncio.ensure_future(stream.gather())
        giving = asyncio.ensure_future(stream.give(command.stdin))
        try:
            pid = await self._process(execution, gathering, stream)
            with _Exit(pid, running.group) as gone:
                stop, peak = await self._until_end(gone, running, command.timeout_s)
            seconds = time.monotonic() - started
            left, findings = await self._look(running, stop, before)
            counts = running.group.counts()
            if left or not stop.ended or not is_alive(running.init):
                await self._container.kill()
            await asyncio.wait_for(gathering, _PATIENCE_S)
            code = await self._exit_code(execution) if stop.ended else None
        finally:
            for task in (gathering, giving):
                task.cancel()
            await asyncio.gather(gathering, giving, return_exceptions=True)
            stream.close()
        killed = counts.killed - before.counts.killed
        refused = counts.refused - before.counts.refused
        findings += limit_findings(killed, refused, self._spec.limits)
        full = await self._disk.end(code)
        if full and (stop.finding is None or stop.finding.name != full.name):
            findings.append(full)
        if stream.output.dropped:
            text = f"{stream.output.dropped} bytes of its output are left out"
            findings.append(TrialFinding("output_cut", text))
        # Of all commands so far; if it rose, then by this one.
        if (counts.peak_memory or 0) > (before.counts.peak_memory or 0):
            peak = counts.peak_memory or 0
        return CommandEnd(
            exit_code=code,
            output=stream.output.kept(),
            seconds=seconds,
            timed_out=stop.timed_out,
            cpu_s=max(0.0, (counts.cpu_s or 0.0) - (before.counts.cpu_s or 0.0)),
            peak_memory_mb=peak / MIB,
            findings=tuple(findings),
        )

    async def _prepared(self, command: Command) -> str:
        """The engine's number of the command, which is not started yet."""
        made = await self._engine.call(
            "POST",
            f"{self._container.path}/exec",
            body={
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "Cmd": [*_WRAPPED, *command.argv],
                "Env": _variables(command.environment),
                "User": self._user,
                "WorkingDir": self._spec.workdir,
            },
        )
        return str(made["Id"])

    async def _process(
        self, execution: str, gathering: "asyncio.Future[None]", stream: EngineStream
    ) -> int:
        """The number of the started process.

        Raises:
            SandboxUnavailable: It could not be started; in the engine's words.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            state = await self._engine.call("GET", f"/exec/{execution}/json")
            if state["Pid"]:
                return int(state["Pid"])
            if state["ExitCode"] is not None and not state["Running"]:
                await asyncio.wait({gathering}, timeout=1.0)
                break
            await asyncio.sleep(0.01)
        said = stream.output.kept().decode(errors="replace").strip()
        raise SandboxUnavailable(f"Docker's engine could not start a command: {said}")

    async def _exit_code(self, execution: str) -> int:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            state = await self._engine.call("GET", f"/exec/{execution}/json")
            if not state["Running"] and state["ExitCode"] is not None:
                return int(state["ExitCode"])
            if time.monotonic() > deadline:
                raise SandboxUnavailable("Docker's engine does not tell how a command ended")
            await asyncio.sleep(0.01)

    async def _until_end(
        self, gone: "_Exit", running: _Running, timeout_s: float
    ) -> tuple[_Stop, int]:
        """Why it stopped, and the most memory that was seen."""
        deadline = time.monotonic() + timeout_s
        next_disk = 0.0
        peak = 0
        while True:
            ended = await gone.within(min(_LOOK_S, deadline - time.monotonic()))
            peak = max(peak, running.group.counts().memory)
            if ended:
                return _Stop(), peak
            if (now := time.monotonic()) >= deadline:
                return _Stop(timed_out=True), peak
            if now >= next_disk:
                found = await self._disk.look(running.processes)
                if found is not None:
                    return _Stop(finding=found), peak
                # A quarter of the time at most is spent on looking.
                next_disk = time.monotonic() + max(_DISK_S, 3 * (time.monotonic() - now))

    async def _look(
        self, running: _Running, stop: _Stop, before: _Before
    ) -> tuple[bool, list[TrialFinding]]:
        """Whether processes are left, and what can be seen only while they are there."""
        found = [] if stop.finding is None else [stop.finding]
        deadline = time.monotonic() + _GRACE_S
        while (left := running.processes()) and stop.ended and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if not is_alive(running.init):
            text = "what it left behind and whether it tried to reach the network is not known"
            found.append(TrialFinding("supervisor_killed", f"it ended its container; {text}"))
            return bool(left), found
        if left and stop.ended:
            detail = f"{len(left)} still ran when it ended, and were killed: {names_of(left)}"
            found.append(TrialFinding("left_processes", detail))
        if not self._spec.limits.network:
            refused = refused_connections(running.init) - before.refused
            if refused > 0:
                detail = f"{refused} times it sent something to an address that has no route"
                found.append(TrialFinding("network_refused", detail))
        return bool(left), found


class _Exit:
    """Sees the end of a process, which need not be a child of ours."""

    def __init__(self, pid: int, group: GroupOfProcess) -> None:
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None
        if self._handle is not None and pid not in group.processes():
            # It has ended, and somebody else may have its number.
            os.close(self._handle)
            self._handle = None
        self._seen = asyncio.Event()
        if self._handle is None:
            self._seen.set()
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._seen.set)

    async def within(self, seconds: float) -> bool:
        """Whether it has ended, or ends in this time."""
        try:
            await asyncio.wait_for(self._seen.wait(), max(0.0, seconds))
        except TimeoutError:
            return self._seen.is_set()
        return True

    def __enter__(self) -> "_Exit":
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
