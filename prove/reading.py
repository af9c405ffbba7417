"""`python -m prove.reading FOLDER`: draw texts of this tree for readers who have not seen it.

Writes `sample.md` with numbered docstrings, messages and function names, and `key.json`, which
says where each comes from. The seed is the hash of the current commit, so no person chooses the
sample by its result. A part of the items comes from an earlier commit, unmarked and unchanged:
a reader who calls most of those clear does not read closely enough.
"""

import ast
import io
import json
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
EARLIER: Final = "b3c1790"
SIZES: Final = {"docstring": (120, 30), "message": (60, 15), "name": (60, 15)}
"""Items of this tree and of the earlier commit, by kind."""
PAGES: Final = 3
BRIEF: Final = """\
Read each item once, as an engineer who is new to the project. Mark every number with one of:

- OK: clear at first reading.
- ODD: understandable, but not how documentation is usually written.
- UNCLEAR: it does not tell you what the thing is or does.

A long docstring with one bad sentence is ODD, not UNCLEAR. Judge a name by its signature: does
it say what the function does or returns? On a page, every sentence and every body row of a
table counts; headings and code blocks do not.
"""


def list_sources(commit: str) -> Iterator[tuple[str, ast.Module]]:
    """Parse the Python files that a commit has in `src`, with their paths."""
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.name.endswith(".py") and (file := tar.extractfile(member)):
                yield member.name, ast.parse(file.read())


def sample_items(commit: str) -> dict[str, list[tuple[str, str]]]:
    """Collect `(place, text)` pairs of a commit by kind."""
    found: dict[str, list[tuple[str, str]]] = {kind: [] for kind in SIZES}
    for path, module in list_sources(commit):
        for node in ast.walk(module):
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ):
                name = getattr(node, "name", "(module)")
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    arguments = [
                        argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)
                    ]
                    name += f"({', '.join(word for word in arguments if word != 'self')})"
                    if not node.name.startswith("__"):
                        found["name"].append((f"{path}:{node.lineno}", f"`{name}`"))
                if text := ast.get_docstring(node):
                    line = getattr(node, "lineno", 1)
                    found["docstring"].append((f"{path}:{line}", f"`{name}`: {text}"))
            elif (
                isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
            ):
                message = node.exc.args[0]
                if isinstance(message, ast.Constant | ast.JoinedStr):
                    found["message"].append((f"{path}:{node.lineno}", ast.unparse(message)))
    return found


def main() -> None:
    """Draw the sample and write both files."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    random_state = random.Random(commit)
    now, earlier = sample_items(commit), sample_items(EARLIER)
    texts, key = [f"# Sample of {commit[:7]}\n\n{BRIEF}"], []
    for kind, (size, control) in SIZES.items():
        drawn = [(commit, *item) for item in random_state.sample(now[kind], size)]
        drawn += [(EARLIER, *item) for item in random_state.sample(earlier[kind], control)]
        random_state.shuffle(drawn)
        texts.append(f"\n## {kind}s\n")
        for number, (origin, place, text) in enumerate(drawn, 1):
            texts.append(f"{number}. {text}\n")
            key.append({"kind": kind, "number": number, "commit": origin[:7], "place": place})
    pages = sorted(path for path in ROOT.glob("docs/**/*.md"))
    chosen = [str(path.relative_to(ROOT)) for path in random_state.sample(pages, PAGES)]
    texts.append("\n## pages\n\n" + "\n".join(chosen) + "\n")
    (folder / "sample.md").write_text("\n".join(texts), "utf-8")
    (folder / "key.json").write_text(json.dumps(key, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
