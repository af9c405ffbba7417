"""Tasks in Harbor's layout, from their images to their scores, in every sandbox."""

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from assay.bench.manifest import TrialResult
from assay.bench.prepare import prepare_bench
from assay.bench.regrade import bench_check, bench_eval
from assay.bench.run import BenchResult, bench_run
from assay.bench.task import TaskCheck
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import ResourceLimits
from assay.types import ChatModel
from tests.sandboxes.boxes import leftovers

from .coding_server import call
from .harbor_tasks import DOCKERFILE, SOLVE, TEST, harbor_task, steps_task
from .tasks import write
from .test_react_coder import InProcess

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
MODAL = pytest.param("modal", marks=pytest.mark.docker)
SAMPLE = Path(__file__).parents[2] / "examples/bench/harbor/roman-numerals"

also_on_modal = pytest.mark.parametrize("sandbox", [DOCKER, MODAL], indirect=True)
"""For behaviour that differs on a remote machine."""


@pytest.fixture(params=[DOCKER])
def sandbox(request: pytest.FixtureRequest) -> str:
    if request.param == "modal":
        request.getfixturevalue("modal_service")
    try:
        choose_backend(request.param).enforcement(ResourceLimits())
    except (SandboxUnavailable, UsageError) as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    return str(request.param)


class Bench:
    """Runs tasks in one sandbox, from one base image."""

    def __init__(self, folder: Path, sandbox: str, root: Path | None) -> None:
        self.folder, self.sandbox = folder, sandbox
        names = ("base:1", "python:3.12-slim")
        self.bases = [f"{name}={root}" for name in names if root is not None]
        if sandbox == "modal":  # Docker pulls base images, and builds with a network
            self.bases = []

    def run(self, task: Path, *agents: str) -> list[TrialResult]:
        """Run one trial for each agent; a command line is run by the agent `command`."""
        return list(self.result(task, *agents).manifest.results)

    def result(
        self,
        task: Path,
        *agents: str,
        models: Mapping[str, ChatModel] | None = None,
        **keys: object,
    ) -> BenchResult:
        tables = []
        for number, agent in enumerate(agents):
            named = agent in ("oracle", "nop", "react-coder")
            who = f'agent = "{agent}"' if named else f"command = {json.dumps(agent)}"
            said = [f"{name} = {json.dumps(value)}" for name, value in keys.items()]
            lines = ["[[tasks]]", f'prepared_dir = "{task}"', who, f'label = "{number}"', *said]
            tables.append("\n".join(lines if named else [*lines, 'agent = "command"']))
        file = self.folder / "bench.toml"
        file.write_text(f'[defaults]\nsandbox = "{self.sandbox}"\n' + "\n".join(tables))
        return bench_run(
            file,
            data_dir=self.folder / "data",
            database=self.folder / "traces.duckdb",
            base_images=self.bases,
            build_network=self.sandbox == "modal",
            models=models,
            fresh=True,
        )

    def check(self, task: Path) -> tuple[TaskCheck, ...]:
        return bench_check(
            task,
            tries=1,
            sandbox=self.sandbox,
            base_images=self.bases,
            build_network=self.sandbox == "modal",
        )


@pytest.fixture
def bench(tmp_path: Path, sandbox: str, image_root: Path) -> Bench:
    return Bench(tmp_path, sandbox, image_root)


def found(trial: TrialResult) -> dict[str, str]:
    return dict(trial.findings)


@also_on_modal
def test_sample_task_is_graded_by_its_own_tests(bench: Bench) -> None:
    oracle, nop, half = bench.run(SAMPLE, "oracle", "nop", "sed -i 's/sum/max/' roman.py")
    assert (oracle.outcome, oracle.score) == ("solved", 1.0)
    assert dict(oracle.custom_metrics) == {"reward": 1.0, "tests": 3.0}
    assert (nop.outcome, nop.score) == ("unsolved", 0.0)
    assert half.score == 0.0
    changed = Path(oracle.run_dir, "artifacts/changes.tar")
    with tarfile.open(changed) as tar:
        files = [member.name for member in tar if member.isreg()]
    assert files == ["app/roman.py"], "neither tests nor what they wrote"
    assert not leftovers()


def test_check_passes_for_the_sample_task(bench: Bench) -> None:
    checks = bench.check(SAMPLE)
    assert [check.name for check in checks] == ["reference", "doing nothing", "hidden files"]
    assert all(check.passed for check in checks), checks


@also_on_modal
def test_changes_of_an_agent_to_tests_and_rewards_are_ignored(
    bench: Bench, tmp_path: Path
) -> None:
    task = harbor_task(tmp_path / "task")
    forges = (
        "mkdir -p /tests /logs/verifier; cd /logs/verifier; echo 1 > reward.txt; "
        "echo '{\"reward\": 1}' > reward.json; echo 'echo 1 > $PWD/reward.txt' > /tests/test.sh"
    )
    waits = "(while true; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) & exit 0"
    links = (
        "rm -rf /logs; ln -s /app /logs; mkdir /app/verifier; echo 1 > /app/verifier/reward.txt"
    )
    breaks = "rm -rf /usr/bin /bin"
    trials = bench.run(task, forges, waits, links, breaks)
    assert [trial.score for trial in trials] == [0.0, 0.0, 0.0, 0.0]
    assert "left_processes" in found(trials[1])
    assert (trials[2].outcome, trials[3].outcome) == ("tampered", "tests_did_not_run")


def test_tests_that_use_programs_of_the_agent_are_reported(
    bench: Bench, tmp_path: Path
) -> None:
    task = harbor_task(tmp_path / "task")
    swapped = "printf '#!/bin/sh\\necho done\\n' > /usr/bin/cat; chmod +x /usr/bin/cat"
    (trial,) = bench.run(task, swapped)
    assert "/usr/bin/cat" in found(trial)["programs_changed"]


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("#!/bin/sh\nexit 0\n", "tests_did_not_run"),
        ("#!/bin/sh\necho x > /logs/verifier/reward.txt\n", "tests_did_not_run"),
        (
            "#!/bin/sh\ncd /logs/verifier\necho 1 > reward.txt;echo '{\"a\": 0}' > reward.json",
            "rewards_disagree",
        ),
        ("#!/bin/sh\nsleep 100\n", "grading_timeout"),
    ],
)
def test_outcome_gives_the_reason_for_a_missing_reward(
    bench: Bench, tmp_path: Path, test: str, outcome: str
) -> None:
    config = "[verifier]\ntimeout_sec = 1\n"
    (trial,) = bench.run(harbor_task(tmp_path / "task", config, test=test), "oracle")
    assert (trial.outcome, trial.score) == (outcome, 0.0)


def test_reward_out_of_range_is_clipped_and_reported(bench: Bench, tmp_path: Path) -> None:
    test = "#!/bin/sh\necho 7 > /logs/verifier/reward.txt\n"
    (trial,) = bench.run(harbor_task(tmp_path / "task", test=test), "nop")
    assert (trial.score, dict(trial.custom_metrics)) == (1.0, {"reward": 7.0})
    assert "reward_out_of_range" in found(trial)


@also_on_modal
def test_separate_verifier_gets_only_artifacts(bench: Bench, tmp_path: Path) -> None:
    config = """
    artifacts = ["/app/answer.txt", { source = "/app/out", exclude = ["*.log"] }]
    [verifier]
    environment_mode = "separate"
    [[verifier.collect]]
    command = "echo collected > /app/out/state"
    [verifier.environment]
    network_mode = "no-network"
    [verifier.environment.env]
    WHERE = "verifier"
    """
    test = """\
#!/bin/sh
[ "$(cat /app/answer.txt)" = done ] && [ "$(cat /app/out/state)" = collected ] &&
  [ ! -e /app/out/a.log ] && [ ! -e /app/start.txt ] &&
  [ "$(cat /logs/artifacts/p)" = published ] &&
  [ "$WHERE" = verifier ] && [ -e /verifier ] && echo 1 > /logs/verifier/reward.txt
"""
    dockerfile = (
        "FROM base:1\nCOPY test.sh /tests/\nRUN touch /verifier; chmod 755 /tests/test.sh\n"
    )
    files = {
        "tests/Dockerfile": dockerfile,
        "solution/solve.sh": SOLVE
        + "mkdir /app/out; touch /app/out/a.log; echo published > /logs/artifacts/p\n",
    }
    task = harbor_task(tmp_path / "task", config, files, test=test)
    oracle, nop = bench.run(task, "oracle", "nop")
    assert (oracle.outcome, oracle.score) == ("solved", 1.0)
    assert nop.outcome == "tests_did_not_run"


STEPS = """
[[steps]]
name = "one"
min_reward = 1.0
[[steps]]
name = "two"
"""
ONE = "#!/bin/sh\n[ -e /app/one ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
TWO = ONE.replace("&&", "&& [ -e /app/two ] &&", 1)


@also_on_modal
def test_steps_share_state_and_stop_at_a_gate(bench: Bench, tmp_path: Path) -> None:
    solve = {"one": ("#!/bin/sh\ntouch one\n", ONE), "two": ("#!/bin/sh\ntouch two\n", TWO)}
    task = steps_task(tmp_path / "task", STEPS, solve)
    write(
        task,
        {"steps/two/workdir/given.txt": "x", "steps/two/workdir/setup.sh": "touch ready\n"},
    )
    both = (
        "if [ -e one ]; then [ -e ready ] && [ -e given.txt ] && touch two; else touch one; fi"
    )
    oracle, worker, nop = bench.run(task, "oracle", both, "nop")
    assert [(trial.outcome, trial.score) for trial in (oracle, worker)] == [("solved", 1.0)] * 2
    assert dict(oracle.custom_metrics) == {"reward": 1.0, "one/reward": 1.0, "two/reward": 1.0}
    assert nop.score == 0.0
    assert found(nop)["steps_not_begun"] == "two was not started, because one did not succeed"


def test_last_step_can_decide_the_score(bench: Bench, tmp_path: Path) -> None:
    config = 'multi_step_reward_strategy = "final"\n' + STEPS.replace("min_reward = 1.0", "")
    last = "#!/bin/sh\n[ -e /app/two ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    solve = {"one": ("#!/bin/sh\n", ONE), "two": ("#!/bin/sh\ntouch two\n", last)}
    (trial,) = bench.run(steps_task(tmp_path / "task", config, solve), "oracle")
    assert (trial.outcome, trial.score) == ("solved", 1.0)


def test_a_model_works_in_the_folder_of_the_image(bench: Bench, tmp_path: Path) -> None:
    model = InProcess(
        [
            call("bash", {"command": "pwd; cat start.txt"}),
            call("write", {"path": "answer.txt", "content": "done\n"}),
            call("submit", {"notes": "wrote it"}),
        ]
    )
    task = harbor_task(tmp_path / "task")
    result = bench.result(task, "react-coder", models={"mine": model}, model="mine")
    (trial,) = result.manifest.results
    assert (trial.outcome, trial.model_calls) == ("solved", 3)
    log = Path(trial.run_dir, "logs/agent.log").read_bytes()
    assert b"/app\nstart\n" in log


@also_on_modal
def test_user_workdir_and_variables_come_from_the_task(bench: Bench, tmp_path: Path) -> None:
    config = """
    [agent]
    user = "ada"
    [environment]
    network_mode = "no-network"
    workdir = "/home/ada"
    [environment.env]
    A = "1"
    [solution.env]
    B = "2"
    [verifier.env]
    C = "3"
    [environment.healthcheck]
    command = "test -d /home/ada"
    """
    files = {
        "environment/Dockerfile": f"{DOCKERFILE}RUN chown ada /home/ada\n",
        "solution/solve.sh": '#!/bin/sh\necho "$(whoami) $(pwd) $A $B" > said\n',
    }
    test = """\
#!/bin/sh
[ "$(cat said) $C" = "ada /home/ada 1 2 3" ] && echo 1 > /logs/verifier/reward.txt
"""
    (trial,) = bench.run(harbor_task(tmp_path / "task", config, files, test=test), "oracle")
    assert (trial.outcome, trial.score) == ("solved", 1.0), trial


def test_trial_is_regraded_from_its_files(bench: Bench, tmp_path: Path) -> None:
    result = bench.result(harbor_task(tmp_path / "task"), "oracle")
    graded = bench_eval(str(result.folder), data_dir=tmp_path / "data", again=True)
    assert [trial.result.score for trial in graded] == [1.0]
    assert all(trial.is_new for trial in graded)


def test_unsupported_task_is_rejected_by_run_and_reported_by_check(
    bench: Bench, tmp_path: Path
) -> None:
    task = harbor_task(tmp_path / "task", "[environment]\ngpus = 2\n")
    with pytest.raises(UsageError, match=r"environment\.gpus 2"):
        bench.run(task, "nop")
    assert [(check.name, check.detail) for check in bench.check(task)] == [
        ("refused", "environment.gpus 2")
    ]
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_sandbox_without_images_is_rejected_by_run_and_reported_by_check_and_plan(
    sandbox: str, tmp_path: Path
) -> None:
    task = harbor_task(tmp_path / "task", test=TEST)
    bench = Bench(tmp_path, sandbox, None)
    words = f"a task with a Dockerfile cannot run in sandbox '{sandbox}'; install Docker"
    with pytest.raises(UsageError, match=words):
        bench.run(task, "nop")
    (check,) = bench.check(task)
    assert check.name == "refused"
    assert check.detail.startswith(words)
    planned = prepare_bench(tmp_path / "bench.toml", {}, dry=True).run
    assert any(words in warning for warning in planned.warnings)
    assert not (tmp_path / "data").exists()
