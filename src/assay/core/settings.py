"""A setting is declared once, as a field of a `Configuration`.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class PlayConfig(Configuration):
        episodes: int = Setting(10, whole(1, 1000), at="run").about("Episodes of each model")

From it follow the option of a command (`assay.cli.options`), the key in a file and the
template of one (`assay.runs`), the identity of a run, and what makes a version. Nothing here
reads a file of settings or knows of a command line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from assay.core.secrets import mask
from assay.core.values import ValueType
from assay.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Counts(IntEnum):
    """What a setting is a part of; each counts for all that stand before it as well."""

    NOTHING = 0
    """Where and how fast: with another value, the same run goes on."""
    RUN = 1
    """Who plays together, and who watches: another value is another run."""
    SAMPLE = 2
    """Which trials are played, and how many: a changelog names it, but it makes no version."""
    VERSION = 3
    """How it is played: another value is another version of the experiment."""


class Setting(NamedTuple):
    """One thing that can be chosen."""

    default: Any
    """As a user would write it; with None, the setting may be none."""
    takes: ValueType
    counts: Counts = Counts.VERSION
    at: str = ""
    """Where it may stand in a file: `table` for its own name there, `table.key` for another,
    `[table]` for a table that as a whole is its value. A new file has it in the first."""
    group: str = ""
    """The heading above its option; that of the setting before it unless given."""
    added: bool = False
    """Whether runs were recorded before there was this setting. It is then stored, and counts,
    only where it is not its default: so that those runs stay what they are."""
    given: ValueType | None = None
    """What users give, if it is not what is kept: such as the path of a file for its text."""
    in_files: bool = False
    """Whether it can be given in files and programs alone: it then has no option."""
    aliases: tuple[str, ...] = ()
    """Other names of its option."""
    example: Any = None
    """What a new file shows, if the default shows nothing."""
    without: str = ""
    """What holds where it is not given, for the help, if the default does not say."""
    variable: str | None = None
    """An environment variable that gives it. Such a setting says where things are on this
    machine, and is not taken from a stored run."""
    beside: tuple[str, Any] | None = None
    """A table, and the value that a file which has it means if it does not say another."""
    secret: str | None = None
    """The variable that this secret belongs into. It is then neither shown nor stored, has no
    option, and is warned about in a file."""
    text: str = ""
    """What `about` says."""
    name: str = ""
    """That of the field; `settings_of` fills it in, and the next."""
    section: str = ""
    """The field of the section it is in, if it is in one."""

    def about(self, text: str) -> Any:
        """The field; the text is for the help and for the comment in a file."""
        value = None if self.default is None else self.takes.read(self.default)
        return field(default=value, metadata={"declared": self._replace(text=text)})

    @property
    def option(self) -> str:
        """What it is called on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where it may stand in a file: tables, and the keys there; "" for a whole table."""
        places = []
        for place in self.at.split():
            table, _, key = place.partition(".")
            whole = table.startswith("[")
            places.append((table.strip("[]"), "" if whole else key or self.name))
        return places

    def read(self, value: Any, label: str, *, kept: bool = False) -> Any:
        """The value in the type used inside; UsageError if it is not allowed.

        Args:
            value: What was given.
            label: Who gave it, for the message.
            kept: Whether it is what a configuration holds, and not what a user gives.
        """
        takes = self.takes if kept else self.given or self.takes
        may_be_none = self.default is None
        if may_be_none and (value is None or takes.is_none(value)):
            return None
        try:
            return takes.read(value)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from error
        except ValueError as error:
            shown = "this value" if self.secret else mask(_shown(value))
            reason = f" ({error})" if str(error) else ""
            none = f", or {takes.none[0]!r} for none" if may_be_none else ""
            raise UsageError(
                f"{label}: {shown} is not allowed{reason}; give {takes.allowed}{none}"
            ) from error


class _Other(NamedTuple):
    """What a field is that is no setting."""

    counts: Counts
    added: bool = False
    section: "type[Configuration] | None" = None
    group: str = ""
    secret: None = None


def derived(default: Any, counts: Counts, *, added: bool = False) -> Any:
    """A field that `Configuration.complete` sets, and that is stored with the settings."""
    other = _Other(counts, added)
    return field(default=default, init=False, repr=False, metadata={"declared": other})


def section(configuration: "type[Configuration]", counts: Counts, *, group: str) -> Any:
    """A field that is a configuration of its own; in files its settings are a table."""
    other = _Other(counts, section=configuration, group=group)
    return field(default_factory=configuration, metadata={"declared": other})


class Configuration:
    """The base of a frozen dataclass of settings, which is valid once it exists."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for part, declared in _parts(type(self)):
            value = getattr(self, part.name)
            if isinstance(declared, Setting):
                read = declared.read(value, part.name, kept=True)
                object.__setattr__(self, part.name, read)
            elif declared.section and not isinstance(value, declared.section):
                raise UsageError(
                    f"{part.name}: {_shown(value)} is not allowed; "
                    f"give an object of {declared.section.__name__}"
                )
        self.complete()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Made of values that were read, by the names of settings; the rest has its default."""
        made = object.__new__(cls)
        for part, declared in _parts(cls):
            inner = declared.section if isinstance(declared, _Other) else None
            value = inner.of(values) if inner else values.get(part.name, part.default)
            object.__setattr__(made, part.name, value)
        made.complete()
        return made

    def complete(self) -> None:
        """Set what is derived, and check what settings say together; values are in order."""

    def warnings(self) -> Iterator[str]:
        """What the user should know, though nothing is wrong."""
        return iter(())

    def stored(self, at_least: Counts = Counts.NOTHING) -> dict[str, Any]:
        """What counts so much, as JSON, without secrets; all of it unless said otherwise."""
        kept = {}
        for part, declared in _parts(type(self)):
            value = getattr(self, part.name)
            silent = declared.added and value == part.default
            if declared.counts >= at_least and not silent and not declared.secret:
                kept[part.name] = _plain(value)
        return kept

    def identity(self) -> dict[str, Any]:
        """What decides the results of a run: with the same, the same trials are played."""
        return self.stored(Counts.RUN)

    @classmethod
    def counted(cls) -> dict[str, Counts]:
        """What each key of `stored` is a part of."""
        return {part.name: declared.counts for part, declared in _parts(cls)}


def settings_of(configuration: type[Configuration]) -> Mapping[str, Setting]:
    """The settings of a configuration and of its sections by name, in their order."""
    settings: dict[str, Setting] = {}
    group = ""
    for part, declared in _parts(configuration):
        group = declared.group or group
        if isinstance(declared, Setting):
            settings[part.name] = declared._replace(name=part.name, group=group)
        elif declared.section is not None:
            for name, inner in settings_of(declared.section).items():
                settings[name] = inner._replace(at=part.name, section=part.name, group=group)
    return settings


def _parts(configuration: type[Configuration]) -> list[tuple[Field[Any], Setting | _Other]]:
    parts = fields(configuration)  # type: ignore[arg-type]  # subclasses are dataclasses
    return [(part, part.metadata["declared"]) for part in parts]


def written(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a value that are written down: an added one where it is not its default."""
    kept = {}
    for part in fields(value):
        inner = getattr(value, part.name)
        if not part.metadata.get("added") or inner != part.default:
            kept[part.name] = _plain(inner)
    return kept


def _plain(value: Any) -> Any:
    """A value of a field as JSON has it."""
    if isinstance(value, Configuration):
        return value.stored()
    if is_dataclass(value) and not isinstance(value, type):
        return written(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    shown = repr(str(value)) if isinstance(value, Path) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
