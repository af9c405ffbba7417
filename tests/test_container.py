"""The container of docs/containers.md, built without a network and run like a batch job."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli import main
from tests.sandboxes.boxes import usable
from tests.sandboxes.rootfs import copy_libraries, slim_root

pytestmark = pytest.mark.docker
HERE = Path(__file__).parents[1]


def docker(*arguments: str | Path) -> str:
    environment = os.environ | {"DOCKER_BUILDKIT": "0"}
    done = subprocess.run(
        ["docker", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    usable("docker")
    folder = tmp_path_factory.mktemp("container")
    base, image = f"assay-test-base:{os.getpid()}", f"assay-test:{os.getpid()}"
    # In place of python:3.11-slim-bookworm, which would have to be pulled.
    root = slim_root(folder / "root")
    copy_libraries(root, "libstdc++", "libz")
    packages = root / f"usr/local/lib/python{sysconfig.get_python_version()}/site-packages"
    shutil.copytree(Path(sysconfig.get_path("purelib"), "pip"), packages / "pip")
    subprocess.run(["tar", "-C", root, "-cf", folder / "root.tar", "."], check=True)
    docker("import", "--change", "ENV PATH=/usr/local/bin:/usr/bin", folder / "root.tar", base)

    checkout = folder / "checkout"
    subprocess.run(["git", "clone", "--quiet", HERE, checkout], check=True)
    for name in ("Dockerfile", ".dockerignore"):
        shutil.copy(HERE / name, checkout / name)
    wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", "wheels"]
    subprocess.run(
        [*wheels, "--constraint", "constraints.txt", ".", "hatchling"], check=True, cwd=checkout
    )
    offline = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/tmp/assay/wheels", f"BASE={base}")
    given = [option for value in offline for option in ("--build-arg", value)]
    docker("build", "--network", "none", "--tag", image, *given, checkout)
    yield image
    docker("rmi", "--force", image, base)


def test_jobs_write_to_a_mounted_folder_and_their_databases_are_merged(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    for job in range(2):
        docker(
            *("run", "--rm", "--network", "none", "--user", "1234:1234"),
            *("--mount", f"type=bind,source={tmp_path},target=/results", image),
            *("run", "--models", "builtin/forager", "--episodes", "2", "--max-turns", "5"),
            *("--seed", str(100 + 2 * job), "--database", f"job-{job}.duckdb", "--quiet"),
        )
    database = tmp_path / "all.duckdb"
    jobs = sorted(map(str, tmp_path.glob("job-*.duckdb")))
    assert main(["traces", "merge", *jobs, "--database", str(database)]) == 0
    capsys.readouterr()
    assert main(["traces", "list", "--json", "--database", str(database)]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    episodes = [episode for run in runs for episode in run["sessions"]]
    played = {
        (episode["seed"], episode["state"])
        for episode in episodes
        if episode["model"] == "builtin/forager"
    }
    assert played == {(seed, "result") for seed in range(100, 104)}
