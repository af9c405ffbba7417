"""Sandboxes at Modal (modal.com), through its client: on machines of others, with an account.

The client is an extra, and is imported when a sandbox is really wanted: what one would be made
of can be told without it.
"""

import asyncio
import importlib.util
import io
import platform
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assay._version import __version__
from assay.core.aio import run_apart, to_the_end
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    PROGRAM,
    Enforcement,
    ImageRecipe,
    ImageSandbox,
    ResourceLimits,
    SandboxSpec,
)
from assay.sandboxes.dockerfile import Dockerfile, image_user
from assay.sandboxes.egress import PUBLIC
from assay.sandboxes.modal.names import BEGUN, TOKEN, plain_name
from assay.sandboxes.roots import ENVIRONMENT, HOME, USER_ID, python_mounts

if TYPE_CHECKING:
    import modal

    from assay.sandboxes.modal.remote import Remote
    from assay.sandboxes.modal.sandbox import ModalSandbox, RemoteUser

_MACHINE: Final = ("Linux", "x86_64")
_LIFE_S: Final = 86_400
"""The most that Modal allows."""
_FIRST: Final = ("/bin/sh", "-c", f"sleep {_LIFE_S} & echo > {BEGUN}; wait")
"""The first process: waiting, it buries those who have no parent any more."""
_IDLE_S: Final = 600
"""After which Modal ends a sandbox whose assay has died."""
_END_S: Final = 30.0
_USERS: Final = ("etc/passwd", "etc/group", "usr/bin/setpriv")


class ModalBackend:
    """Runs commands in sandboxes of Modal."""

    name = "modal"

    def __init__(self) -> None:
        """Use the account that Modal's client knows."""
        self._has_account = False
        self._users: dict[str, str | None] = {}
        self._plain = ""
        self._with_programs: dict[tuple[str, Path], str] = {}
        self._turn = asyncio.Lock()

    def plan(self, limits: ResourceLimits, image: str | None = None) -> str:
        """What a sandbox would be made of, without an account."""
        network = "allowed" if _check_network(limits) else "blocked"
        start = image or f"{plain_name()} (with git and pytest)"
        cpus = "1 CPU" if limits.cpus == 1 else f"{limits.cpus:g} CPUs"
        return (
            f"modal would start {start} with {cpus} and {limits.memory_mb} MB, network "
            f"{network}; the limit on the disk ({limits.disk_mb} MB) holds for each file, not "
            f"for all together, and that on processes ({limits.processes}) may not hold"
        )

    def check_recipe(self, recipe: ImageRecipe) -> Dockerfile:
        """What a Dockerfile says, if Modal can build it as it was asked for.

        Raises:
            UsageError: A base image stands for another, or the build shall reach no network.
        """
        path = recipe.context / recipe.dockerfile
        try:
            dockerfile = Dockerfile(path.read_text("utf-8"), recipe.arguments)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        if mapped := [name for name in dockerfile.bases if name in recipe.base_images]:
            raise UsageError(
                f"{path}: Modal pulls base images itself, and cannot start from what stands "
                f"for {mapped[0]} here; leave --base-image {mapped[0]}=... out"
            )
        if not recipe.network:
            raise UsageError(
                f"{path}: Modal builds images with a network; allow it with --build-network"
            )
        return dockerfile

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """By what these limits are held.

        Raises:
            SandboxUnavailable: The client or an account is missing, or Modal is not reached.
        """
        _check_client()
        network = "allowed, Modal's own" if _check_network(limits) else "blocked by modal"
        if not self._has_account:
            from assay.sandboxes.modal.remote import check_account

            run_apart(check_account)
            self._has_account = True
        return Enforcement(
            backend=self.name,
            memory="modal",
            processes="RLIMIT_NPROC where there is no image, and gVisor does not hold it",
            cpus="modal",
            disk="RLIMIT_FSIZE, for each file",
            network=network,
        )

    async def build(self, recipe: ImageRecipe) -> str:
        """Build an image, unless Modal has it; its name.

        Raises:
            UsageError: Modal cannot build it as it was asked for.
            SandboxUnavailable: The build failed.
        """
        dockerfile = self.check_recipe(recipe)
        _check_client()
        from assay.sandboxes.modal.files import app, task_image

        image = await task_image(recipe, await app())
        self._users[image.object_id] = dockerfile.user
        return image.object_id

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ImageSandbox]:
        """A sandbox, which is ended when it is left."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"{mount.source} is to be mounted and is not there")
        enforcement = self.enforcement(spec.limits)
        from assay.sandboxes.modal.remote import Remote

        sandbox = await self._created(spec)
        try:
            made = await self._ready(spec, enforcement, Remote(sandbox))
            awake = asyncio.ensure_future(made.stay_awake())
            try:
                yield made
                await made.fetch()
            finally:
                awake.cancel()
        finally:
            await to_the_end(_ended(sandbox))

    async def _created(self, spec: SandboxSpec) -> "modal.Sandbox":
        import modal

        from assay.sandboxes.modal.files import app
        from assay.sandboxes.modal.remote import answering

        limits = spec.limits
        environment = {**({} if spec.image else ENVIRONMENT), **spec.environment}
        image = await self._image(spec)
        with answering():
            return await modal.Sandbox.create.aio(
                *_FIRST,
                app=await app(),
                image=image,
                env=dict(environment),
                timeout=_LIFE_S,
                idle_timeout=_IDLE_S,
                cpu=(limits.cpus, limits.cpus),
                memory=(limits.memory_mb, limits.memory_mb),
                block_network=not limits.network,
                tags={"assay": __version__},
            )

    async def _image(self, spec: SandboxSpec) -> "modal.Image":
        """What a sandbox starts from: its image, and the files of its agent in it."""
        import modal

        from assay.sandboxes.modal.files import app, plain_image, with_program

        # One after another, so that an agent is packed and sent once.
        async with self._turn:
            if spec.image is None and not self._plain:
                self._plain = (await plain_image(await app())).object_id
            name = spec.image or self._plain
            for mount in spec.mounts:
                if mount.target == PROGRAM:
                    key = (name, mount.source)
                    if key not in self._with_programs:
                        base = modal.Image.from_id(name)
                        made = await with_program(base, mount.source, await app())
                        self._with_programs[key] = made.object_id
                    name = self._with_programs[key]
        return modal.Image.from_id(name)

    async def _ready(
        self, spec: SandboxSpec, enforcement: Enforcement, remote: "Remote"
    ) -> "ModalSandbox":
        """Give a new sandbox its files."""
        from assay.sandboxes.modal.files import listing, put_layer, put_mounts
        from assay.sandboxes.modal.sandbox import ModalSandbox, processes

        # The image has a Python and the agent already.
        had = {PROGRAM, *(mount.target for mount in python_mounts() if spec.image is None)}
        copied = [mount for mount in spec.mounts if mount.target not in had]
        spec = replace(spec, mounts=tuple(copied))
        own = await processes(remote)
        before = await listing(remote) if spec.image else {}
        user = await self._user(spec, remote)
        if spec.layer is not None:
            exclude = [PROGRAM, *(mount.target for mount in copied)]
            await put_layer(remote, spec.layer, exclude=exclude)
        await put_mounts(remote, copied, user.number)
        return ModalSandbox(spec, enforcement, remote, user, own=own, before=before)

    async def _user(self, spec: SandboxSpec, remote: "Remote") -> "RemoteUser":
        """Who runs commands; Modal itself has nobody but root."""
        from assay.sandboxes.modal.sandbox import RemoteUser

        if spec.image is None:
            await remote.call(f"mkdir -p {HOME} && chown {USER_ID}:{USER_ID} {HOME}")
            limit = ("/usr/bin/prlimit", f"--nproc={spec.limits.processes}")
            switch = ("/usr/bin/setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}")
            more = ("--clear-groups", "--no-new-privs", "--")
            return RemoteUser(USER_ID, switch=(*limit, *switch, *more))
        packed = await remote.call(
            f"tar -c -h -f - -C / --ignore-failed-read {' '.join(_USERS)} 2>/dev/null; true"
        )
        with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                for name in _USERS:
                    with suppress(KeyError):  # it has none
                        file = tar.extractfile(name)
                        path = Path(scratch, name)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(file.read() if file else b"")
            user = image_user(
                lambda name: path if (path := Path(scratch, name)).exists() else None,
                spec.user or self._users.get(spec.image),
            )
        home = {} if "HOME" in spec.environment else {"HOME": user.home}
        return RemoteUser(user.number, environment=home, switch=user.switch)


def check_program(name: str) -> None:
    """UsageError if an agent that was installed here cannot run on the machines of Modal."""
    here = (platform.system(), platform.machine())
    if here != _MACHINE:
        raise UsageError(
            f"agent {name!r} is installed here for {' '.join(here)}, and machines of Modal are "
            f"{' '.join(_MACHINE)}; run assay on such a machine, or use an agent that is no "
            "program: react-coder"
        )


def _check_network(limits: ResourceLimits) -> bool:
    """Return whether a sandbox has a network; SandboxUnavailable for hosts one by one."""
    if named := [name for name in limits.network if name != PUBLIC]:
        raise SandboxUnavailable(
            f"Modal cannot allow the host {named[0]!r} alone; use --allow-network public, or "
            "another sandbox"
        )
    return bool(limits.network)


def _check_client() -> None:
    """SandboxUnavailable, with what to do, where the client or a token is missing."""
    missing = []
    if importlib.util.find_spec("modal") is None:
        missing.append("its client (pip install 'assay[modal]')")
    elif not _has_token():
        missing.append(f"a token ({TOKEN})")
    if missing:
        raise SandboxUnavailable(
            f"sandbox 'modal' needs an account of modal.com and {missing[0]}; --dry-run shows "
            "without it what would be started, --sandbox docker and bubblewrap need none"
        )


def _has_token() -> bool:
    from modal.config import config

    token = config.get("token_id") and config.get("token_secret")
    return bool(token or config.get("oauth_refresh_token"))


async def _ended(sandbox: "modal.Sandbox") -> None:
    """End a sandbox; one that Modal has ended, or will when it is idle, is no fault."""
    import modal

    with suppress(modal.exception.Error, OSError):
        async with asyncio.timeout(_END_S):
            await sandbox.terminate.aio()
        await sandbox.detach.aio()  # type: ignore[no-untyped-call]
