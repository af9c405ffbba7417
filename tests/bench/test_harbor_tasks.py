"""Reading Harbor task folders: schemas, rejected keys, and rewards."""

from pathlib import Path

import pytest

from assay.bench.base import Allowed, CodingOutcome
from assay.bench.harbor.rewards import combine_rewards, read_rewards, read_tests, select_reward
from assay.bench.harbor.schema import read_task_file
from assay.bench.harbor.task import (
    HarborTask,
    find_task_problems,
    is_harbor_task,
    load_harbor_task,
)
from assay.bench.task_layouts import load_any_task
from assay.errors import UsageError

from .harbor_tasks import harbor_task, steps_task
from .tasks import make_task, write

OLD = """\
version = "1.0"
[metadata]
author_name = "Ada"
[agent]
timeout_sec = 900.0
[verifier]
timeout_sec = 240
[environment]
build_timeout_sec = 60.0
memory = "2G"
storage = "512M"
cpus = 2
allow_internet = false
"""


def loaded(folder: Path) -> HarborTask:
    task = load_any_task(folder).definition
    assert isinstance(task, HarborTask)
    return task


def read(tmp_path: Path, text: str) -> HarborTask:
    folder = harbor_task(tmp_path / "task", files={"task.toml": text})
    return loaded(folder)


def test_keys_of_the_first_schema_are_still_read(tmp_path: Path) -> None:
    task = read(tmp_path, OLD)
    assert dict(task.limits) == {"cpus": 2, "memory_mb": 2048, "disk_mb": 512}
    (step,) = task.steps
    assert (step.network, step.timeout_s) == (False, 900)
    assert step.verification.timeout_s == 240
    assert task.task_id == "task"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.4"])
def test_every_schema_is_read_without_invented_resources(tmp_path: Path, version: str) -> None:
    task = read(tmp_path, f'schema_version = "{version}"\n[task]\nname = "org/it"\n')
    assert (task.task_id, task.title, dict(task.limits)) == ("it", "org/it", {})
    assert task.steps[0].network, "Harbor's default is a network"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('schema_version = "2.0"', "schema_version: '2.0' is not allowed"),
        ("[environment]\ncpu = 1", r"\[environment\]: unknown key 'cpu'; did you mean 'cpus'"),
        ('[environment]\ncpus = "2"', "environment.cpus: '2' is not allowed"),
        (
            '[environment]\nmemory = "2G"\nmemory_mb = 1',
            "memory and memory_mb must be equal",
        ),
        ('[environment]\nmemory = "lots"', "give a size such as '2G'"),
        (
            '[environment]\nworkdir = "app"',
            "environment.workdir: 'app' is not allowed: give an abs",
        ),
        ('[environment.env]\n"A-B" = "1"', "environment.env.A-B"),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n', "separate"),
        ('[[steps]]\nname = "../up"', "give a folder below steps"),
        ('[[artifacts]]\nsource = "/a/../b"', "a path without '..'"),
        ("steps = 1", "steps: 1 is not allowed"),
        ("= 1", "cannot be read"),
    ],
)
def test_a_wrong_task_file_names_key_and_value(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "task.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_task_file(path)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ('[environment]\nos = "windows"', "environment.os 'windows'"),
        ("[environment]\ngpus = 1", "environment.gpus 1"),
        ('[environment.tpu]\ntype = "v4"', "environment.tpu"),
        ('[[environment.mcp_servers]]\nname = "m"', "environment.mcp_servers"),
        ('[environment]\nskills_dir = "/s"', "environment.skills_dir"),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.org"]',
            "network_mode 'allowlist'",
        ),
        ('[agent]\nnetwork_mode = "allowlist"', "network_mode 'allowlist'"),
        ('[[artifacts]]\nsource = "/a"\nservice = "db"', "artifact of service 'db'"),
        ('artifacts = ["a"]', "artifact 'a' is not an absolute path"),
        ('[[verifier.collect]]\ncommand = "x"\nservice = "db"', "verifier.collect of service"),
        ('[verifier.env]\nOPENAI_API_KEY = "${OPENAI_API_KEY}"', "looks like a secret"),
        ('[environment.env]\nA = "${NOT_SET_ANYWHERE}"', "needs the variable NOT_SET_ANYWHERE"),
        ('[verifier]\nenvironment_mode = "separate"', "no tests/Dockerfile"),
        ('[[steps]]\nname = "one"', "no steps/one/instruction.md"),
    ],
)
def test_unsupported_keys_are_reported_before_the_run_starts(
    tmp_path: Path, config: str, name: str
) -> None:
    folder = harbor_task(tmp_path / "task", config)
    assert any(name in problem for problem in find_task_problems(folder))
    with pytest.raises(UsageError, match="is not supported here"):
        load_any_task(folder)


def test_all_unsupported_files_are_reported_together(tmp_path: Path) -> None:
    files = {"environment/docker-compose.yaml": "x: 1\n", "trajectory.json": "{}"}
    folder = harbor_task(tmp_path / "task", files=files, without=("tests/test.sh",))
    assert find_task_problems(folder) == (
        "environment/docker-compose.yaml (several containers)",
        "trajectory.json (a conversation to resume)",
        "no tests/test.sh",
    )


def test_phases_have_their_own_network_user_and_time(tmp_path: Path) -> None:
    config = """
    [agent]
    user = "ada"
    network_mode = "no-network"
    [verifier]
    user = 1234
    [environment]
    network_mode = "public"
    """
    (step,) = loaded(harbor_task(tmp_path / "task", config)).steps
    assert (step.user, step.network) == ("ada", False)
    assert step.verification.user == "1234"


def test_steps_inherit_missing_keys_from_the_task(tmp_path: Path) -> None:
    config = """
    artifacts = ["/app/a"]
    [verifier.env]
    A = "1"
    [agent]
    timeout_sec = 10
    [[steps]]
    name = "one"
    min_reward = 1
    [[steps]]
    name = "two"
    artifacts = [{ source = "/app/b", exclude = ["*.log"] }]
    [steps.agent]
    timeout_sec = 20
    [steps.verifier.env]
    B = "2"
    """
    steps = {"one": ("", ""), "two": ("", "")}
    one, two = loaded(steps_task(tmp_path / "task", config, steps)).steps
    assert (dict(one.min_rewards), dict(two.min_rewards)) == ({"reward": 1.0}, {})
    assert (one.timeout_s, two.timeout_s) == (10, 20)
    assert dict(two.verification.variables) == {"A": "1", "B": "2"}
    assert [part.source for part in two.verification.artifacts] == ["/app/a", "/app/b"]


def test_a_variable_may_come_from_this_machine_or_have_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "here")
    config = '[environment.env]\nA = "${MINE}"\nB = "${NOT_SET:-other}"\nC = "plain $X"\n'
    folder = harbor_task(tmp_path / "task", config)
    with pytest.raises(UsageError, match="--allow-variable MINE"):
        load_harbor_task(folder)
    task = load_harbor_task(folder, Allowed(variables=("MINE",)))
    assert dict(task.environment) == {"A": "here", "B": "other", "C": "plain $X"}


def test_training_canaries_are_hidden_from_the_agent(tmp_path: Path) -> None:
    text = "<!-- a canary 1 -->\n# canary GUID 2\n\nDo it.\n# canary\n"
    task = loaded(harbor_task(tmp_path / "task", files={"instruction.md": text}))
    assert task.instructions == "Do it.\n# canary\n"


def test_task_folder_is_recognized_and_any_change_changes_its_checksum(tmp_path: Path) -> None:
    folder = harbor_task(tmp_path / "task")
    own = make_task(tmp_path / "own")
    assert (is_harbor_task(folder), is_harbor_task(own)) == (True, False)
    before = load_any_task(folder).definition.checksum
    write(folder, {"tests/more.txt": "x"})
    assert load_any_task(folder).definition.checksum != before
    with pytest.raises(UsageError, match="has no overrides"):
        load_any_task(folder, tmp_path / "overrides.json")


# Rewards


@pytest.mark.parametrize(
    ("files", "rewards"),
    [
        ({"reward.txt": "1\n"}, {"reward": 1.0}),
        ({"reward.txt": " 0.25 "}, {"reward": 0.25}),
        ({"reward.json": '{"reward": 0.5, "style": 2}'}, {"reward": 0.5, "style": 2.0}),
        ({"reward.json": '{"accuracy": 0.5}'}, {"accuracy": 0.5}),
        ({"reward.json": '{"reward": 1}', "reward.txt": "1.0"}, {"reward": 1.0}),
    ],
)
def test_rewards_are_read_from_the_json_file_first(
    tmp_path: Path, files: dict[str, str], rewards: dict[str, float]
) -> None:
    write(tmp_path, files)
    assert read_rewards(tmp_path).rewards == rewards


def test_contradicting_rewards_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, {"reward.json": '{"reward": 1}', "reward.txt": "0"})
    reading = read_rewards(tmp_path)
    assert (reading.rewards, reading.outcome) == (None, CodingOutcome.REWARDS_DISAGREE)
    (finding,) = reading.findings
    assert finding.detail == "reward.json: 1, reward.txt: 0"


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"reward.txt": ""},
        {"reward.txt": "good"},
        {"reward.txt": "nan"},
        {"reward.json": "[1]"},
        {"reward.json": "{}"},
        {"reward.json": '{"reward": true}'},
        {"reward.json": '{"a": 1, "b": 1}'},
        {"reward.json": '{"reward": 1e999}'},
    ],
)
def test_invalid_reward_means_that_the_tests_did_not_run(
    tmp_path: Path, files: dict[str, str]
) -> None:
    write(tmp_path, files)
    reading = read_rewards(tmp_path)
    assert (reading.rewards, reading.outcome) == (None, CodingOutcome.TESTS_DID_NOT_RUN)


def test_a_link_is_not_followed_to_a_reward(tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere": "1"})
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/reward.txt").symlink_to(tmp_path / "elsewhere")
    assert read_rewards(tmp_path / "logs").rewards is None


def test_rewards_of_steps_are_their_mean_or_the_last() -> None:
    steps = [{"reward": 1.0, "style": 0.5}, {"reward": 0.0}, None]
    assert combine_rewards(steps, "mean") == {"reward": 0.5, "style": 0.25}
    assert combine_rewards(steps[:2], "final") == {"reward": 0.0}
    assert combine_rewards(steps, "final") == {}
    assert select_reward({"accuracy": 0.5}) == 0.5


def test_single_tests_are_read_from_a_report(tmp_path: Path) -> None:
    report = '{"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b",'
    write(tmp_path, {"ctrf.json": report + '"status": "other", "message": "m"}]}}'})
    found = read_tests(tmp_path, "test.sh")
    assert [(test.name, test.status) for test in found] == [("a", "passed"), ("b", "error")]
    write(tmp_path, {"ctrf.json": "[]"})
    assert read_tests(tmp_path, "test.sh") == ()
