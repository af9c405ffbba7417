"""What a hidden test script holds, read from its text before anything runs it.

The names of its tests are known beforehand, so that a run that lost some of them cannot hide
it. A canary, a test that must fail, is planted after them: whoever reports that everything
passed, or ends the run early, gives himself away. Its name and what it says differ each time.

Metrics of a task's own script: numbers by name, in two groups.
"""

import ast
import contextlib
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeGuard

from assay.bench.base import TestScript
from assay.core.text import cut, shown
from assay.errors import UsageError
from assay.sandboxes.base import TrialFinding

PACKAGE = "assay_grading"
"""What hidden tests import `run_program` from."""

_WORDS = (
    *("accepts", "builds", "counts", "covers", "edge", "empty", "equal", "first", "handles"),
    *("inner", "keeps", "large", "last", "matches", "mixed", "nested", "order", "outer"),
    *("plain", "reads", "repeated", "returns", "simple", "small", "splits", "whole"),
)


@dataclass(frozen=True, slots=True)
class PlantedScript:
    """A test script with its canary, and the tests that it must come to."""

    script: TestScript
    content: str
    canary: str
    """The name of a test that must fail."""
    proof: str
    """What its failure says, which is computed when it runs and stands nowhere before."""
    expected: Mapping[str, int]
    """By the name of a test without its parameters, how many there are at least."""


def plant(script: TestScript, rng: random.Random) -> PlantedScript:
    """Read a pytest script, and plant a canary in it.

    Raises:
        UsageError: It is not Python.
    """
    try:
        tree = ast.parse(script.content)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"the test script {script.path!r} is not Python: {error}; correct the task"
        ) from error
    expected = dict(_expected(tree))
    name = _free_name({part for name in expected for part in name.split("::")}, rng)
    factors = rng.randrange(1_000, 10_000), rng.randrange(1_000, 10_000)
    product = math.prod(factors)
    wrong = product + rng.choice((-10, -1, 1, 10))
    line = f"def {name}(): value = {factors[0]} * {factors[1]}; assert value == {wrong}"
    return PlantedScript(
        script=script,
        # At the end: messages name the lines that the author knows, and it is run last.
        content=f"{script.content}\n\n\n{line}\n",
        canary=name,
        proof=f"{product} == {wrong}",
        expected=expected,
    )


def is_separate(path: str, files: Mapping[str, bytes]) -> bool:
    """Whether a script imports `run_program`, itself or by hidden modules that it imports.

    Args:
        path: Of the script.
        files: All hidden files, the script included.
    """
    seen, todo = set(), [path]
    while todo:
        found = todo.pop()
        seen.add(found)
        names = {name.partition(".")[0] for name in _imported(files[found])}
        if PACKAGE in names:
            return True
        folders = {PurePosixPath(path).parent, PurePosixPath()}
        modules = {str(folder / f"{name}.py") for folder in folders for name in names}
        todo += sorted(modules & files.keys() - seen)
    return False


def _imported(content: bytes) -> Iterator[str]:
    """The modules that a Python file imports, wherever in it."""
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""


def _free_name(taken: set[str], rng: random.Random) -> str:
    while (name := f"test_{'_'.join(rng.sample(_WORDS, 3))}") in taken:
        pass
    return name


def _expected(tree: ast.Module) -> Iterator[tuple[str, int]]:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _is_collected(node, classes):
            for method, count in _methods(node, classes).items():
                yield f"{node.name}::{method}", count * _parameters(node)
        elif _is_test(node):
            yield node.name, _parameters(node)


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, functions) and node.name.startswith("test")


def _is_collected(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether pytest takes a class for one of tests."""
    if _is_unittest(node, classes):
        return True
    makes = any(
        isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body
    )
    return node.name.startswith("Test") and not makes


def _is_unittest(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    return any(
        name.endswith("TestCase")
        or (name in classes and name != node.name and _is_unittest(classes[name], classes))
        for name in map(ast.unparse, node.bases)
    )


def _methods(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, int]:
    """The tests of a class, with those of bases in the same file."""
    methods: dict[str, int] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            methods |= _methods(classes[base.id], classes)
    return methods | {part.name: _parameters(part) for part in node.body if _is_test(part)}


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """How many tests a function is, as far as its parameters are written out."""
    counts = (
        len(call.args[1].elts)
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).endswith("mark.parametrize")
        and len(call.args) > 1
        and isinstance(call.args[1], (ast.List, ast.Tuple))
        and not any(isinstance(element, ast.Starred) for element in call.args[1].elts)
    )
    return math.prod(counts)


_GROUPS = ("standard_metrics", "custom_metrics")
_MOST = 200
_LONGEST_NAME = 100


class Metrics(NamedTuple):
    """What a script reported, and what of it was refused."""

    standard: Mapping[str, float]
    custom: Mapping[str, float]
    findings: tuple[TrialFinding, ...] = ()


def read_metrics(path: str, end: Mapping[str, Any]) -> Metrics:
    """Read the result file of a metrics script that ended this way."""
    if end["timed_out"]:
        return _failed(path, "its time was over")
    if end["exit_code"] != 0:
        last = cut(end["output"].strip().rpartition("\n")[2], 200)
        return _failed(path, f"it ended with exit code {end['exit_code']}: {last}")
    if end["result"] is None:
        return _failed(path, "it wrote no file at $ASSAY_RESULT")
    try:
        result = json.loads(end["result"])
    except (ValueError, RecursionError) as error:
        return _failed(
            path, f"what it wrote to $ASSAY_RESULT is not JSON: {cut(str(error), 100)}"
        )
    if not isinstance(result, dict) or not set(result) <= set(_GROUPS):
        return _failed(path, f"it must write an object of {' and '.join(_GROUPS)}")
    findings: list[TrialFinding] = []
    standard, custom = (_numbers(path, group, result.get(group), findings) for group in _GROUPS)
    return Metrics(standard, custom, tuple(findings))


def _numbers(
    path: str, group: str, values: Any, findings: list[TrialFinding]
) -> dict[str, float]:
    if values is None:
        return {}
    if not isinstance(values, dict) or len(values) > _MOST:
        findings.append(
            TrialFinding(
                "metric_refused", f"{path}: {group} is no object of at most {_MOST} numbers"
            )
        )
        return {}
    numbers = {}
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and len(name) <= _LONGEST_NAME and _is_finite(value):
            numbers[name] = float(value)
            continue
        findings.append(
            TrialFinding(
                "metric_refused",
                f"{path}: {group}: {shown(name, 50)} is {shown(value, 60)}, no finite number",
            )
        )
    return numbers


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _failed(path: str, why: str) -> Metrics:
    return Metrics({}, {}, (TrialFinding("metrics_failed", f"{path}: {why}"),))
