import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from cyclopts import App
from PIL import Image
from rich.console import Console

from assay import __version__
from assay.agents.options import ViewForm
from assay.cli import app
from assay.crafter import DIFFICULTIES
from assay.crafter.players.policies import POLICIES
from assay.judge.results import TaskRule
from assay.runs.prepare import ALLOWED
from assay.store.training_runs import TrainingStatus
from tests.golden.outputs import help_lines
from tests.support import Program, call_assay, run_python

pytestmark = pytest.mark.usefixtures("compiled_engine")

COMMANDS = [name for name in app if not name.startswith("-")]


def assay(*arguments: str) -> str:
    """Run the program in a subprocess without a terminal."""
    return run_python("-m", "assay", *arguments).output


def error_of(*arguments: str) -> str:
    """Return the one error line of a wrong command line."""
    line = Program().error(*arguments)
    assert line.startswith("error: ")
    return line


def test_version_is_the_package_version() -> None:
    assert assay("--version") == f"assay {__version__}\n"


def test_help_shows_the_groups_that_have_commands() -> None:
    text = assay("--help")
    assert all(
        f"─ {group} ─" in text for group in ("Run", "Compare", "Improve", "Inspect", "Serve")
    )
    assert all(f"│ {name} " in text for name in COMMANDS)


def test_missing_command_shows_help() -> None:
    assert assay() == assay("--help")


def loaded_by(*command_lines: tuple[str, ...]) -> list[set[str]]:
    """Return the modules loaded by one process after each command line."""
    program = (
        "import contextlib, io, json, sys\n"
        "from assay.cli import main\n"
        "loaded = []\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        assert main(words) == 0\n"
        "    loaded.append(list(sys.modules))\n"
        "print(json.dumps(loaded))"
    )
    done = run_python("-c", program, json.dumps(command_lines))
    return [set(names) for names in json.loads(done.output)]


HEAVY = {
    *(
        "PIL",
        "aiohttp",
        "crafter",
        "duckdb",
        "gymnasium",
        "httptools",
        "llvmlite",
        "matplotlib",
    ),
    *("modal", "numba", "numpy", "openai", "optuna", "pandas", "playwright", "pyarrow"),
    *(
        "pydantic",
        "ray",
        "safetensors",
        "scipy",
        "starlette",
        "statsmodels",
        "torch",
        "uvicorn",
    ),
    *("uvloop", "websockets"),
}
"""Packages that are slow to load."""
OF_A_DRY_RUN = {
    *("PIL", "duckdb", "llvmlite", "numba", "numpy", "pyarrow", "pydantic", "scipy"),
}


def test_help_and_version_load_nothing_heavy() -> None:
    # The settings of these two import curricula, which are arrays; so they are last.
    with_arrays = [("launch", "--help"), ("train", "--help")]
    lines = [("--version",), *(words for words in help_lines(app) if words not in with_arrays)]
    loaded = loaded_by(*lines, *with_arrays)
    for words, names in zip([*lines, *with_arrays], loaded, strict=True):
        assert names & HEAVY <= ({"numpy"} if words in with_arrays else set()), words
    assert lines[1] == ("--help",)
    assert "assay.cli.play" in loaded[1]
    rooms = ("agents", "crafter", "finetune", "judge", "stats", "training")
    assert not loaded[1] & {f"assay.{room}" for room in rooms}


def test_a_dry_run_loads_no_more_heavy_packages_than_it_did(tmp_path: Path) -> None:
    database = str(tmp_path / "new.duckdb")
    [loaded] = loaded_by(("run", "--dry-run", "--json", "--database", database))
    assert loaded & HEAVY <= OF_A_DRY_RUN


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_that_parses(command: str) -> None:
    _, _, rest = Program()(command, "--help").output.partition("For example:")
    example = next(line.strip() for line in rest.splitlines() if line.strip())
    program, *tokens = shlex.split(example)
    assert (program, tokens[0]) == ("assay", command)
    app.parse_args(tokens, exit_on_error=False, print_error=False)


WITH_DEFAULTS = re.compile(r"unless given|without it\b|by default", re.IGNORECASE)
VOCABULARIES = {
    ("play", "--policy"): POLICIES,
    ("play", "--difficulty"): DIFFICULTIES,
    ("run", "--difficulty"): DIFFICULTIES,
    ("run", "--view"): get_args(ViewForm),
    ("run", "--executor"): ("asyncio", "processes", "ray"),
    ("run", "--allow-different"): ALLOWED,
    ("compare", "--tasks"): [rule for rule in TaskRule if rule is not TaskRule.WORLDS],
    ("curves import", "--status"): TrainingStatus,
}
"""Values of options that are not checked by the command line parser."""


def commands_of(program: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Return all commands as lists of words."""
    inner = [name for name in program if not name.startswith("-")]
    if chain and (program.default_command is not None or not inner):
        yield chain
    for name in inner:
        yield from commands_of(program[name], (*chain, name))


def help_of(*command: str, width: int) -> str:
    """Return the help of a command at this terminal width."""
    out = io.StringIO()
    app.help_print(command, console=Console(file=out, width=width))
    return out.getvalue()


@pytest.mark.parametrize("command", list(commands_of(app)), ids=" ".join)
def test_help_shows_the_default_and_the_choices_of_every_option(
    command: tuple[str, ...],
) -> None:
    lines, place = help_of(*command, width=600).splitlines(), app
    for name in command:
        place = place[name]
    for option in place.assemble_argument_collection(parse_docstring=True):
        if not option.show or option.children:
            continue
        described = " ".join((option.parameter.help or "").split())
        shown = next(line for line in lines if described in line)
        assert described.endswith((".", "?", "]")), f"{option.name}: {described}"
        assert not WITH_DEFAULTS.search(described), (
            f"{option.name}: say [default: ...]: {described}"
        )
        words = VOCABULARIES.get((" ".join(command), option.name), option.get_choices() or ())
        if words:
            assert f"[choices: {', '.join(words)}]" in shown, f"{option.name}: {shown}"
        default = option.field_info.default
        if default not in (None, False, "", (), option.field_info.empty):
            assert "[default: " in shown, f"{option.name}: {shown}"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_paragraphs_of_help_wrap_once(width: int) -> None:
    text, _, _ = help_of("traces", "import", width=width).partition("For example")
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        for line, following in pairwise(lines):
            first = following.split()[0]
            assert len(line.rstrip()) + 1 + len(first) > width, (line, following)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["plya"], ["plya", "play", "assay --help"]),
        (["play", "--sed", "3"], ["--sed", "--seed", "assay play --help"]),
        (["play", "--seed", "three"], ["three", "--seed"]),
        (["play", "--seed", "-1"], ["-1", "0"]),
        (["play", "--policy", "randm"], ["'randm'", "'random'", "noop"]),
        (["play", "--difficulty", "esy"], ["'esy'", "easy"]),
        (["play", "--max-steps", "0"], ["0", "--max-steps", "1"]),
        (["play", "--fps", "100"], ["100", "--fps", "50"]),
        (["play", "--size", "3"], ["3", "9"]),
        (["play", "--max-steps", "1.5"], ["'1.5'", "whole number"]),
        (["play", "--output", "/dev/null/x"], ["/dev/null/x", "--output"]),
        (["play", "stray"], ["stray", "assay play --help"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0] in ("play", "plya") else "",
)
def test_wrong_command_line_gets_one_helpful_line(
    arguments: list[str], parts: list[str]
) -> None:
    line = error_of(*arguments)
    assert [part for part in parts if part not in line] == []


def test_user_input_is_escaped_in_errors() -> None:
    line = error_of("play", "--policy", "[bold]a[/bold] :smile: \x1b[31m\n")
    assert r"'[bold]a[/bold] :smile: \x1b[31m\n'" in line
    line = error_of("play", "--seed", "[/]\x1b[31m")
    assert r"'[/]\x1b[31m'" in line


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = call_assay(tmp_path, "play", "--policy", "nobody", "--debug")
    assert done.code == 2
    assert "Traceback (most recent call last)" in done.errors
    assert done.errors.splitlines()[-1].startswith("error: unknown policy 'nobody'")


def test_internal_error_is_reported_in_one_line() -> None:
    program = (
        "import sys; from assay.cli import app, main\n"
        "def broken(): {}['key']\n"
        "app.command(broken); sys.exit(main(['broken']))"
    )
    done = run_python("-c", program, expected=1)
    assert done.errors == "error: KeyError: 'key'; --debug prints the traceback\n"


@pytest.mark.parametrize("loading", ["assay.cli.compare", "numba"])
def test_ctrl_c_during_startup_prints_nothing(loading: str) -> None:
    program = (
        "import os, signal, sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {loading!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from assay.cli import main\n"
        "sys.argv = ['assay', 'play', '--max-steps', '1']\n"
        "sys.exit(main())"
    )
    done = run_python("-c", program, expected=130)
    assert (done.output, done.errors) == ("", "")


def test_closed_output_pipe_is_not_an_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m assay --help | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: assay")
    assert done.stderr == ""


@pytest.mark.extras
def test_warmup_prints_the_cache_folder_of_the_engine(tmp_path: Path) -> None:
    again = json.loads(assay("warmup", "--json"))
    assert again["compiled"] is False
    assert Path(again["directory"]).is_dir()
    lines = call_assay(tmp_path, "warmup").output.splitlines()
    assert lines[1] == f"cache: {again['directory']}"


@pytest.mark.extras
def test_play_writes_a_gif_with_its_settings(tmp_path: Path) -> None:
    done = call_assay(tmp_path, "play", "--seed", "1", "--max-steps", "30", "--size", "64")
    assert (done.code, done.errors) == (0, "")
    *_, summary, last = done.output.splitlines()
    assert summary.startswith("stopped after 30 steps: ")
    path = tmp_path / last.removeprefix("picture: ")
    assert path == tmp_path / "play" / "random-classic-seed1.gif"
    with Image.open(path) as picture:
        assert picture.size == (64, 64)
        assert getattr(picture, "n_frames", 1) > 1
        assert picture.info["comment"].decode().startswith(f"assay {__version__}")


@pytest.mark.extras
def test_play_prints_achievements_as_lines_without_a_terminal(tmp_path: Path) -> None:
    done = call_assay(
        tmp_path, "play", "--seed", "3", "--output", str(tmp_path), "--size", "32"
    )
    result = json.loads(
        call_assay(
            tmp_path, "play", "--seed", "3", "--output", str(tmp_path), "--size", "32", "--json"
        ).output
    )
    lines = done.output.splitlines()[:-2]
    expected = [f"step {step:5}  {name}" for name, step in result["achievements"].items()]
    assert lines == expected
    assert len(lines) > 0
    assert result["ended"] == "died"


@pytest.mark.extras
def test_play_is_deterministic(tmp_path: Path) -> None:
    arguments = ["play", "--seed", "5", "--max-steps", "100", "--size", "32", "--json"]
    arguments += ["--output", str(tmp_path)]
    first = assay(*arguments)
    assert call_assay(tmp_path, *arguments).output == first
    assert len(json.loads(first)["digest"]) == 16


@pytest.mark.extras
def test_quiet_play_prints_only_the_path(tmp_path: Path) -> None:
    done = call_assay(
        tmp_path, "play", "--max-steps", "3", "--quiet", "--output", str(tmp_path)
    )
    assert done.output == f"{tmp_path / 'random-classic-seed0.gif'}\n"
    assert done.errors == ""


SHORT_OF_MEMORY = """
import re, resource, sys
from assay.cli import main
assert main(["curves", "import", "small.csv", "--database", "a.duckdb"]) == 0
now = int(re.search(r"VmSize:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (now + (128 << 20), -1))
sys.exit(main(["curves", "import", "large.csv", "--database", "a.duckdb"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_too_little_memory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "small.csv").write_text("step,a\n1,2\n")
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(1 << 30)
    done = run_python("-c", SHORT_OF_MEMORY, folder=tmp_path, expected=1)
    assert done.errors == (
        "error: out of memory; stored data is kept. Request less at once, or free memory\n"
    )
