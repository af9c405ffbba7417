"""Modal (modal.com) sandboxes, through its client: on remote machines, with an account.

The client is an optional dependency, imported only when a sandbox is needed: a plan can be
described without it.
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
from assay.core.aio import finish_despite_cancellation, run_in_own_loop
from assay.core.text import format_install_command
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    PROGRAM,
    Enforcement,
    ImageRecipe,
    ImageSandbox,
    ResourceLimits,
    SandboxSpec,
)
from assay.sandboxes.dockerfile import Dockerfile, find_user
from assay.sandboxes.egress import PUBLIC
from assay.sandboxes.modal.names import BEGUN, TOKEN, default_image_name
from assay.sandboxes.roots import ENVIRONMENT, HOME, USER_ID, python_mounts

if TYPE_CHECKING:
    import modal

    from assay.sandboxes.modal.remote import Remote
    from assay.sandboxes.modal.sandbox import ModalSandbox, RemoteUser

_MACHINE: Final = ("Linux", "x86_64")
_LIFETIME_S: Final = 86_400
"""Maximum lifetime that Modal allows."""
_FIRST_COMMAND: Final = ("/bin/sh", "-c", f"sleep {_LIFETIME_S} & echo > {BEGUN}; wait")
"""The first process; waiting also reaps orphaned processes."""
_IDLE_S: Final = 600
"""Seconds after which Modal ends a sandbox whose assay has died."""
_END_S: Final = 30.0
_USERS: Final = ("etc/passwd", "etc/group", "usr/bin/setpriv")


class ModalBackend:
    """Runs commands in Modal sandboxes."""

    name = "modal"

    def __init__(self) -> None:
        """Use the account configured for Modal's client."""
        self._has_account = False
        self._users: dict[str, str | None] = {}
        self._default_image = ""
        self._program_images: dict[tuple[str, Path], str] = {}
        self._turn = asyncio.Lock()

    def plan(self, limits: ResourceLimits, image: str | None = None) -> str:
        """Describe a sandbox without using an account."""
        network = "allowed" if _check_network(limits) else "blocked"
        start = image or f"{default_image_name()} (with git and pytest)"
        cpus = "1 CPU" if limits.cpus == 1 else f"{limits.cpus:g} CPUs"
        return (
            f"modal would start {start} with {cpus} and {limits.memory_mb} MB, network "
            f"{network}; the disk limit ({limits.disk_mb} MB) applies to each file, not to the "
            f"total, and the process limit ({limits.processes}) may not be enforced"
        )

    def check_recipe(self, recipe: ImageRecipe) -> Dockerfile:
        """Read a Dockerfile, and check that Modal can build the recipe.

        Raises:
            UsageError: A base image is replaced, or the build must not use the network.
        """
        path = recipe.context / recipe.dockerfile
        try:
            dockerfile = Dockerfile(path.read_text("utf-8"), recipe.arguments)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        if mapped := [name for name in dockerfile.bases if name in recipe.base_images]:
            raise UsageError(
                f"{path}: Modal pulls base images itself and cannot use a local one for "
                f"{mapped[0]}; omit --base-image {mapped[0]}=..."
            )
        if not recipe.network:
            raise UsageError(
                f"{path}: Modal builds images with a network; allow it with --build-network"
            )
        return dockerfile

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Describe how these limits are enforced.

        Raises:
            SandboxUnavailable: The client or an account is missing, or Modal is unreachable.
        """
        _check_client()
        network = "allowed, Modal's own" if _check_network(limits) else "blocked by modal"
        if not self._has_account:
            from assay.sandboxes.modal.remote import check_account

            run_in_own_loop(check_account)
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
        """Build an image unless Modal has it; return its name.

        Raises:
            UsageError: Modal cannot build the recipe.
            SandboxUnavailable: The build failed.
        """
        dockerfile = self.check_recipe(recipe)
        _check_client()
        from assay.sandboxes.modal.files import build_task_image, get_app

        image = await build_task_image(recipe, await get_app())
        self._users[image.object_id] = dockerfile.user
        return image.object_id

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[ImageSandbox]:
        """Open a sandbox, which is terminated on exit."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[ImageSandbox]:
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"cannot mount {mount.source}: it does not exist")
        enforcement = self.enforcement(spec.limits)
        from assay.sandboxes.modal.remote import Remote

        sandbox = await self._create(spec)
        try:
            prepared = await self._prepare(spec, enforcement, Remote(sandbox))
            awake = asyncio.ensure_future(prepared.keep_alive())
            try:
                yield prepared
                await prepared.fetch()
            finally:
                awake.cancel()
        finally:
            await finish_despite_cancellation(_terminate(sandbox))

    async def _create(self, spec: SandboxSpec) -> "modal.Sandbox":
        import modal

        from assay.sandboxes.modal.files import get_app
        from assay.sandboxes.modal.remote import convert_errors

        limits = spec.limits
        environment = {**({} if spec.image else ENVIRONMENT), **spec.environment}
        image = await self._find_image(spec)
        with convert_errors():
            return await modal.Sandbox.create.aio(
                *_FIRST_COMMAND,
                app=await get_app(),
                image=image,
                env=dict(environment),
                timeout=_LIFETIME_S,
                idle_timeout=_IDLE_S,
                cpu=(limits.cpus, limits.cpus),
                memory=(limits.memory_mb, limits.memory_mb),
                block_network=not limits.network,
                tags={"assay": __version__},
            )

    async def _find_image(self, spec: SandboxSpec) -> "modal.Image":
        """Return the image of a sandbox, with the files of its agent."""
        import modal

        from assay.sandboxes.modal.files import build_default_image, build_with_program, get_app

        # One at a time, so that an agent is packed and sent once.
        async with self._turn:
            if spec.image is None and not self._default_image:
                self._default_image = (await build_default_image(await get_app())).object_id
            name = spec.image or self._default_image
            for mount in spec.mounts:
                if mount.target == PROGRAM:
                    key = (name, mount.source)
                    if key not in self._program_images:
                        base = modal.Image.from_id(name)
                        prepared = await build_with_program(base, mount.source, await get_app())
                        self._program_images[key] = prepared.object_id
                    name = self._program_images[key]
        return modal.Image.from_id(name)

    async def _prepare(
        self, spec: SandboxSpec, enforcement: Enforcement, remote: "Remote"
    ) -> "ModalSandbox":
        """Copy files into a new sandbox."""
        from assay.sandboxes.modal.files import list_files, put_layer, put_mounts
        from assay.sandboxes.modal.sandbox import ModalSandbox, list_processes

        # The image already has Python and the agent.
        provided = {PROGRAM, *(mount.target for mount in python_mounts() if spec.image is None)}
        copied = [mount for mount in spec.mounts if mount.target not in provided]
        spec = replace(spec, mounts=tuple(copied))
        own = await list_processes(remote)
        before = await list_files(remote) if spec.image else {}
        user = await self._choose_user(spec, remote)
        if spec.layer is not None:
            exclude = [PROGRAM, *(mount.target for mount in copied)]
            await put_layer(remote, spec.layer, exclude=exclude)
        await put_mounts(remote, copied, user.number)
        return ModalSandbox(spec, enforcement, remote, user, own=own, before=before)

    async def _choose_user(self, spec: SandboxSpec, remote: "Remote") -> "RemoteUser":
        """Return the user that runs commands; Modal itself has only root."""
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
                    with suppress(KeyError):  # the image has none
                        file = tar.extractfile(name)
                        path = Path(scratch, name)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(file.read() if file else b"")
            user = find_user(
                lambda name: path if (path := Path(scratch, name)).exists() else None,
                spec.user or self._users.get(spec.image),
            )
        home = {} if "HOME" in spec.environment else {"HOME": user.home}
        return RemoteUser(user.number, environment=home, switch=user.switch)


def check_program(name: str) -> None:
    """Raise UsageError if an agent installed here cannot run on Modal's machines."""
    here = (platform.system(), platform.machine())
    if here != _MACHINE:
        raise UsageError(
            f"agent {name!r} is installed here for {' '.join(here)}, but Modal's machines are "
            f"{' '.join(_MACHINE)}; run assay on such a machine, or use an agent that is not a "
            "program: react-coder"
        )


def _check_network(limits: ResourceLimits) -> bool:
    """Return whether a sandbox has a network; raise SandboxUnavailable for single hosts."""
    if named := [name for name in limits.network if name != PUBLIC]:
        raise SandboxUnavailable(
            f"Modal cannot allow the host {named[0]!r} alone; use --allow-network public, or "
            "another sandbox"
        )
    return bool(limits.network)


def _check_client() -> None:
    """Raise SandboxUnavailable with instructions if the client or a token is missing."""
    missing = []
    if importlib.util.find_spec("modal") is None:
        missing.append(f"its client ({format_install_command('modal')})")
    elif not _has_token():
        missing.append(f"a token ({TOKEN})")
    if missing:
        raise SandboxUnavailable(
            f"sandbox 'modal' needs a modal.com account and {missing[0]}; --dry-run shows the "
            "plan without it, and --sandbox docker and bubblewrap need no account"
        )


def _has_token() -> bool:
    from modal.config import config

    token = config.get("token_id") and config.get("token_secret")
    return bool(token or config.get("oauth_refresh_token"))


async def _terminate(sandbox: "modal.Sandbox") -> None:
    """Terminate a sandbox; Modal may have done so, or will when it is idle."""
    import modal

    with suppress(modal.exception.Error, OSError):
        async with asyncio.timeout(_END_S):
            await sandbox.terminate.aio()
        await sandbox.detach.aio()  # type: ignore[no-untyped-call]
