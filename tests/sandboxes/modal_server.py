"""A service that implements Modal's protocols with the local Docker engine.

The client is the real one, over real gRPC: images are built from the Dockerfiles and the files
it sends, sandboxes are containers that really are limited, and commands run in them as root,
whatever user an image names, as at Modal. What no test needs is not answered.
"""

import asyncio
import base64
import hashlib
import io
import json
import socket
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web
from grpclib import GRPCError, Status
from grpclib.server import Server, Stream
from modal_proto import api_pb2
from modal_proto import task_command_router_pb2 as router_pb2
from modal_proto.api_grpc import ModalClientBase
from modal_proto.task_command_router_grpc import TaskCommandRouterBase

from assay.sandboxes.docker.engine import DockerEngine, EngineRefused, EngineStream
from assay.sandboxes.docker.images import find_image
from assay.sandboxes.dockerfile import Dockerfile

TOKEN = ("ak-of-the-tests", "as-of-the-tests")
_PREFIX = "assay-fake-modal"
_SUCCESS = api_pb2.GenericResult.GENERIC_STATUS_SUCCESS
_FAILURE = api_pb2.GenericResult.GENERIC_STATUS_FAILURE
_STDOUT = router_pb2.TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT


def _jwt() -> str:
    parts = ({"alg": "none"}, {"exp": time.time() + 3600})
    told = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*told, b"x"]).decode()


class FakeModal:
    """State of the service, and the requests it received."""

    def __init__(self, bases: dict[str, str]) -> None:
        """Answer for an account.

        Args:
            bases: By the name after FROM, the image of the engine that stands for it.
        """
        self.bases = bases
        self.requests: list[Any] = []
        self.sandboxes: dict[str, str] = {}
        """By their names, the containers that run."""
        self.url = ""
        self.files: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.mounts: dict[str, list[Any]] = {}
        self.images: dict[str, str] = {}
        self.execs: dict[str, _Exec] = {}
        self.engine: DockerEngine
        self._numbers = count(1)
        self.loop = asyncio.new_event_loop()
        """In which all of it runs."""

    def asked(self, kind: type[Any]) -> list[Any]:
        """Return the received requests of a kind."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def serve(self, started: threading.Event, stop: asyncio.Event) -> None:
        async with DockerEngine.connect() as self.engine:
            blobs = web.Application(client_max_size=2**30)
            blobs.router.add_put("/{name}", self._put)
            runner = web.AppRunner(blobs)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.blob_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            server = Server([_Control(self), _Router(self)])  # type: ignore[abstract]
            listener = socket.create_server(("127.0.0.1", 0))
            await server.start(sock=listener)
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            started.set()
            await stop.wait()
            server.close()
            await server.wait_closed()
            await runner.cleanup()
            for name in list(self.sandboxes):
                await self.end(name)
            await asyncio.gather(*(running.task for running in self.execs.values()))
            for image in self.images.values():
                await self.engine.call(
                    "DELETE", f"/images/{image}", query={"force": "1"}, accept=(404, 409)
                )

    async def _put(self, request: web.Request) -> web.Response:
        content = await request.read()
        self.blobs[request.match_info["name"]] = content
        return web.Response(headers={"ETag": f'"{hashlib.md5(content).hexdigest()}"'})

    async def end(self, name: str) -> None:
        if container := self.sandboxes.pop(name, None):
            query = {"force": "1", "v": "1"}
            path = f"/containers/{container}"
            await self.engine.call("DELETE", path, query=query, accept=(404, 409))

    async def build(self, image: Any) -> tuple[str, Any]:
        """Build an image; return its name and the build result."""
        number = hashlib.sha256(image.SerializeToString(deterministic=True)).hexdigest()[:20]
        name = f"im-{number}"
        if name in self.images:
            return name, api_pb2.GenericResult(status=_SUCCESS)
        bases = {
            **self.bases,
            **{b.docker_tag: self.images[b.image_id] for b in image.base_images},
        }
        text = Dockerfile("\n".join(image.dockerfile_commands), image.build_args).replace_bases(
            bases
        )
        files = {
            file.filename.lstrip("/"): (self.files[file.sha256_hex], file.mode)
            for file in self.mounts.get(image.context_mount_id, [])
        }
        files["Dockerfile"] = (text.encode(), 0o644)
        made = f"{_PREFIX}:{number}"
        query = {
            "t": made,
            "networkmode": "none",
            "forcerm": "1",
            "buildargs": json.dumps(dict(image.build_args)),
        }
        with tempfile.TemporaryDirectory() as scratch:
            context = Path(scratch, "context.tar")
            with tarfile.open(context, "w") as tar:
                for path, (content, mode) in files.items():
                    entry = tarfile.TarInfo(path)
                    entry.size, entry.mode = len(content), mode or 0o644
                    tar.addfile(entry, io.BytesIO(content))
            try:
                lines = await self.engine.send("POST", "/build", query=query, file=context)
            except EngineRefused as error:
                return name, api_pb2.GenericResult(status=_FAILURE, exception=str(error))
        if errors := [line["error"] for line in lines if "error" in line]:
            return name, api_pb2.GenericResult(status=_FAILURE, exception=errors[0])
        self.images[name] = made
        return name, api_pb2.GenericResult(status=_SUCCESS)

    async def create(self, request: Any) -> str:
        wanted = request.definition
        environment = [
            f"{key}={value}"
            for source in request.secret_sources
            for key, value in source.env.contents.items()
        ]
        blocked = wanted.network_access.network_access_type == api_pb2.NetworkAccess.BLOCKED
        made = await self.engine.call(
            "POST",
            "/containers/create",
            body={
                "Image": self.images[wanted.image_id],
                "Cmd": list(wanted.entrypoint_args),
                "User": "0",
                "Env": environment,
                "HostConfig": {
                    "Memory": wanted.resources.memory_mb_max << 20,
                    "NanoCpus": wanted.resources.milli_cpu_max * 1_000_000,
                    "NetworkMode": "none" if blocked else "host",
                },
            },
        )
        await self.engine.call("POST", f"/containers/{made['Id']}/start")
        name = f"sb-fake-{next(self._numbers)}"
        self.sandboxes[name] = made["Id"]
        return name


class _Exec:
    """A command that was started in a sandbox."""

    def __init__(self, number: str, stream: EngineStream, engine: DockerEngine) -> None:
        self.number = number
        self.code: int | None = None
        self.output = {True: bytearray(), False: bytearray()}
        self.changed = asyncio.Condition()
        self.reader, self.writer = stream._reader, stream._writer
        self.task = asyncio.ensure_future(self._gather(engine))

    async def _gather(self, engine: DockerEngine) -> None:
        try:
            while True:
                header = await self.reader.readexactly(8)
                content = await self.reader.readexactly(int.from_bytes(header[4:], "big"))
                async with self.changed:
                    self.output[header[0] == 1] += content
                    self.changed.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.writer.close()
        while True:
            path = f"/exec/{self.number}/json"
            state = await engine.call("GET", path, accept=(404,))  # with its container
            if state is None or not state["Running"]:
                break
            await asyncio.sleep(0.01)
        async with self.changed:
            self.code = 137 if state is None else int(state["ExitCode"])
            self.changed.notify_all()


class _Control(ModalClientBase):
    """The service itself."""

    def __init__(self, fake: FakeModal) -> None:
        self.fake = fake

    async def _taken(self, stream: "Stream[Any, Any]") -> Any:
        given: Any = stream.metadata or {}
        if (given.get("x-modal-token-id"), given.get("x-modal-token-secret")) != TOKEN:
            raise GRPCError(Status.UNAUTHENTICATED, "Token ID is malformed")
        request: Any = await stream.recv_message()
        self.fake.requests.append(request)
        return request

    async def ClientHello(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        await stream.send_message(api_pb2.ClientHelloResponse())

    async def AuthTokenGet(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        await stream.send_message(api_pb2.AuthTokenGetResponse(token=_jwt()))

    async def AppGetOrCreate(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        await stream.send_message(api_pb2.AppGetOrCreateResponse(app_id="ap-assay"))

    async def EnvironmentGetOrCreate(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        metadata = api_pb2.EnvironmentMetadata(name="main", settings=settings)
        await stream.send_message(
            api_pb2.EnvironmentGetOrCreateResponse(environment_id="en-1", metadata=metadata)
        )

    async def MountBatchedCheckExistence(self, stream: "Stream[Any, Any]") -> None:
        asked = (await self._taken(stream)).sha256_hex_hashes
        missing = [name for name in asked if name not in self.fake.files]
        await stream.send_message(
            api_pb2.MountBatchedCheckExistenceResponse(missing_sha256_hex_hashes=missing)
        )

    async def BlobCreate(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        name = f"bl-{len(self.fake.requests)}"
        url = f"{self.fake.blob_url}/{name}"
        await stream.send_message(
            api_pb2.BlobCreateResponse(
                blob_ids=[name], upload_urls=api_pb2.UploadUrlList(items=[url])
            )
        )

    async def MountPutFile(self, stream: "Stream[Any, Any]") -> None:
        request = await self._taken(stream)
        content = request.data
        if request.WhichOneof("data_oneof") == "data_blob_id":
            content = self.fake.blobs.pop(request.data_blob_id)
        assert hashlib.sha256(content).hexdigest() == request.sha256_hex
        self.fake.files[request.sha256_hex] = content
        await stream.send_message(api_pb2.MountPutFileResponse(exists=True))

    async def MountGetOrCreate(self, stream: "Stream[Any, Any]") -> None:
        request = await self._taken(stream)
        content = hashlib.sha256(
            b"".join(sorted(file.SerializeToString() for file in request.files))
        )
        name = f"mo-{content.hexdigest()[:20]}"
        self.fake.mounts[name] = list(request.files)
        await stream.send_message(api_pb2.MountGetOrCreateResponse(mount_id=name))

    async def ImageGetOrCreate(self, stream: "Stream[Any, Any]") -> None:
        request = await self._taken(stream)
        name, result = await self.fake.build(request.image)
        await stream.send_message(
            api_pb2.ImageGetOrCreateResponse(image_id=name, result=result)
        )

    async def ImageFromId(self, stream: "Stream[Any, Any]") -> None:
        request = await self._taken(stream)
        if request.image_id not in self.fake.images:
            raise GRPCError(Status.NOT_FOUND, f"no image {request.image_id}")
        await stream.send_message(api_pb2.ImageFromIdResponse(image_id=request.image_id))

    async def SandboxCreateV2(self, stream: "Stream[Any, Any]") -> None:
        name = await self.fake.create(await self._taken(stream))
        access = api_pb2.CommandRouterAccess(url=self.fake.url, jwt=_jwt())
        await stream.send_message(
            api_pb2.SandboxCreateV2Response(
                sandbox_id=name, task_id=f"ta-{name}V", command_router_access=access
            )
        )

    async def SandboxGetCommandRouterAccess(self, stream: "Stream[Any, Any]") -> None:
        await self._taken(stream)
        await stream.send_message(
            api_pb2.SandboxGetCommandRouterAccessResponse(url=self.fake.url, jwt=_jwt())
        )

    async def SandboxWaitV2(self, stream: "Stream[Any, Any]") -> None:
        has_ended = (await self._taken(stream)).sandbox_id not in self.fake.sandboxes
        ended = api_pb2.GenericResult(status=api_pb2.GenericResult.GENERIC_STATUS_TERMINATED)
        await stream.send_message(
            api_pb2.SandboxWaitResponse(result=ended if has_ended else None)
        )

    async def SandboxTerminateV2(self, stream: "Stream[Any, Any]") -> None:
        await self.fake.end((await self._taken(stream)).sandbox_id)
        await stream.send_message(api_pb2.SandboxTerminateResponse())


class _Router(TaskCommandRouterBase):
    """The machine of a sandbox, which the client calls directly."""

    def __init__(self, fake: FakeModal) -> None:
        self.fake = fake

    async def _taken(self, stream: "Stream[Any, Any]") -> tuple[Any, "_Exec"]:
        """Return a request and its command."""
        request: Any = await stream.recv_message()
        return request, self.fake.execs[request.exec_id]

    async def TaskExecStart(self, stream: "Stream[Any, Any]") -> None:
        request: Any = await stream.recv_message()
        self.fake.requests.append(request)
        name = request.task_id.removeprefix("ta-").removesuffix("V")
        if name not in self.fake.sandboxes:
            raise GRPCError(Status.NOT_FOUND, f"{name} has ended")
        engine, container = self.fake.engine, self.fake.sandboxes[name]
        environment = [
            f"{key}={value}"
            for source in request.secret_sources
            for key, value in source.env.contents.items()
        ]
        made = await engine.call(
            "POST",
            f"/containers/{container}/exec",
            body={
                **{f"Attach{name}": True for name in ("Stdin", "Stdout", "Stderr")},
                "Cmd": list(request.command_args),
                "Env": environment,
                "WorkingDir": request.workdir,
            },
        )
        try:
            attached = await engine.attach(f"/exec/{made['Id']}/start", {"Detach": False})
        except EngineRefused as error:
            raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
        self.fake.execs[request.exec_id] = _Exec(made["Id"], attached, engine)
        await stream.send_message(router_pb2.TaskExecStartResponse())

    async def TaskExecStdioRead(self, stream: "Stream[Any, Any]") -> None:
        request, running = await self._taken(stream)
        output = running.output[request.file_descriptor == _STDOUT]
        sent = request.offset
        while True:
            async with running.changed:
                while len(output) <= sent and running.code is None:
                    await running.changed.wait()
                chunk = bytes(output[sent : sent + 2**20])
            if not chunk:
                return
            sent += len(chunk)
            await stream.send_message(router_pb2.TaskExecStdioReadResponse(data=chunk))

    async def TaskExecStdinWrite(self, stream: "Stream[Any, Any]") -> None:
        request, running = await self._taken(stream)
        try:
            running.writer.write(request.data)
            await running.writer.drain()
            if request.eof:
                running.writer.write_eof()
        except OSError as error:
            raise GRPCError(Status.FAILED_PRECONDITION, "stdin is closed") from error
        await stream.send_message(router_pb2.TaskExecStdinWriteResponse())

    async def TaskExecWait(self, stream: "Stream[Any, Any]") -> None:
        _, running = await self._taken(stream)
        async with running.changed:
            await running.changed.wait_for(lambda: running.code is not None)
        await stream.send_message(router_pb2.TaskExecWaitResponse(code=running.code or 0))


for service in (_Control, _Router):
    service.__abstractmethods__ = frozenset()


async def import_root(root: Path, name: str) -> None:
    """Make an image of the engine from a file system."""
    async with DockerEngine.connect() as engine:
        if await find_image(engine, name):
            return
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "root.tar")
            with tarfile.open(file, "w") as tar:
                tar.add(root, ".")
            repository, _, tag = name.partition(":")
            query = {"fromSrc": "-", "repo": repository, "tag": tag}
            await engine.send("POST", "/images/create", query=query, file=file)


@contextmanager
def fake_modal(bases: dict[str, str]) -> Iterator[FakeModal]:
    """The service, for as long as the block takes."""
    fake = FakeModal(bases)
    started = threading.Event()
    loop = fake.loop
    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(fake.serve(started, stop),))
    thread.start()
    try:
        assert started.wait(30), "the service does not start"
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.run_until_complete(asyncio.sleep(0))  # so that connections are closed
        loop.close()
