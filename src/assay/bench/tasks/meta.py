"""Schemas of the files that define a task: `tb_meta.json` and `overrides.json`.

Unknown keys in `tb_meta.json` are ignored, because other tools write more into it. In
`overrides.json`, and in parts that only assay uses, they are errors. An invalid value raises a
UsageError with the file, the key, the value and what is allowed.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from assay.bench.tasks.tree import find_path_problem
from assay.core.files import read_plain_file
from assay.core.text import shown, unknown_name
from assay.errors import UsageError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PartType = TypeVar("_PartType", bound=BaseModel)


def _check_inner_path(path: str) -> str:
    if problem := find_path_problem(path):
        raise ValueError(problem)
    return path


def _check_repository_path(path: str) -> str:
    if problem := find_path_problem(path, in_repository=True):
        raise ValueError(problem)
    return path


def _check_pattern(pattern: str) -> str:
    return _check_repository_path(pattern.removesuffix("/"))


def _check_line(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise ValueError("use one line of 1 to 200 characters")
    return text


def _check_variable_name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("use letters, digits and _, not starting with a digit")
    return name


def _check_no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it must not contain NUL")
    return text


def _check_address(url: str) -> str:
    if not url.strip() or url.startswith("-") or "::" in url or not url.isprintable():
        raise ValueError("give an https or ssh URL, or the path of a repository or bundle")
    return url


def _check_reference(name: str) -> str:
    if not name.strip() or name.startswith("-") or not name.isprintable():
        raise ValueError("give the name of a commit or branch")
    return name


_Line = Annotated[StrictStr, AfterValidator(_check_line)]
_InnerPath = Annotated[StrictStr, AfterValidator(_check_inner_path)]
_RepositoryPath = Annotated[StrictStr, AfterValidator(_check_repository_path)]
_Pattern = Annotated[StrictStr, AfterValidator(_check_pattern)]
_Reference = Annotated[StrictStr, AfterValidator(_check_reference)]
_Variables = dict[
    Annotated[StrictStr, AfterValidator(_check_variable_name)],
    Annotated[StrictStr, AfterValidator(_check_no_nul)],
]
_Number = StrictInt | StrictFloat


class _TolerantPart(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)
    _blank_values: ClassVar[tuple[object, ...]] = (None,)
    """Values that other tools write for unknown data."""

    @model_validator(mode="before")
    @classmethod
    def _remove_blanks(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: inner for key, inner in value.items() if inner not in cls._blank_values}


class _StrictPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MetadataPart(_TolerantPart):
    """Title and tags of the task."""

    title: _Line | None = None
    tags: list[_Line] = []


class RepoPart(_TolerantPart):
    """Source of the repository."""

    _blank_values: ClassVar[tuple[object, ...]] = (None, "", ".")

    git_url: Annotated[StrictStr, AfterValidator(_check_address)] | None = Field(
        default=None, validation_alias=AliasChoices("git_url", "clone_url")
    )
    branch: _Reference | None = None
    start_commit_sha: _Reference | None = Field(
        default=None, validation_alias=AliasChoices("start_commit_sha", "commit")
    )
    end_commit_sha: _Reference | None = None
    subdir: _Pattern | None = None
    sparse_checkout: list[_Pattern] = []


class LmPart(_TolerantPart):
    """Instructions for the agent, if no file contains them."""

    instructions: StrictStr | None = None


class RubricPart(_TolerantPart):
    """A criterion that solutions are scored by."""

    id: _Line
    criterion: StrictStr
    weight: Annotated[_Number, Field(gt=0)] = 1.0
    evaluation_criteria: list[StrictStr] = []


class TestScriptPart(_TolerantPart):
    """A hidden test; without content, it is the file at this path in `evaluation/`."""

    path: _InnerPath
    rubric_id: StrictStr
    content: StrictStr | None = None


class ScriptPart(_TolerantPart):
    """A script for metrics; without content, it is the file at this path in `evaluation/`."""

    path: _InnerPath
    content: StrictStr | None = None


class EvaluationPart(_TolerantPart):
    """Rubrics and scripts that score a solution."""

    rubrics: list[RubricPart] = []
    test_scripts: list[TestScriptPart] = []
    script: ScriptPart | _InnerPath | None = None


class LimitsPart(_StrictPart):
    """Resource limits of the task's sandbox."""

    cpus: Annotated[_Number, Field(gt=0, le=1024)] | None = None
    memory_mb: Annotated[StrictInt, Field(ge=16)] | None = None
    processes: Annotated[StrictInt, Field(ge=1)] | None = None
    disk_mb: Annotated[StrictInt, Field(ge=1)] | None = None
    network: StrictBool | None = None


class MetaFile(_TolerantPart):
    """The parts of `tb_meta.json` that assay reads."""

    task_id: _Line | None = Field(default=None, validation_alias=AliasChoices("task_id", "id"))
    metadata: MetadataPart = MetadataPart()
    repo: RepoPart = Field(
        default=RepoPart(), validation_alias=AliasChoices("repo", "repository")
    )
    lm: LmPart = LmPart()
    evaluation: EvaluationPart = EvaluationPart()
    limits: LimitsPart = LimitsPart()
    environment_variables: _Variables = {}


class InjectedFile(_StrictPart):
    """A file that is added to the repository."""

    path: _RepositoryPath
    content: StrictStr


class RepoOverride(RepoPart):
    """Another repository, or another commit of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EvaluationOverride(EvaluationPart):
    """A replacement of the evaluation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OverridesFile(_StrictPart):
    """All keys of `overrides.json`."""

    prompt: StrictStr | None = None
    lm_instructions: StrictStr | None = None
    overlay_files: dict[_InnerPath, StrictStr] = {}
    overlay_repo_files: dict[_RepositoryPath, StrictStr] = {}
    inject_files: list[InjectedFile] = []
    remove_repo_paths: list[_Pattern] = []
    evaluation: EvaluationOverride | None = None
    rubrics: list[RubricPart] | None = None
    test_scripts: list[TestScriptPart] | None = None
    repo: RepoOverride | None = None
    environment_variables: _Variables = {}

    @property
    def changes_evaluation(self) -> bool:
        """Whether it changes how a solution is scored."""
        return not {"evaluation", "rubrics", "test_scripts"}.isdisjoint(self.model_fields_set)

    @property
    def repository_files(self) -> dict[str, bytes]:
        """Files it adds to the repository, by either key."""
        injected = {file.path: file.content for file in self.inject_files}
        return {
            path: text.encode()
            for path, text in {**self.overlay_repo_files, **injected}.items()
        }


def read_json(path: Path, within: Path | None = None) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        within: The task folder that contains it; links below that folder are not followed.

    Raises:
        UsageError: It cannot be read, is not JSON, or has a key twice.
    """
    try:
        content = path.read_bytes() if within is None else read_plain_file(path, within=within)
        return json.loads(content, object_pairs_hook=_reject_duplicates)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is not valid JSON: {error}") from error


def validate_content(kind: type[_PartType], value: Any, path: Path) -> _PartType:
    """Validate the content of a file; raise UsageError for its first error."""
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {shown(value)} is not a JSON object, {{…}}")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
    *parents, last = first["loc"] or ("",)
    key = _format_location(first["loc"])
    if first["type"] == "extra_forbidden":
        allowed = _list_allowed_keys(kind, parents)
        where = f" of {_format_location(parents)}" if parents else ""
        raise UsageError(f"{path}: {unknown_name(f'key{where}', str(last), allowed)}")
    if first["type"] == "missing":
        raise UsageError(f"{path}: {key} is missing")
    allowed_text = first["msg"].removeprefix("Value error, ")
    raise UsageError(f"{path}: {key}: {shown(first['input'])} is not allowed: {allowed_text}")


def _format_location(loc: Any) -> str:
    text = ""
    for part in loc:
        if part == "[key]" or (isinstance(part, str) and part in _UNION_PARTS):
            continue
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


_UNION_PARTS = {"int", "float", "ScriptPart", "function-after[_check_inner_path(), str]"}
"""Names of union members, which pydantic puts into a location."""


def _list_allowed_keys(kind: type[BaseModel], parents: list[Any]) -> list[str]:
    """Return the keys that are allowed at a location in the file."""
    parts: dict[str, type[BaseModel]] = {
        "limits": LimitsPart,
        "inject_files": InjectedFile,
        "repo": RepoPart,
        "evaluation": EvaluationPart,
    }
    name = next((part for part in parents if isinstance(part, str)), "")
    return [*parts.get(name, kind).model_fields]


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"duplicate key {duplicates[0]!r}")
    return dict(pairs)
