"""Phrases that readers found odd or unclear are not used; docs/glossary.md has the terms."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PATTERNS = {
    "name the item": r"\bfor (?:one|each) in\b|\bone for one\b",
    "negate the verb": r"\b(?:is|are|was) no (?!longer|more\b|matter|need)",
    "say missing, or cannot be": r"\bhas no \w+ form\b|\bno such thing\b|\bno place in\b",
    "a program is not a person": r"\bwho (?:is asked|may|plays|works|answers|talks|hears|looks"
    r"|trains|decides)\b|\bnobody\b|\bsomebody\b|\bwhoever\b|\bwhatever\b",
    "programs print and report": r"\b(?:is|are|was|were|be|been|not) told\b|\btold apart\b"
    r"|\btells? (?:of|whoever)\b|\bsays? (?:so|of|otherwise|another)\b|\bis said\b|\bsaid of\b",
    "say result": r"\bcame of\b|\b(?:came|comes?) to\b",
    "repeat the noun": r"\"\"\"The same\b",
    "say its, or user": r"\b(?:of|one's) (?:its|their|one's|his|her)? ?own\b|\bof users\b"
    r"|\bof the user's\b",
    "say continue or resume": r"\b(?:goes|go|went) on\b|\btaken up again\b|\btakes up\b",
    "use the literal verb": r"\bstands? (?:in|at|above|below|beside|behind|with|alone|for)\b"
    r"|\bheld (?:against|to)\b|\bholds? at\b|\bthe wish\b|\bworth of\b|\bgone through\b"
    r"|\bleft over\b|\bgot to\b|\bwhat there is\b|\bas many as there are\b|\bis there at all\b",
    "a name has a verb and an object": r"\b(?:def|class) _?(?:said|told|tell|hear|asked"
    r"|answered|known|held|meant|kept|came_to|what|who|why|often|alone|together|Told|Troubles"
    r"|Asker|Answerer|Asking|Line|Places|Meaning)\b",
}
"""Phrases to avoid, by the advice for each."""

ALLOWED = {
    r"\b[Tt]here (?:is|are|was) no\b": "ordinary English for something that does not exist",
    r"\bcomes? to (?:a stop|an end|mind)\b": "idioms",
    r"asked_by == \"nobody\"": "a stored value",
}
"""Expressions that contain a phrase and are right, with the reason."""

ALLOWED_FILES = {
    "tests/test_vocabulary.py": "has the phrases themselves",
    "src/assay/agents/prompts.py": "texts that models read, which results depend on",
}

CEILINGS = {
    "src": 237,
    "tests": 223,
    "docs": 52,
    "README.md": 0,
    "CONTRIBUTING.md": 0,
}
"""Phrases left to rewrite, by tree. Lower a number whenever a tree has fewer."""


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Yield each phrase to avoid: its line, and the phrase with its advice."""
    for number, line in enumerate(text.splitlines(), 1):
        for expression in ALLOWED:
            line = re.sub(expression, "", line)
        for advice, pattern in PATTERNS.items():
            for match in re.finditer(pattern, line):
                yield number, f"{match.group().strip()!r}: {advice}"


@pytest.mark.parametrize("tree", CEILINGS)
def test_no_tree_gains_a_phrase_that_readers_find_odd(tree: str) -> None:
    path = ROOT / tree
    files = [path] if path.is_file() else sorted(path.rglob("*.[pm][yd]"))
    found = [
        f"{file.relative_to(ROOT)}:{number}: {phrase}"
        for file in files
        if str(file.relative_to(ROOT)) not in ALLOWED_FILES
        for number, phrase in phrases(file.read_text("utf-8"))
    ]
    by_file = Counter(line.partition(":")[0] for line in found)
    listed = "\n".join(found if len(found) < 100 else map(str, by_file.most_common(20)))
    assert len(found) <= CEILINGS[tree], f"{len(found)} phrases in {tree}:\n{listed}"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("for one in trials:", 1),
        ("'x' is no list", 1),
        ("'x' is no longer a list", 0),
        ("there is no list", 0),
        ("def _told(line):", 1),
        ("whoever is told of it goes on", 3),
        ("the run continues", 0),
    ],
)
def test_phrases_are_found_in_text_and_names(line: str, count: int) -> None:
    assert len(list(phrases(line))) == count
