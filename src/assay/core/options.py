"""Options declared once, as the fields of a dataclass with a docstring under each field.

    @dataclass(frozen=True, kw_only=True)
    class EpisodeFilters:
        min_reward: float | None = None
        '''At least this reward.'''

    @takes_options
    def sft_filter(output: Path, *, filters: EpisodeFilters) -> BuiltDataset: ...

The function is called with the fields as keyword arguments, `sft_filter(path, min_reward=3)`,
and `help()` shows them. `option_groups` of `assay.cli.options` makes command-line options from
the same class. Settings of a run, which have bounds and an identity, are in `core.settings`.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, reduce, wraps
from itertools import pairwise
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from assay.core.text import unknown_name
from assay.errors import UsageError

R = TypeVar("R")


class Option(NamedTuple):
    """Properties of an option beyond its type and default; used in `Annotated`."""

    name: str = ""
    """Public name, if it differs from the name of the field."""
    option: str = ""
    """Name on the command line, if it differs from the name in Python."""
    given: Any = None
    """Type of the user value, if it differs from the type of the field."""
    read: Callable[[Any], Any] | None = None
    """Converts the user value to the value of the field; not called for None."""
    least: float | None = None
    """The smallest number that the command line accepts."""
    most: float | None = None
    """The largest number that the command line accepts."""
    repeated: bool = False
    """Whether the option is repeated for each of several values."""
    without: str = ""
    """Description of the default for the help, if the value is not clear."""


class DeclaredOption(NamedTuple):
    """A field as users see it."""

    name: str
    field: str
    given: Any
    """Type of the user value, without None."""
    is_optional: bool
    """Whether the field may be None; if not, None means the default."""
    default: Any
    text: str
    """The docstring of the field."""
    extra: Option

    def read(self, value: Any) -> Any:
        """Convert a user value to the value of the field; raise UsageError if invalid."""
        if value is None:
            return None if self.is_optional else self.default
        if self.extra.read is not None:
            return self.extra.read(value)
        if isinstance(self.default, StrEnum):
            if value not in get_args(self.given):
                raise UsageError(unknown_name(self.name, str(value), get_args(self.given)))
            return type(self.default)(value)
        if isinstance(self.default, tuple):
            single = isinstance(value, str) or not isinstance(value, Iterable)
            return (value,) if single else tuple(value)
        return value


@cache
def list_options(options: type) -> Mapping[str, DeclaredOption]:
    """Return the options of a dataclass by public name, in order."""
    hints = get_type_hints(options, include_extras=True)
    texts = _read_field_docs(options)
    declared = {}
    for part in fields(options):
        hint = hints[part.name]
        extra = Option()
        if get_origin(hint) is Annotated:
            hint, extra = get_args(hint)[:2]
        default = part.default
        if default is MISSING and part.default_factory is not MISSING:
            default = part.default_factory()
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        given = extra.given or reduce(or_, (kind for kind in kinds if kind is not NoneType))
        if isinstance(default, StrEnum):
            given = Literal[tuple(str(word) for word in type(default))]
        name = extra.name or part.name
        declared[name] = DeclaredOption(
            name, part.name, given, NoneType in kinds, default, texts.get(part.name, ""), extra
        )
    return declared


def make_options(options: type[R], values: Mapping[str, Any]) -> R:
    """Create the dataclass from user values by public name; others have their defaults."""
    declared = list_options(options)  # type: ignore[arg-type]
    return options(
        **{declared[name].field: declared[name].read(value) for name, value in values.items()}
    )


def takes_options(function: Callable[..., R]) -> Callable[..., R]:
    """Allow a function to be called with the options of its dataclasses as keyword arguments.

    Each keyword-only parameter that is annotated with a dataclass and has no default is
    replaced by the options of that class. An object of the class is accepted, too.
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if (
            is_dataclass(kind)
            and isinstance(kind, type)
            and parameter.default is parameter.empty
            and parameter.kind is parameter.KEYWORD_ONLY
        ):
            groups[parameter.name] = kind
            parameters += map(_make_parameter, list_options(kind).values())
        else:
            parameters.append(parameter)
    names = [parameter.name for parameter in parameters]
    accepts_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    @wraps(function)
    def call(*args: Any, **arguments: Any) -> R:
        for name in arguments:
            if not accepts_any and name not in names and name not in groups:
                unknown = unknown_name("argument", name, names)
                raise TypeError(f"{function.__name__}(): {unknown}")
        for group, kind in groups.items():
            if group not in arguments:
                own_names = [name for name in list_options(kind) if name in arguments]
                arguments[group] = make_options(
                    kind, {name: arguments.pop(name) for name in own_names}
                )
        return function(*args, **arguments)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {
        **{parameter.name: parameter.annotation for parameter in parameters},
        "return": signature.return_annotation,
    }
    call.__doc__ = _add_options_to_doc(function.__doc__ or "", groups)
    return call


def _make_parameter(option: DeclaredOption) -> inspect.Parameter:
    default, given = option.default, option.given
    if isinstance(default, StrEnum):
        default = str(default)
    elif get_origin(given) is tuple:
        item: Any = get_args(given)[0]
        given = item | Sequence[item]
    elif default is None:
        given = given | None
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=given
    )


def _add_options_to_doc(doc: str, groups: Mapping[str, type]) -> str:
    """Return a docstring that lists the options of each group in place of its parameter."""
    doc = inspect.cleandoc(doc)
    for name, kind in groups.items():
        options = list_options(kind).values()
        lines = "\n".join(f"    {option.name}: {option.text}" for option in options)
        entry = re.search(rf"^    {name}: .*(\n     .*)*", doc, re.MULTILINE)
        doc = doc.replace(entry[0], lines) if entry else f"{doc}\n\nArgs:\n{lines}"
    return doc


def _read_field_docs(options: type) -> dict[str, str]:
    """Return the docstring of each field in one line, including those of base classes."""
    texts: dict[str, str] = {}
    for kind in reversed(options.__mro__):
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not is_dataclass(kind) or file is None:
            continue
        source = Path(file).read_text("utf-8")
        # Only the class is parsed: a whole file takes ten times as long.
        match = re.search(
            rf"^class {kind.__name__}\b.*?(?=^\S|\Z)", source, re.DOTALL | re.MULTILINE
        )
        body = ast.parse(match[0]).body[0].body if match else []  # type: ignore[attr-defined]
        for part, following in pairwise(body):
            if isinstance(part, ast.AnnAssign) and isinstance(following, ast.Expr):
                texts[ast.unparse(part.target)] = " ".join(
                    ast.literal_eval(following.value).split()
                )
    return texts
