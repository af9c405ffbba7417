"""Options that several commands share, and options generated from settings and dataclasses.

Options that were not given are absent or None, so that a file, a plan or a default can provide
the value. Options for training curves have dots and underscores in their names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from assay.cli.output import OutputOptions, print_json, print_line, print_report
from assay.cli.tables import Whole
from assay.core.options import DeclaredOption, list_options
from assay.core.settings import Configuration, Setting, list_settings
from assay.core.text import printable
from assay.errors import UsageError
from assay.store.location import DATABASE_VARIABLE

if TYPE_CHECKING:
    from assay.bench.base import Allowed
    from assay.errors import StoreBusy
    from assay.report.document import Document
    from assay.store.store import Store


Given: TypeAlias = dict[str, Any]
"""Given options of a group, by the names of the Python arguments."""
_C = TypeVar("_C", bound=Callable[..., Any])


def add_commands(app: App, *commands: Callable[..., int], **arguments: Any) -> None:
    """Register commands by import path; their options are built when they are called."""
    for command in commands:
        app.command(
            f"{command.__module__}:{command.__qualname__}",
            name=command.__name__.strip("_").replace("_", "-"),
            help=cleandoc(command.__doc__ or "").split("\nArgs:")[0],
            **arguments,
        )


def option_groups(
    groups: Mapping[str, Group] = MappingProxyType({}), **classes: str
) -> Callable[[_C], _C]:
    """Return a decorator that turns parameters such as `filters: Given` into options.

    The options are the fields of dataclasses. Each class is given by its path,
    `assay.module:Class`, and is loaded when the command or its help is called. `groups` has
    the headings of the options, by parameter.
    """

    def annotate(command: _C) -> _C:
        defaults = dict(command.__kwdefaults__ or {})
        for name, path in classes.items():
            options_type = ForwardRef(f"_load_options({path!r})", module=__name__)
            group: dict[str, Any] = {"group": groups[name]} if name in groups else {}
            flat = Parameter(name="*", show_default=False, **group)
            command.__annotations__[name] = Annotated[options_type, flat]
            defaults[name] = {}
        command.__kwdefaults__ = defaults
        return command

    return annotate


def _load_options(path: str) -> Any:
    """Build a typed dictionary with an option for each field of a dataclass."""
    module, _, name = path.partition(":")
    declared = list_options(getattr(import_module(module), name))
    options = {option.name: _build_option(option) for option in declared.values()}
    return TypedDict(name, options, total=False)  # type: ignore[operator]


def _build_option(option: DeclaredOption) -> Any:
    kind, default, extra = option.given, option.default, option.extra
    arguments: dict[str, Any] = {"help": option.text}
    if get_origin(kind) is tuple:
        item: Any = _parse_integers_strictly(get_args(kind)[0])
        kind = tuple[item, ...]
        arguments |= {"negative": "", "consume_multiple": not extra.repeated}
    elif get_origin(kind) in (Union, UnionType):  # the other types are for Python callers
        kind = get_args(kind)[0]
    elif default is False or (kind is bool and default is None):
        arguments["negative"] = ""
    if extra.option:
        arguments["name"] = extra.option
    if extra.least is not None or extra.most is not None:
        arguments["validator"] = Number(gte=extra.least, lte=extra.most)
    empty = default is None or default is False or default in ((), "")
    arguments["show_default"] = extra.without or (not empty and str(default))
    return Annotated[_parse_integers_strictly(kind), Parameter(**arguments)]


def _parse_integers_strictly(kind: Any) -> Any:
    return Whole if kind is int else kind


def build_options(
    configuration: type[Configuration], only: Mapping[str, str | None] | None = None
) -> Any:
    """Build a typed dictionary with an option for each setting, in groups.

    Secrets and settings for files only get no option. `only` limits the options to its keys;
    its values replace the defaults shown in the help.
    """
    groups: dict[str, Group] = {}
    options: dict[str, Any] = {}
    for setting in list_settings(configuration).values():
        wanted = only is None or setting.name in only
        if wanted and setting.secret is None and not setting.in_files:
            new = Group(setting.group, sort_key=len(groups) + 1)
            group = groups.setdefault(setting.group, new)
            default_text = (only or {}).get(setting.name)
            shown = (
                setting
                if default_text is None
                else setting._replace(default=None, without=default_text)
            )
            options[setting.name] = _build_setting_option(shown, group)
    # Not a dataclass: creating one takes 8 ms at every start of the program.
    return TypedDict("Options", options, total=False)  # type: ignore[operator]


def _build_setting_option(setting: Setting, group: Group) -> Any:
    value_type = setting.given or setting.takes
    option_type: Any = Whole if value_type.option is int else value_type.option
    arguments: dict[str, Any] = {}
    if setting.aliases:
        arguments["name"] = [setting.option, *setting.aliases]
    if value_type.words:
        option_type = tuple[option_type, ...]
        arguments |= {
            "negative": "",
            "consume_multiple": True if value_type.words == "+" else (0, 1),
        }
        arguments["allow_repeating"] = value_type.words == "+"
        if value_type.words == "?":
            arguments["metavar"] = "[STR]"
    elif setting.default is False:
        arguments["negative"] = ""
    arguments["show_default"] = setting.without or _format_default(setting) or False
    choices = f" [choices: {', '.join(value_type.choices)}]" if value_type.choices else ""
    help_text = f"{setting.text}.{choices}"
    return Annotated[option_type | None, Parameter(group=group, help=help_text, **arguments)]


def _format_default(setting: Setting) -> str:
    default = setting.default
    if default is None or default is False or default == ():
        return ""
    if default is True:
        return "on"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    shown = f"{default:,}" if isinstance(default, int) else str(default).removesuffix(".0")
    return f"${setting.variable}, else {shown}" if setting.variable else shown


_SUMMARY = Group("Summary of a curve", sort_key=3)
_FILES = Group("Files", sort_key=6)


def _make_parameter(name: str, default: str | bool = False, **arguments: Any) -> Parameter:
    """Return a parameter with exactly this name and this default in the help."""
    return Parameter(name=name, show_default=default, **arguments)


@dataclass(frozen=True, kw_only=True)
class CurveSummaryOptions:
    """Summary of a curve as one number."""

    type: Annotated[
        Literal["auc", "last_n", "final", "slope", "time_to_threshold"] | None,
        _make_parameter("type", "auc"),
    ] = None
    """Statistic: auc is the area under the curve, last_n the mean of the last points."""
    percent: Annotated[float | None, _make_parameter("percent", "0.25 for auc, else 1")] = None
    """Fraction of the curve's steps to use."""
    percent_window: Annotated[
        Literal["last", "first"] | None, _make_parameter("percent_window", "last")
    ] = None
    """End of the curve from which that fraction is taken."""
    step_min: Annotated[float | None, _make_parameter("step_min")] = None
    """First step to use; replaces the fraction."""
    step_max: Annotated[float | None, _make_parameter("step_max")] = None
    """Last step to use; replaces the fraction."""
    normalize_steps: Annotated[bool | None, _make_parameter("normalize_steps", "on")] = None
    """Divide the area by the number of steps to get a mean value."""
    n: Annotated[Whole | None, _make_parameter("n", "5")] = None
    """Number of points that last_n averages."""
    threshold: Annotated[float | None, _make_parameter("threshold")] = None
    """Value to reach; required for time_to_threshold."""
    falling: Annotated[bool | None, _make_parameter("falling", negative="")] = None
    """The threshold is reached from above, as for a loss."""

    def collect_options(self) -> dict[str, Any]:
        """Return the given options by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class AnalysisOutputOptions:
    """Tables to print and files to write."""

    print_table: Annotated[bool, Parameter(name="print_table")] = True
    """Print the tables."""
    csv_path: Annotated[Path | None, _make_parameter("csv_path")] = None
    """Write a CSV file with every number and its provenance."""
    dir: Annotated[Path | None, _make_parameter("dir")] = None
    """Write figures, analysis.csv and analysis.json into this folder."""
    report: Annotated[Path | None, _make_parameter("report")] = None
    """Write the report to this file: .html (with figures), .md, .json or .csv."""


CurveSummaryOption: TypeAlias = Annotated[CurveSummaryOptions, Parameter(group=_SUMMARY)]
"""`--summary.*`."""
AnalysisOutput: TypeAlias = Annotated[AnalysisOutputOptions, Parameter(group=_FILES)]
"""`--output.*`."""

Wandb: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
"""`--wandb ENTITY/PROJECT`."""

no_summary = CurveSummaryOptions()
no_output = AnalysisOutputOptions()

Database: TypeAlias = Annotated[
    Path, Parameter(name="--database", env_var=DATABASE_VARIABLE, show_env_var=True)
]
"""The option `--database`: the DuckDB file that a command reads or writes."""


def open_store(path: Path, show: OutputOptions) -> "Store":
    """Open the database at `path`; if another process has it open, print a notice and wait."""
    from rich.console import Console

    from assay.store.store import Store

    def print_waiting(busy: "StoreBusy") -> None:
        if not (show.quiet or show.json):
            line = printable(f"waiting: {busy}")
            Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)

    return Store(path, on_wait=print_waiting)


DEFAULT_DATA_DIR = Path("data")
DataDir: TypeAlias = Annotated[Path, Parameter(name="--data-dir")]
"""Folder with the benchmarks."""
Text: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Pairs: TypeAlias = Annotated[list[str] | None, Parameter(negative="", show_default=False)]
Paths: TypeAlias = Annotated[list[Path] | None, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AllowedOptions:
    """Parts of this machine that tasks may read in addition to their own folders."""

    allow_repo: Pairs = None
    """Path outside the task folder that git_url of a task may refer to. May be repeated."""
    allow_variable: Pairs = None
    """Environment variable that ${NAME} in a Harbor task may refer to. May be repeated."""

    @property
    def allowed(self) -> "Allowed":
        """These options as an argument for functions of `assay.api`."""
        from assay.bench.base import Allowed

        return Allowed(tuple(self.allow_repo or ()), tuple(self.allow_variable or ()))


def parse_base_images(pairs: list[str] | None) -> tuple[str, ...]:
    """Check the values of `--base-image`, each NAME=LOCAL, and return them."""
    for pair in pairs or ():
        name, _, place = pair.partition("=")
        if not (name and place):
            raise UsageError(
                f"--base-image {pair!r} is not allowed; give NAME=LOCAL, such as "
                "ubuntu:24.04=roots/noble"
            )
    return tuple(pairs or ())


def print_document(
    document: "Document",
    paths: Sequence[Path],
    show: OutputOptions,
    *,
    detail: bool,
    answer_first: bool = True,
) -> None:
    """Print a report, or only its summary if it was written to files."""
    if show.json:
        print_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            print_line(line)
        for path in () if show.quiet else paths:
            print_line(f"report: {path}")
    else:
        from assay.report.terminal import TerminalReport

        print_report(TerminalReport(document, detail=detail, answer_first=answer_first))
