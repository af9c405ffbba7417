"""Documentation is correct: commands parse or run, links and names exist."""

import ast
import pkgutil
import re
import shlex
import warnings
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from assay.cli import app

from .runs.programs import Program

pytestmark = pytest.mark.usefixtures("compiled_engine")

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


class Block(NamedTuple):
    """A fenced block of a page; `bash run` has the language bash and the mark run."""

    page: str
    line: int
    language: str
    marks: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self, *programs: str) -> list[str]:
        """Return the command lines of assay or given programs, without prompts and comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        lines = [line.strip().removeprefix("$ ") for line in lines]
        return [line for line in lines if line.split(" ")[0] in (programs or ("assay",))]


def blocks_of(page: str, text: str) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, *found.groups())
        for found in FENCE.finditer(text)
    ]


BLOCKS = [
    block
    for page in PAGES
    for block in blocks_of(str(page.relative_to(ROOT)), page.read_text("utf-8"))
]
SHELL = [block for block in BLOCKS if block.language in ("bash", "console", "sh", "shell")]
ENTRY_POINTS = {"assay.hooks"}
"""Words that look like Python names and are not."""
FIRST = "README.md"
"""The page whose blocks run with the quick tests; those of other pages take longer."""


def run_blocks(blocks: list[Block]) -> list[ParameterSet]:
    return [
        pytest.param(
            block, id=str(block), marks=() if block.page == FIRST else pytest.mark.extras
        )
        for block in blocks
    ]


SAMPLES = {
    before: after
    for before, after in pairwise(BLOCKS)
    if "printed" in after.marks.split() and before.page == after.page
}
"""Expected output by block: the next block, marked `printed`, has all or some of its lines."""
VARIES = {
    "<date>": r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?(?: UTC)?)?",
    "<run>": r"\b\d{8}-\d{6}-[0-9a-f]{6}\b",
    "<id>": r"\b[0-9a-f]{10,}\b\+?",
    "<time>": r"±0\.\d{3}\b|\b\d+(?:\.\d+)? ?m?s\b|\b\d+m\d+s\b",
    "─": "─+",
    " ": r"\s+",
}
"""Expressions for values that vary, and their replacements."""
NAMED = [block for block in BLOCKS if "." in block.marks]
"""Files that a page defines, such as ```python mine.py; its commands find them."""
RUN = run_blocks([block for block in SHELL if "run" in block.marks.split()])
PYTHON = run_blocks([block for block in BLOCKS if block.language == "python"])


def masked(text: str) -> list[str]:
    """Return the lines of a text with varying values masked."""
    lines = text.splitlines()
    for mask, pattern in VARIES.items():
        lines = [re.sub(pattern, mask, line).strip() for line in lines]
    return lines


def assert_printed(sample: Block, output: str) -> None:
    """Check that an output has the lines of a sample in order; … matches any other lines."""
    printed, at = masked(output), 0
    for part in "\n".join(masked(sample.text)).split("\n…\n"):
        lines = part.splitlines()
        found = [
            place
            for place in range(at, len(printed))
            if printed[place : place + len(lines)] == lines
        ]
        assert found, f"{sample}: not printed:\n{part}\n\nprinted was:\n{output}"
        at = found[0] + len(lines)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_on_a_page_parse(block: Block) -> None:
    for command in block.commands():
        tokens = shlex.split(command, comments=True)[1:]
        app.parse_args(tokens, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("block", RUN)
def test_commands_marked_run_print_the_output_on_the_page(block: Block, tmp_path: Path) -> None:
    assert block.commands()
    for file in NAMED:
        if file.page == block.page:
            (tmp_path / file.marks.strip()).write_text(file.text, "utf-8")
    for folder in ("tests/golden/", "examples/training/"):
        if folder in block.text:
            top = folder.partition("/")[0]
            (tmp_path / top).symlink_to(ROOT / top)
    printed = ""
    for command in block.commands():
        words = [
            found
            for word in shlex.split(command, comments=True)[1:]
            for found in sorted(glob(word, root_dir=tmp_path)) or [word]
        ]
        assert not set(words) & {"|", ">", "<", "&", "&&", ";"}, "that needs a shell"
        program = Program(tmp_path, *words)
        assert program.wait() == 0, program.errors
        printed += program.output
    if block in SAMPLES:
        assert_printed(SAMPLES[block], printed)


def python(text: str) -> int:
    """Run a program with warnings as errors; only in its own process."""
    warnings.simplefilter("error")
    exec(compile(text, "<block>", "exec"), {"__name__": "__main__"})
    return 0


@pytest.mark.parametrize("block", PYTHON)
def test_python_on_a_page_runs(block: Block, tmp_path: Path) -> None:
    program = Program(tmp_path, block.text, main=python)
    assert program.wait() == 0, program.errors
    if block in SAMPLES:
        assert_printed(SAMPLES[block], program.output)


def test_every_sample_belongs_to_a_block_that_runs() -> None:
    ran = {parameters.values[0] for parameters in (*RUN, *PYTHON)}
    samples = [block for block in BLOCKS if "printed" in block.marks.split()]
    assert samples
    assert [str(block) for block in samples if block not in SAMPLES.values()] == []
    assert [str(block) for block in SAMPLES if block not in ran] == []


def test_the_readme_shows_the_same_output_as_the_page_on_runs() -> None:
    first = next(block for block in BLOCKS if block.page == FIRST and block.language == "text")
    page = next(block for block in SAMPLES.values() if block.page == "docs/evaluate.md")
    assert first.text.strip() in page.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_existing_files(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if ":" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_names_on_a_page_exist(page: Path) -> None:
    names = set(re.findall(r"`(assay(?:\.\w+)+)`", page.read_text("utf-8"))) - ENTRY_POINTS
    for name in names:
        pkgutil.resolve_name(name)


DOCUMENTED = {
    "assay.bench.tasks": ("apply_patch", "capture", "load_task", "make_workspace"),
    "assay.crafter.gymnasium": ("CrafterEnv", "CrafterVectorEnv"),
    "assay.curves": ("analyse", "make_settings", "paired_design", "parse_pairs"),
    "assay.metrics": (
        *("BaseHook", "Episode", "HookRecord", "hook", "metric", "rule_understanding"),
        "verify_session",
    ),
    "assay.traces": ("SessionTracer", "Store", "ingest_leftovers"),
}
"""Modules and names that user files import; they stay importable when code moves."""


def imports_of(text: str) -> set[str]:
    """Return the assay imports of a Python block, as `assay.module:name`."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}:{alias.name}" for alias in node.names}
    return {name for name in found if re.match(r"assay\b", name)}


def test_imports_on_the_pages_work() -> None:
    blocks = [block for block in BLOCKS if block.language == "python"]
    names = {name for block in blocks for name in imports_of(block.text)}
    names |= {f"{module}:{name}" for module, own in DOCUMENTED.items() for name in own}
    assert "assay.stats:mean_interval" in names
    for name in sorted(names):
        pkgutil.resolve_name(name)


def test_the_readme_names_its_two_commands_on_the_first_screen() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    assert "](docs/assets/" in first_screen


def test_every_line_of_the_changelog_is_short() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    changes = [line for line in lines if line.startswith("- ")]
    assert changes
    assert [line for line in changes if len(line[2:].split()) > 25] == []


def test_blocks_are_found_with_their_marks() -> None:
    page = "text\n```bash run\n$ assay play \\\n  --seed 3\nls\n```\n```python\n1\n```\n"
    shell, python = blocks_of("page.md", page)
    assert (shell.line, shell.language, shell.marks.split()) == (2, "bash", ["run"])
    assert shell.commands() == ["assay play    --seed 3"]
    assert python.text == "1\n"


def test_a_sample_is_compared_with_varying_values_masked() -> None:
    sample = Block(
        "page.md", 1, "text", " printed", "first 0.1s\n…\nrun 20250101-120000-a1b2c3\n"
    )
    assert_printed(sample, "before\nfirst  2.5s\nbetween\nrun 20260303-110101-ffffff\nafter\n")
    for output in ("first 2.5s\n", "run 20250101-120000-a1b2c3\nfirst 0.1s\n"):
        with pytest.raises(AssertionError, match="not printed"):
            assert_printed(sample, output)
