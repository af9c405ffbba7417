"""Options defined by dataclass fields are the same in a command and in its function."""

import inspect
import pydoc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, Literal, get_args

import pytest
from cyclopts import App

import assay
from assay.bench.prepare import prepare_bench
from assay.cli import app
from assay.core.options import Option, list_options, takes_options
from assay.errors import UsageError
from assay.training.sweep import plan_sweep

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        f"analyze {name.replace('_', '-')}": getattr(assay.analyze, name)
        for name in (
            *("achievements", "actions", "costs", "deaths", "enhanced_hooks", "hooks"),
            *("quality", "seeds"),
        )
    },
    "analysis": assay.analysis,
    "bench check": assay.bench_check,
    "bench compare": assay.bench_compare,
    "bench eval": assay.bench_eval,
    "bench new": assay.bench_new,
    "bench regrade": assay.bench_eval,
    "bench run": prepare_bench,
    "bench summarize": assay.bench_summary,
    "compare": assay.compare,
    "curves import": assay.import_curves,
    "finetune cancel": assay.finetune_cancel,
    "finetune check-model": assay.finetune_check_model,
    "finetune events": assay.finetune_events,
    "finetune start": assay.finetune_plan,
    "finetune status": assay.finetune_status,
    "finetune wait": assay.finetune_wait,
    "fork": assay.fork,
    "launch": assay.launch,
    "run": assay.run,
    "sft filter": assay.sft_filter,
    "sft show": assay.sft_show,
    "sft validate": assay.sft_validate,
    "traces list": assay.list_sessions,
    "sweep": plan_sweep,
    "variance": assay.variance,
}
"""The function of each command with dataclass options."""

PLAIN = pydoc.plaintext  # type: ignore[attr-defined]


def commands(program: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    """Return all commands by name."""
    if chain and program.default_command is not None:
        yield " ".join(chain), program
    for name in program:
        if not name.startswith("-"):
            yield from commands(program[name], (*chain, name))


def option_classes(command: Callable[..., Any]) -> list[type]:
    """Return the dataclasses whose fields are options of a command."""
    found = []
    for annotation in command.__annotations__.values():
        for part in get_args(annotation):
            path = getattr(part, "__forward_arg__", "")
            if path.startswith("_load_options("):
                module, _, name = path[15:-2].partition(":")
                found.append(getattr(import_module(module), name))
    return found


PROGRAMS = {
    name: program
    for name, program in commands(app)
    if program.default_command and option_classes(program.default_command)
}


def test_every_command_with_dataclass_options_has_its_function_listed() -> None:
    assert set(PROGRAMS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_command_options_are_fields_and_arguments_of_its_function(name: str) -> None:
    program, function = PROGRAMS[name], FUNCTIONS[name]
    assert program.default_command is not None
    arguments = {
        word: argument
        for argument in program.assemble_argument_collection()
        for word in argument.names
    }
    parameters = inspect.signature(function).parameters
    shown = pydoc.render_doc(function, renderer=PLAIN)
    for kind in option_classes(program.default_command):
        for option in list_options(kind).values():
            assert option.text, f"{kind.__name__}.{option.field} has no docstring"
            word = option.extra.option or "--" + option.name.replace("_", "-")
            argument = arguments[word]
            assert argument.parameter.help == option.text
            assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[option.name].default == option.default
            assert f"{option.name}: {option.text}" in shown


class Shape(StrEnum):
    ROUND = "round"
    SQUARE = "square"


@dataclass(frozen=True, kw_only=True)
class Base:
    size: Annotated[int | None, Option(least=1)] = None
    """How large
    it is."""


@dataclass(frozen=True, kw_only=True)
class Parts(Base):
    shape: Shape = Shape.ROUND
    """Its form."""
    names: Annotated[tuple[str, ...], Option("name")] = ()
    """What it is called."""
    share: Annotated[float | None, Option(given=str | float, read=float)] = None
    """How much of it."""


@takes_options
def build(where: str = "", *, parts: Parts, dry: bool = False) -> tuple[str, Parts, bool]:
    """Build it.

    Args:
        where: The place.
        parts: Its parts.
        dry: Not really.

    Raises:
        UsageError: Never.
    """
    return where, parts, dry


def test_a_function_gets_its_options_as_an_object_of_their_class() -> None:
    assert build("here", size=2, shape="square", name=["a", "b"], share="0.5", dry=True) == (
        "here",
        Parts(size=2, shape=Shape.SQUARE, names=("a", "b"), share=0.5),
        True,
    )
    assert build() == ("", Parts(), False)
    assert build(name="ab")[1].names == ("ab",)
    assert build(parts=Parts(size=7))[1].size == 7


def test_help_shows_the_options_as_keyword_arguments() -> None:
    parameters = inspect.signature(build).parameters
    assert list(parameters) == ["where", "size", "shape", "name", "share", "dry"]
    assert parameters["shape"].annotation == Literal["round", "square"]
    assert parameters["share"].annotation == str | float | None
    shown = pydoc.render_doc(build, renderer=PLAIN)
    assert "shape: Literal['round', 'square'] = 'round'" in shown
    assert (
        "    where: The place.\n"
        "        size: How large it is.\n"
        "        shape: Its form.\n"
        "        name: What it is called.\n"
        "        share: How much of it.\n"
        "        dry: Not really.\n"
    ) in shown


def test_an_unknown_argument_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(
        TypeError, match=r"build\(\): unknown argument 'shap'; did you mean 'sh"
    ):
        build(shap="square")
    with pytest.raises(UsageError, match="unknown shape 'squar'; did you mean 'square'"):
        build(shape="squar")
