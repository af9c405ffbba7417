"""Runs on a Ray cluster: leaving nodes, busy CPUs, wrong addresses."""

import asyncio
import importlib.util
import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError, WorkerLost
from assay.runs import executor_choice
from assay.runs.events import Event, TrialProgress
from assay.runs.workers.channel import Channel
from assay.runs.workers.ray import (
    Interpreter,
    PlaceOrder,
    RayExecutor,
    _ConnectionDesk,
    _UnknownConnection,
    hold_worker,
)

from .places import Place, node_settings
from .test_processes import AGENTS, Counted, agent_names, play, without_places

pytestmark = pytest.mark.usefixtures("compiled_engine")


@pytest.fixture
def nodes(cluster: Any) -> Iterator[Place]:
    """The cluster; its two nodes are restored afterwards."""
    yield Place({"executor": "ray", "ray_address": cluster.address}, cluster)
    # The cluster must have noticed the lost node, or it counts one too many.
    cluster.wait_for_nodes(timeout=60)
    while len(cluster.list_all_nodes()) < 2:
        cluster.add_node(**node_settings())


@pytest.mark.ray
def test_run_survives_the_loss_of_a_node(tmp_path: Path, nodes: Place) -> None:
    """The number of model calls is equal, too: no answer is lost with a node."""
    here, there, notices = Counted(), Counted(pause=0.02), list[str]()
    (tmp_path / "mine.py").write_text(AGENTS, "utf-8")
    settings: dict[str, Any] = {"agents": agent_names(tmp_path, "Twice"), "episodes": 4}
    play(tmp_path / "here", models=[here], **settings)
    turns = 0

    def listen(event: Event) -> None:
        nonlocal turns
        turns += isinstance(event, TrialProgress)
        # Each node gets half of them, so that the second one is busy.
        if turns == 25:
            workers = nodes.workers()
            assert len(workers) == 2
            (second,) = nodes.cluster.worker_nodes
            nodes.cluster.remove_node(second, allow_graceful=False)
            # No turn is played meanwhile: this waiting process makes the model calls.
            deadline = time.monotonic() + 60
            while all(Path(f"/proc/{pid}/exe").exists() for pid in workers):
                assert time.monotonic() < deadline
                time.sleep(0.05)

    result = play(
        tmp_path / "there",
        models=[there],
        **settings,
        **nodes.settings,
        concurrent_models=True,
        listen=listen,
        notice=notices.append,
    )
    assert result.status == "finished"
    assert not nodes.cluster.worker_nodes
    assert any("worker process" in line and "resume from" in line for line in notices), notices
    assert here.calls == there.calls == 4 * 5 + 4 * 5 * 2
    tables = [without_places(tmp_path / name / "traces.duckdb") for name in ("here", "there")]
    assert tables[0] == tables[1]


@pytest.mark.ray
def test_run_uses_only_free_cpus(
    tmp_path: Path, nodes: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy CPU costs one worker; if all are busy, an error reports it."""
    import ray
    from ray.util import placement_group

    monkeypatch.setattr(executor_choice, "RayExecutor", partial(RayExecutor, more_s=3))
    ray.init(nodes.cluster.address, log_to_driver=False, configure_logging=False)
    try:
        assert placement_group([{"CPU": 1}]).wait(30)
        result = play(tmp_path, models=["builtin/random"], **nodes.settings)
        assert result.status == "finished"
        assert placement_group([{"CPU": 1}]).wait(30)
        monkeypatch.setattr(executor_choice, "RayExecutor", partial(RayExecutor, room_s=1))
        words = r"for a worker \(1 CPU, 1 GiB\) within 1 s: the cluster has 2 CPUs, 0 of"
        with pytest.raises(UsageError, match=words):
            play(tmp_path / "full", models=["builtin/random"], **nodes.settings)
    finally:
        ray.shutdown()


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ray://head:10001", "is not a valid address; give HOST:PORT"),
        ("127.0.0.1:1", "no Ray cluster is reachable at --ray-address 127.0.0.1:1; run"),
    ],
)
def test_unreachable_cluster_is_named(tmp_path: Path, address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        play(tmp_path, models=["builtin/noop"], executor="ray", ray_address=address)


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is not None, reason="Ray is installed in this environment"
)
def test_missing_ray_is_reported_with_the_install_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"on every node \(pip install '\.\[ray\]'"):
        play(tmp_path, models=["builtin/noop"], executor="ray")


def order(**changes: Any) -> PlaceOrder:
    from assay import __version__

    given = PlaceOrder(
        ("127.0.0.1", 1), b"s" * 32, __version__, Interpreter("", ""), (), "", frozenset()
    )
    return given._replace(**changes)


def test_node_with_another_version_or_without_a_route_to_the_driver_is_reported() -> None:
    with pytest.raises(
        WorkerLost, match=r"has assay .*, the driver has 0.0.1; install the same"
    ):
        hold_worker(order(version="0.0.1"))
    with pytest.raises(WorkerLost, match=r"cannot reach the driver at 127.0.0.1:1: .*refused"):
        hold_worker(order())


UNPICKLED = list[str]()


class Explosive:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return explode, ("ran",)


def explode(what: str) -> str:
    UNPICKLED.append(what)
    return what


def test_driver_unpickles_nothing_before_the_worker_secret_is_checked() -> None:
    body = pickle.dumps((Explosive(),))
    packet = len(body).to_bytes(8, "big") + body

    async def knock(shown: bytes) -> list[Any]:
        """Return the messages that a driver accepts from a client with this secret."""
        UNPICKLED.clear()
        desk, received, over = _ConnectionDesk(), list[Any](), asyncio.Event()

        def receive(message: Any) -> None:
            received.append(message)
            over.set()

        class Expected:
            channel = Channel(receive, over.set)

        worker: Any = Expected()
        desk.expect(b"k" * 32, worker)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _UnknownConnection(desk), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(shown + packet)
        closed = asyncio.create_task(reader.read())
        await asyncio.wait(
            {closed, asyncio.create_task(over.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        with suppress(ConnectionError):
            writer.close()
            worker.channel.abort()
            await closed
        server.close()
        return received

    assert asyncio.run(knock(b"k" * 32)) == [("ran",)]
    assert UNPICKLED == ["ran"]
    assert asyncio.run(knock(b"x" * 32)) == []
    assert asyncio.run(knock(b"")) == []
    assert asyncio.run(knock(b"k" * 31)) == []
    assert UNPICKLED == []
