"""Static analysis of hidden test scripts, and reading of metrics.

The names of a script's tests are known before it runs, so that missing tests are noticed. A
canary, a test that must fail, is added after them: code that reports everything as passed, or
ends the run early, is detected. The canary's name and message differ each time. A metrics
script reports numbers by name, in two groups.
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
"""Package from which hidden tests import `run_program`."""

_WORDS = (
    *("accepts", "builds", "counts", "covers", "edge", "empty", "equal", "first", "handles"),
    *("inner", "keeps", "large", "last", "matches", "mixed", "nested", "order", "outer"),
    *("plain", "reads", "repeated", "returns", "simple", "small", "splits", "whole"),
)


@dataclass(frozen=True, slots=True)
class PlantedScript:
    """A test script with its canary, and the tests it is expected to report."""

    script: TestScript
    content: str
    canary: str
    """Name of a test that must fail."""
    proof: str
    """Text of its failure message, which is computed at run time and not in the script."""
    expected: Mapping[str, int]
    """Minimum number of tests, by test name without parameters."""


def plant_canary(script: TestScript, rng: random.Random) -> PlantedScript:
    """Parse a pytest script and add a canary.

    Raises:
        UsageError: It is not Python.
    """
    try:
        tree = ast.parse(script.content)
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"the test script {script.path!r} is not Python: {error}; correct the task"
        ) from error
    expected = dict(_count_tests(tree))
    name = _choose_name({part for name in expected for part in name.split("::")}, rng)
    factors = rng.randrange(1_000, 10_000), rng.randrange(1_000, 10_000)
    product = math.prod(factors)
    wrong = product + rng.choice((-10, -1, 1, 10))
    line = f"def {name}(): value = {factors[0]} * {factors[1]}; assert value == {wrong}"
    return PlantedScript(
        script=script,
        # At the end, so that line numbers do not change and it runs last.
        content=f"{script.content}\n\n\n{line}\n",
        canary=name,
        proof=f"{product} == {wrong}",
        expected=expected,
    )


def is_separate(path: str, files: Mapping[str, bytes]) -> bool:
    """Return whether a script imports `run_program`, directly or through hidden modules.

    Args:
        path: Path of the script.
        files: All hidden files, including the script.
    """
    seen, pending = set(), [path]
    while pending:
        script = pending.pop()
        seen.add(script)
        names = {name.partition(".")[0] for name in _list_imports(files[script])}
        if PACKAGE in names:
            return True
        folders = {PurePosixPath(path).parent, PurePosixPath()}
        modules = {str(folder / f"{name}.py") for folder in folders for name in names}
        pending += sorted(modules & files.keys() - seen)
    return False


def _list_imports(content: bytes) -> Iterator[str]:
    """Yield the modules that a Python file imports, at any depth."""
    with contextlib.suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or ""


def _choose_name(taken: set[str], rng: random.Random) -> str:
    while (name := f"test_{'_'.join(rng.sample(_WORDS, 3))}") in taken:
        pass
    return name


def _count_tests(tree: ast.Module) -> Iterator[tuple[str, int]]:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _is_collected(node, classes):
            for method, count in _count_methods(node, classes).items():
                yield f"{node.name}::{method}", count * _count_cases(node)
        elif _is_test(node):
            yield node.name, _count_cases(node)


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, functions) and node.name.startswith("test")


def _is_collected(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Return whether pytest collects a class."""
    if _is_unittest(node, classes):
        return True
    has_init = any(
        isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body
    )
    return node.name.startswith("Test") and not has_init


def _is_unittest(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    return any(
        name.endswith("TestCase")
        or (name in classes and name != node.name and _is_unittest(classes[name], classes))
        for name in map(ast.unparse, node.bases)
    )


def _count_methods(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, int]:
    """Return the tests of a class, including those of base classes in the same file."""
    methods: dict[str, int] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            methods |= _count_methods(classes[base.id], classes)
    return methods | {part.name: _count_cases(part) for part in node.body if _is_test(part)}


def _count_cases(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Return the number of tests of a function, counting parameters that are written out."""
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
_MAX_METRICS = 200
_MAX_NAME_LENGTH = 100


class Metrics(NamedTuple):
    """Metrics reported by a script, and findings on invalid ones."""

    standard: Mapping[str, float]
    custom: Mapping[str, float]
    findings: tuple[TrialFinding, ...] = ()


def read_metrics(path: str, end: Mapping[str, Any]) -> Metrics:
    """Read the metrics of a script from how it ended."""
    if end["timed_out"]:
        return _fail(path, "it reached its time limit")
    if end["exit_code"] != 0:
        last = cut(end["output"].strip().rpartition("\n")[2], 200)
        return _fail(path, f"it ended with exit code {end['exit_code']}: {last}")
    if end["result"] is None:
        return _fail(path, "it wrote no file at $ASSAY_RESULT")
    try:
        result = json.loads(end["result"])
    except (ValueError, RecursionError) as error:
        return _fail(path, f"the content of $ASSAY_RESULT is not JSON: {cut(str(error), 100)}")
    if not isinstance(result, dict) or not set(result) <= set(_GROUPS):
        return _fail(path, f"it must write an object with {' and '.join(_GROUPS)}")
    findings: list[TrialFinding] = []
    standard, custom = (
        _read_numbers(path, group, result.get(group), findings) for group in _GROUPS
    )
    return Metrics(standard, custom, tuple(findings))


def _read_numbers(
    path: str, group: str, values: Any, findings: list[TrialFinding]
) -> dict[str, float]:
    if values is None:
        return {}
    if not isinstance(values, dict) or len(values) > _MAX_METRICS:
        findings.append(
            TrialFinding(
                "metric_refused",
                f"{path}: {group} is not an object of at most {_MAX_METRICS} numbers",
            )
        )
        return {}
    numbers = {}
    for name, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and len(name) <= _MAX_NAME_LENGTH and _is_finite(value):
            numbers[name] = float(value)
            continue
        findings.append(
            TrialFinding(
                "metric_refused",
                f"{path}: {group}: {shown(name, 50)} is not a finite number: "
                f"{shown(value, 60)}",
            )
        )
    return numbers


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _fail(path: str, reason: str) -> Metrics:
    return Metrics({}, {}, (TrialFinding("metrics_failed", f"{path}: {reason}"),))
