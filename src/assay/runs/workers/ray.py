"""Executor that runs attempts in workers on the nodes of a Ray cluster.

Ray only places a worker and reserves its CPU and memory: trials, responses and journal lines do
not go through its object store, and it retries nothing. As with local workers, the driver keeps
journals, models, keys, rate limits, budget and retries. Each worker has its own connection to
the driver.

On a node, a Ray task starts the worker program and holds its place. The program gets the
environment of the node without the variables that contain keys. It connects to the driver and
authenticates with a secret made for it alone. It ends with the Ray task and with its driver.
"""

import asyncio
import hmac
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay._version import __version__
from assay.core.text import format_install_command
from assay.errors import UsageError, WorkerLost
from assay.runs.events import SILENT, RunObserver
from assay.runs.executors import StartAttempt
from assay.runs.kind import TrialKind
from assay.runs.workers.channel import make_worker_command
from assay.runs.workers.pool import UNLIMITED, WorkerPool, make_worker_setup
from assay.runs.workers.process import NoCapacity, WorkerProcess

SECRET_BYTES: Final = 32
_CONNECT_S: Final = 20.0
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Seconds before the first keepalive probe and between probes, and their number."""


class Interpreter(NamedTuple):
    """A Python interpreter on a machine."""

    machine: str
    python: str


def find_interpreter() -> Interpreter:
    """Return the Python interpreter of this process."""
    return Interpreter(socket.gethostname(), sys.executable)


class PlaceOrder(NamedTuple):
    """Data that a node needs to start a worker."""

    driver: tuple[str, int]
    """Host and port on which the driver listens."""
    secret: bytes
    """Authenticates this one worker."""
    version: str
    """Version of assay in the driver."""
    origin: Interpreter
    """Python interpreter of the driver."""
    path: tuple[str, ...]
    """Module search path of the driver."""
    folder: str
    """Working directory of the driver."""
    withheld: frozenset[str]
    """Names of environment variables that the worker does not get."""


def hold_worker(order: PlaceOrder) -> int:
    """Run a worker to its end, and return its exit status."""
    if order.version != __version__:
        raise WorkerLost(
            f"node {socket.gethostname()!r} has assay {__version__}, the driver has "
            f"{order.version}; install the same version on every node"
        )
    with _connect_to_driver(order) as connection:
        is_same = order.origin == find_interpreter()
        process = subprocess.Popen(
            make_worker_command(
                [*order.path] if is_same else [*filter(os.path.isdir, order.path)],
                connection.fileno(),
                parent=os.getpid(),
                own_path=not is_same,
            ),
            stdin=subprocess.DEVNULL,
            pass_fds=(connection.fileno(),),
            env={
                name: value for name, value in os.environ.items() if name not in order.withheld
            },
            cwd=order.folder if Path(order.folder).is_dir() else None,
            process_group=0,
        )
    return process.wait()


def _connect_to_driver(order: PlaceOrder) -> socket.socket:
    try:
        connection = socket.create_connection(order.driver, timeout=_CONNECT_S)
    except OSError as error:
        host, port = order.driver
        raise WorkerLost(
            f"node {socket.gethostname()!r} cannot reach the driver at {host}:{port}: {error}; "
            "let the nodes of the cluster connect to the machine that runs assay"
        ) from None
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.sendall(order.secret)
    return connection


MEMORY: Final = 1 << 30
"""Default of the memory that Ray reserves for a worker, in bytes."""
_CONNECT_TIMEOUT_S: Final = 5.0
"""Seconds within which the cluster head must accept a connection."""
_CHECK_S: Final = 1.0
"""Seconds between checks whether a worker has connected."""
_FLUSH_S: Final = 2.0
"""Seconds between the end of a process and the end of its connection."""
_STATUS_S: Final = 10.0
"""Seconds that Ray gets to report how a worker ended."""


class RayExecutor:
    """Runs attempts in workers on a Ray cluster, each with many open at once."""

    def __init__(
        self,
        address: str = "auto",
        workers: int | None = None,
        *,
        withheld: Collection[str] = (),
        hang_s: float = 90.0,
        max_trials: int = UNLIMITED,
        memory: int = MEMORY,
        room_s: float = 60.0,
        more_s: float = 60.0,
    ) -> None:
        """Store the settings; the cluster is joined by `open`.

        Args:
            address: HOST:PORT of the cluster head, `auto` for the cluster that this machine
                belongs to, or `local` to start a cluster for this run.
            workers: Maximum number of workers; None for one per CPU of the cluster.
            withheld: Environment variables that workers do not get, because they contain keys.
            hang_s: Seconds without a running Python thread after which a worker ends.
            max_trials: Maximum number of open trials per worker.
            memory: Bytes that Ray reserves for each worker.
            room_s: Seconds to wait for room for the first worker.
            more_s: Seconds to wait for room for each further worker.
        """
        self._address, self._workers = address, workers
        self._withheld, self._hang_s = frozenset(withheld), hang_s
        self._memory, self._room_s, self._more_s = memory, room_s, more_s
        self._max_trials = max_trials

    @asynccontextmanager
    async def open(
        self, kind: TrialKind[Any], observer: RunObserver = SILENT
    ) -> AsyncIterator[StartAttempt]:
        """Join the cluster and start the first worker; others are started when needed."""
        setup = make_worker_setup(kind, self._hang_s)
        async with (
            _join_cluster(self._address, self._workers) as ray,
            _ConnectionDesk.open(ray) as desk,
        ):

            async def start_worker(is_extra: bool) -> WorkerProcess:
                worker = WorkerProcess(kind, setup, observer.on_message)
                order = PlaceOrder(
                    desk.address,
                    secrets.token_bytes(SECRET_BYTES),
                    __version__,
                    find_interpreter(),
                    tuple(sys.path),
                    os.getcwd(),
                    self._withheld,
                )
                # An extra worker must not wait until the others leave.
                needs = {} if is_extra else {"num_cpus": 1, "memory": self._memory}
                desk.expect(order.secret, worker)
                room_s = self._more_s if pool.has_worker else self._room_s
                worker.host = _PlacedWorker(
                    ray, order, needs, worker, desk, room_s, has_capacity
                )
                return worker

            async def count_cpus() -> int:
                return max(
                    1, int((await asyncio.to_thread(ray.cluster_resources)).get("CPU", 0))
                )

            async def has_capacity() -> bool:
                return pool.shared_count <= await count_cpus()

            pool = WorkerPool(
                kind,
                self._workers or UNLIMITED,
                start_worker,
                count_cpus,
                max_trials=self._max_trials,
            )
            try:
                await pool.start_first()
                yield pool.start
            finally:
                await pool.close()


class _PlacedWorker:
    """A worker process somewhere in the cluster."""

    def __init__(
        self,
        ray: Any,
        order: PlaceOrder,
        needs: dict[str, int],
        worker: WorkerProcess,
        desk: "_ConnectionDesk",
        room_s: float,
        has_capacity: Callable[[], Awaitable[bool]],
    ) -> None:
        self._import_ray, self._worker, self._desk, self._secret = (
            ray,
            worker,
            desk,
            order.secret,
        )
        hold = ray.remote(
            **({"num_cpus": 0} | needs), max_retries=0, scheduling_strategy="SPREAD"
        )(hold_worker)
        self._task = hold.remote(order)
        self._result: asyncio.Future[int] = asyncio.wrap_future(self._task.future())
        self._result.add_done_callback(self._on_task_end)
        self._waiting = asyncio.create_task(self._wait_for_place(needs, room_s, has_capacity))

    def _on_task_end(self, result: "asyncio.Future[int]") -> None:
        """Handle the end of the process, or its loss by Ray."""
        if not result.cancelled():
            result.exception()  # marks the exception as retrieved
        if self._desk.forget(self._secret):
            self._worker.on_disconnect()
        else:
            # Its last messages may still arrive.
            asyncio.get_running_loop().call_later(_FLUSH_S, self._worker.channel.abort)

    async def _wait_for_place(
        self, needs: dict[str, int], room_s: float, has_capacity: Callable[[], Awaitable[bool]]
    ) -> None:
        """Give up if it has no place after `room_s` seconds, or if the cluster is too small."""
        deadline = time.monotonic() + room_s
        while self._desk.is_expected(self._secret):
            await asyncio.sleep(_CHECK_S)
            if time.monotonic() > deadline or not (await has_capacity() or not needs):
                break
        if not self._worker.is_gone and self._desk.forget(self._secret):
            self._import_ray.cancel(self._task, force=True)
            self._worker.reject(
                NoCapacity(_describe_no_capacity(self._import_ray, needs, room_s))
            )

    async def wait_for_exit(self) -> int | str:
        """Return the exit status, or a text about Ray's error."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._result), _STATUS_S)
        except TimeoutError:
            return "closed its connection for an unknown reason"
        except self._import_ray.exceptions.RayError as error:
            return _describe_loss(self._import_ray, error)

    async def kill(self) -> None:
        """Make Ray kill the process, unless it has ended."""
        self._waiting.cancel()
        if not self._result.done():
            self._import_ray.cancel(self._task, force=True)
            await asyncio.wait({self._result}, timeout=_STATUS_S)


class _ConnectionDesk:
    """Accepts connections from expected workers only."""

    address: tuple[str, int]

    def __init__(self) -> None:
        self._expected: dict[bytes, WorkerProcess] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, ray: Any) -> AsyncIterator["_ConnectionDesk"]:
        """Listen at the address of this machine within the cluster."""
        desk, host = cls(), ray.util.get_node_ip_address()
        server = await asyncio.get_running_loop().create_server(
            lambda: _UnknownConnection(desk), host, 0
        )
        desk.address = (host, server.sockets[0].getsockname()[1])
        try:
            yield desk
        finally:
            server.close()

    def expect(self, secret: bytes, worker: WorkerProcess) -> None:
        """Accept one connection with a secret, as a worker."""
        self._expected[secret] = worker

    def is_expected(self, secret: bytes) -> bool:
        """Return whether no connection has used a secret yet."""
        return secret in self._expected

    def forget(self, secret: bytes) -> bool:
        """Reject a secret from now on; return whether it was still unused."""
        return self._expected.pop(secret, None) is not None

    def take_worker(self, secret: bytes) -> WorkerProcess | None:
        """Return the worker of a secret, or None, and reject the secret from now on."""
        match = next(
            (expected for expected in self._expected if hmac.compare_digest(expected, secret)),
            None,
        )
        return None if match is None else self._expected.pop(match)


class _UnknownConnection(asyncio.Protocol):
    """A connection that has not authenticated yet."""

    _transport: asyncio.Transport

    def __init__(self, desk: _ConnectionDesk) -> None:
        self._desk, self._received = desk, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the secret; called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timeout = asyncio.get_running_loop().call_later(
            _CONNECT_TIMEOUT_S, transport.abort
        )

    def data_received(self, data: bytes) -> None:
        """Check the secret, and hand the connection to its worker; called by the event loop."""
        self._received += data
        if len(self._received) < SECRET_BYTES:
            return
        self._timeout.cancel()
        secret, more = self._received[:SECRET_BYTES], self._received[SECRET_BYTES:]
        worker = self._desk.take_worker(secret)
        if worker is None:
            self._transport.abort()
            return
        self._transport.set_protocol(worker.channel)
        worker.channel.connection_made(self._transport)
        if more:
            worker.channel.data_received(more)


@asynccontextmanager
async def _join_cluster(address: str, workers: int | None) -> AsyncIterator[Any]:
    """Yield Ray, connected to a cluster; an existing connection of this process is kept."""
    ray = await asyncio.to_thread(_import_ray)
    if ray.is_initialized():
        yield ray
        return
    await _check_reachable(address)
    more = {"include_dashboard": False, "num_cpus": workers} if address == "local" else {}
    try:
        await asyncio.to_thread(
            ray.init, address=address, log_to_driver=False, configure_logging=False, **more
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            f"{_describe_unreachable(address)}: {_read_first_line(error)}"
        ) from error
    try:
        yield ray
    finally:
        await asyncio.to_thread(ray.shutdown)


def _import_ray() -> Any:
    # Ray reads these on import; the first one disables usage statistics.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed; install it here and on every "
            f"node ({format_install_command('ray')}), or use --executor processes"
        ) from error
    # Ray warns about drivers in threads and lost nodes; assay reports these itself.
    logging.getLogger("ray").setLevel(logging.ERROR)
    return ray


async def _check_reachable(address: str) -> None:
    """Raise UsageError early if the head is unreachable; Ray itself waits for a minute."""
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UsageError(
            f"--ray-address {address!r} is not a valid address; give HOST:PORT of the head of "
            "a cluster that this machine is a node of, auto for the cluster on this machine, "
            "or local to start one for this run"
        )
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
    except (OSError, TimeoutError) as error:
        reason: object = error
        if isinstance(error, TimeoutError):
            reason = f"no response within {_CONNECT_TIMEOUT_S:g} s"
        raise UsageError(f"{_describe_unreachable(address)}: {reason}") from error


def _describe_unreachable(address: str) -> str:
    start = "start one with 'ray start --head', or choose --ray-address local"
    if address == "auto":
        return f"no Ray cluster runs on this machine (--ray-address auto); {start}"
    return f"no Ray cluster is reachable at --ray-address {address}; run 'ray status' there"


def _describe_no_capacity(ray: Any, needs: dict[str, int], room_s: float) -> str:
    with suppress(ray.exceptions.RayError):
        total, free = ray.cluster_resources(), ray.available_resources()
        memory = needs.get("memory", 0) / (1 << 30)
        return (
            f"Ray had no capacity for a worker (1 CPU, {memory:g} GiB) within {room_s:g} s: "
            f"the cluster has {total.get('CPU', 0):g} CPUs, {free.get('CPU', 0):g} of them "
            "free; add a node, or wait until other workers end"
        )
    return f"Ray had no capacity for a worker within {room_s:g} s"


def _describe_loss(ray: Any, error: Exception) -> str:
    """Return how a worker was lost, as a text that follows "a worker process"."""
    exceptions = ray.exceptions
    if isinstance(error, exceptions.RayTaskError):
        return f"could not start: {_read_first_line(error.cause)}"
    if isinstance(error, exceptions.OutOfMemoryError):
        return "was ended by Ray because its node ran out of memory"
    if isinstance(error, exceptions.TaskCancelledError):
        return "was ended"
    return f"was lost by Ray ({type(error).__name__})"


def _read_first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
