"""Coding agents in Python, as `my_agent.py:MyAgent`: run in the sandbox, data on the host."""

from pathlib import Path

import pytest

import assay
from assay.bench.attempt import make_entry_agent
from assay.bench.coders.agents import make_coding_agent
from assay.bench.prepare import prepare_bench
from assay.errors import UsageError
from tests.sandboxes.boxes import usable

from ..test_docs import BLOCKS
from .coding_server import Message, serving, steps
from .harbor_tasks import DOCKERFILE, harbor_task
from .runs import PATCH, calc_task, entry, here, results, toml
from .tasks import write

AGENT = "my_agent.py:MyAgent"
DOCUMENTED = next(block.text for block in BLOCKS if block.marks.strip() == "my_agent.py")
SOLVED: Message = {"role": "assistant", "content": PATCH}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    calc_task(tmp_path / "task")
    write(tmp_path, {"my_agent.py": DOCUMENTED})
    toml(tmp_path / "bench.toml", entry(model="solver"))
    return tmp_path


@pytest.mark.bench
def test_documented_agent_solves_a_task_through_the_proxy(folder: Path) -> None:
    usable(None)
    assert len([line for line in DOCUMENTED.splitlines() if line.strip()]) <= 10
    with serving(solver=steps(SOLVED)) as server:
        ended = assay.bench_run(
            "bench.toml", agent=AGENT, openai_base_url=server.url, price="1/10"
        )
    (result,) = ended.manifest.results
    assert (result.outcome, result.score, result.agent_stop) == ("solved", 1, "completed")
    assert (result.arm, result.model_calls) == ("my_agent.py:MyAgent+solver", 1)
    (request,) = server.asked
    assert request["model"] == "solver", "not the name that the agent uses"
    assert request["messages"][0]["content"].startswith("Mend add and double.\n")


NOISY = """\
import asyncio, contextlib, os, sys

with contextlib.suppress(OSError):
    open({marker!r}, "w").close()
print("loaded from", __file__)


class MyAgent:
    async def work(self, instructions, workspace):
        for path in (__file__, "/app/LM_INSTRUCTIONS.md"):
            try:
                open(path, "a")
            except OSError:
                print("read-only", path)
        open("calc.py", "a").write("# seen\\n")
        await asyncio.sleep(0)
        return f"key {{os.environ['OPENAI_API_KEY']}}, in {{workspace}}, {{os.getcwd()}}"
"""


@pytest.mark.bench
def test_agent_file_is_never_imported_on_the_host_and_cannot_be_written_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usable(None)
    marker = folder / "imported-on-the-host"
    source = NOISY.format(marker=str(marker))
    write(folder, {"agents/my_agent.py": source})
    with serving(solver=steps(SOLVED)) as server:
        said = here(
            capsys,
            *("bench", "run", "bench.toml", "--agent", "agents/my_agent.py:MyAgent"),
            *("--openai-base-url", server.url),
        )
    (result,) = results(folder)
    assert (said.code, result["agent_stop"]) == (0, "completed"), said
    assert not marker.exists()
    assert [path.name for path in (folder / "agents").iterdir()] == ["my_agent.py"]
    assert (folder / "agents/my_agent.py").read_text("utf-8") == source
    log = Path(result["run_dir"], "logs/agent.log").read_text("utf-8")
    assert log.count("read-only") == 2
    assert "key none, in /app/repo, /app/repo" in log
    notes = Path(result["run_dir"], "artifacts/notes.md").read_text("utf-8")
    assert notes.strip().endswith("in /app/repo, /app/repo")


@pytest.mark.bench
def test_agent_that_raises_has_failed_and_its_files_are_graded(folder: Path) -> None:
    usable(None)
    body = "class MyAgent:\n    def work(self, instructions, workspace):\n"
    write(folder, {"my_agent.py": f"{body}        raise RuntimeError('lost')\n"})
    with serving(solver=steps(SOLVED)) as server:
        ended = assay.bench_run("bench.toml", agent=AGENT, openai_base_url=server.url)
    (result,) = ended.manifest.results
    assert (result.outcome, result.agent_stop, result.score) == (
        *("agent_failed", "agent_failed"),
        0,
    )
    assert "RuntimeError: lost" in Path(result.run_dir, "logs/agent.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("agent", "source", "expected"),
    [
        pytest.param("other.py:A", None, "agent: 'other.py' not found", id="no file"),
        pytest.param(
            "a.py:A", "class B: ...", "a.py has no class 'A'; it has B", id="no class"
        ),
        pytest.param("a.py:A", "from b import A", "a.py has no class 'A'", id="only imported"),
        pytest.param("a.py:A", "class A:\n  x = (", "a.py:2: not valid Python", id="syntax"),
        pytest.param("a.py:A", "a = 1\0", "a.py: not valid Python|a.py:1", id="null byte"),
        pytest.param("a.py:A", "class A: ...", "'A' has no method work", id="no method"),
        pytest.param("a.py", "class A: ...", "a class in a file, my_agent.py", id="no name"),
    ],
)
def test_invalid_agent_is_an_error_before_the_run(
    agent: str, source: str | None, expected: str, folder: Path
) -> None:
    if source is not None:
        write(folder, {"a.py": source})
    with pytest.raises(UsageError, match=expected):
        prepare_bench(Path("bench.toml"), {}, agent=agent, dry=True)


def test_agent_needs_a_model_and_a_sandbox(folder: Path) -> None:
    with pytest.raises(UsageError, match="must be mounted in its sandbox"):
        prepare_bench(Path("bench.toml"), {}, agent=AGENT, sandbox="none", dry=True)
    toml(folder / "bench.toml", entry(agent=AGENT))
    with pytest.raises(UsageError, match="needs a model, but the task has none"):
        prepare_bench(Path("bench.toml"), {}, dry=True)


def test_hash_of_the_file_is_part_of_the_run_and_of_the_version(folder: Path) -> None:
    write(folder, {"sub/bench.toml": entry("../task", model="gpt-4o-mini", agent=AGENT)})
    write(folder, {"sub/my_agent.py": DOCUMENTED})
    (folder / "my_agent.py").unlink()
    first = prepare_bench(Path("sub/bench.toml"), {}, dry=True)
    assert first.config.tasks[0].agent == "sub/my_agent.py:MyAgent"
    write(folder, {"sub/my_agent.py": f"{DOCUMENTED}\n# changed\n"})
    second = prepare_bench(Path("sub/bench.toml"), {}, dry=True)
    assert first.config.agent_hashes != second.config.agent_hashes
    versions = [prepared.run.arms[0].version for prepared in (first, second)]
    assert versions[0]["agent_hash"] != versions[1]["agent_hash"]
    with pytest.raises(UsageError, match=r"my_agent.py changed after the run started"):
        make_entry_agent(first.config.tasks[0], first.config)
    plain = prepare_bench(Path("bench.toml"), {}, agent="nop", dry=True)
    assert "agent_hashes" not in plain.config.stored()


def test_agent_in_python_runs_inside_and_mounts_no_folder(folder: Path) -> None:
    coder = make_coding_agent(AGENT)
    assert (coder.name, coder.needs_model, coder.runs_inside) == (AGENT, True, True)
    assert coder.program is None


@pytest.mark.docker
def test_image_without_python_is_rejected_before_the_run(
    folder: Path, image_root: Path
) -> None:
    usable("docker")
    gone = f"{DOCKERFILE}RUN rm -f /usr/bin/python3* /usr/local/bin/python3*\n"
    harbor_task(folder / "bare", files={"environment/Dockerfile": gone})
    toml(folder / "bench.toml", entry("bare", model="solver", sandbox="docker"))
    with (
        serving(solver=steps(SOLVED)) as server,
        pytest.raises(
            UsageError, match=r"needs python3 in the image of bare, which does not have it"
        ),
    ):
        assay.bench_run(
            "bench.toml",
            agent=AGENT,
            openai_base_url=server.url,
            base_images=[f"base:1={image_root}"],
        )
    assert not (folder / "data").exists()


WRITES = """\
class MyAgent:
    def work(self, instructions, workspace):
        open("/app/answer.txt", "w").write("done")
"""


@pytest.mark.docker
def test_agent_solves_a_harbor_task_with_the_python_of_its_image(
    folder: Path, image_root: Path
) -> None:
    usable("docker")
    harbor_task(folder / "harbor")
    write(folder, {"my_agent.py": WRITES})
    toml(folder / "bench.toml", entry("harbor", model="solver", sandbox="docker"))
    with serving(solver=steps(SOLVED)) as server:
        ended = assay.bench_run(
            "bench.toml",
            agent=AGENT,
            openai_base_url=server.url,
            base_images=[f"base:1={image_root}"],
        )
    (result,) = ended.manifest.results
    assert (result.outcome, result.score) == ("solved", 1)
