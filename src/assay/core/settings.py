"""Settings, each declared once as a field of a `Configuration`.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class PlayConfig(Configuration):
        episodes: int = Setting(10, whole(1, 1000), at="run").about("Episodes of each model")

The command-line option (`assay.cli.options`), the key in a file and the template of a file
(`assay.runs`), the identity of a run and the version are derived from it. Nothing here reads a
settings file or depends on a command line.
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
    """Effect of a setting; each member includes the effects of those before it."""

    NOTHING = 0
    """Place and speed: with another value, the same run continues."""
    RUN = 1
    """Entries and observers of a run: another value is another run."""
    SAMPLE = 2
    """Choice and number of trials: listed in a changelog, but does not change the version."""
    VERSION = 3
    """How a trial is played: another value is another version of the experiment."""


class Setting(NamedTuple):
    """Declaration of one setting."""

    default: Any
    """Default as a user would write it; if it is None, the setting is optional."""
    takes: ValueType
    counts: Counts = Counts.VERSION
    at: str = ""
    """Places in a file: `table` for its own name there, `table.key` for another key, `[table]`
    for a table whose content is its value. A new file uses the first place."""
    group: str = ""
    """The heading above its option; by default the previous setting's."""
    added: bool = False
    """Whether older runs were recorded without this setting. It is then stored, and has an
    effect, only if it differs from its default, so that these runs keep their identity."""
    given: ValueType | None = None
    """Type of the given value, if it differs from the stored one: such as a path for a text."""
    in_files: bool = False
    """Whether it is available only in files and programs, without an option."""
    aliases: tuple[str, ...] = ()
    """Alternative names of its option."""
    example: Any = None
    """Value shown in a new file, if the default is not informative."""
    without: str = ""
    """Description of the default for the help, if the value is not clear."""
    variable: str | None = None
    """Environment variable that sets it. Such a setting depends on the machine, and is not
    taken from a stored run."""
    beside: tuple[str, Any] | None = None
    """A table, and the default of this setting in files that have that table."""
    secret: str | None = None
    """Environment variable for this secret. The setting is then neither shown nor stored, has
    no option, and causes a warning in a file."""
    text: str = ""
    """The text given to `about`."""
    name: str = ""
    """Name of the field, set by `list_settings`."""
    section: str = ""
    """Name of the section's field, if it is in a section; set by `list_settings`."""

    def about(self, text: str) -> Any:
        """Return the field; the text is used in the help and as a comment in files."""
        value = None if self.default is None else self.takes.read(self.default)
        return field(default=value, metadata={"declared": self._replace(text=text)})

    @property
    def option(self) -> str:
        """Name of the option on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def places(self) -> list[tuple[str, str]]:
        """Places in a file as tables and keys; the key is "" for a whole table."""
        places = []
        for place in self.at.split():
            table, _, key = place.partition(".")
            whole = table.startswith("[")
            places.append((table.strip("[]"), "" if whole else key or self.name))
        return places

    def read(self, value: Any, label: str, *, is_stored: bool = False) -> Any:
        """Convert a value to the internal type; raise UsageError if it is not allowed.

        Args:
            value: The given value.
            label: The origin of the value, for the message.
            is_stored: Whether the value is from a configuration, not from a user.
        """
        accepted = self.takes if is_stored else self.given or self.takes
        may_be_none = self.default is None
        if may_be_none and (value is None or accepted.is_none(value)):
            return None
        try:
            return accepted.read(value)
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from error
        except ValueError as error:
            description = "this value" if self.secret else mask(_format_value(value))
            reason = f" ({error})" if str(error) else ""
            none = f", or {accepted.none[0]!r} for none" if may_be_none else ""
            raise UsageError(
                f"{label}: {description} is not allowed{reason}; give {accepted.allowed}{none}"
            ) from error


class _DerivedField(NamedTuple):
    """Declaration of a field that is not a setting."""

    counts: Counts
    added: bool = False
    section: "type[Configuration] | None" = None
    group: str = ""
    secret: None = None


def derived(default: Any, counts: Counts, *, added: bool = False) -> Any:
    """Return a field that `Configuration.complete` sets; it is stored with the settings."""
    declaration = _DerivedField(counts, added)
    return field(default=default, init=False, repr=False, metadata={"declared": declaration})


def section(configuration: "type[Configuration]", counts: Counts, *, group: str) -> Any:
    """Return a field that is a nested configuration; in files its settings are a table."""
    declaration = _DerivedField(counts, section=configuration, group=group)
    return field(default_factory=configuration, metadata={"declared": declaration})


class Configuration:
    """Base class of frozen dataclasses of settings; every instance is valid."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for part, declared in _list_fields(type(self)):
            value = getattr(self, part.name)
            if isinstance(declared, Setting):
                converted = declared.read(value, part.name, is_stored=True)
                object.__setattr__(self, part.name, converted)
            elif declared.section and not isinstance(value, declared.section):
                raise UsageError(
                    f"{part.name}: {_format_value(value)} is not allowed; "
                    f"give an object of {declared.section.__name__}"
                )
        self.complete()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Create a configuration from converted values by name; others have their defaults."""
        configuration = object.__new__(cls)
        for part, declared in _list_fields(cls):
            section = declared.section if isinstance(declared, _DerivedField) else None
            value = section.of(values) if section else values.get(part.name, part.default)
            object.__setattr__(configuration, part.name, value)
        configuration.complete()
        return configuration

    def complete(self) -> None:
        """Set derived fields and check combinations of settings, each already valid alone."""

    def warnings(self) -> Iterator[str]:
        """Yield warnings for the user about valid settings."""
        return iter(())

    def stored(self, at_least: Counts = Counts.NOTHING) -> dict[str, Any]:
        """Return the settings with at least this effect as JSON values, without secrets."""
        values = {}
        for part, declared in _list_fields(type(self)):
            value = getattr(self, part.name)
            is_omitted = declared.added and value == part.default
            if declared.counts >= at_least and not is_omitted and not declared.secret:
                values[part.name] = _to_plain(value)
        return values

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the results: equal ones give the same trials."""
        return self.stored(Counts.RUN)

    @classmethod
    def counted(cls) -> dict[str, Counts]:
        """Return the effect of each key of `stored`."""
        return {part.name: declared.counts for part, declared in _list_fields(cls)}


def list_settings(configuration: type[Configuration]) -> Mapping[str, Setting]:
    """Return the settings of a configuration and its sections by name, in order."""
    settings: dict[str, Setting] = {}
    group = ""
    for part, declared in _list_fields(configuration):
        group = declared.group or group
        if isinstance(declared, Setting):
            settings[part.name] = declared._replace(name=part.name, group=group)
        elif declared.section is not None:
            for name, inner in list_settings(declared.section).items():
                settings[name] = inner._replace(at=part.name, section=part.name, group=group)
    return settings


def _list_fields(
    configuration: type[Configuration],
) -> list[tuple[Field[Any], Setting | _DerivedField]]:
    parts = fields(configuration)  # type: ignore[arg-type]  # subclasses are dataclasses
    return [(part, part.metadata["declared"]) for part in parts]


def to_stored(value: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of a value to store; added ones only if they are not default."""
    values = {}
    for part in fields(value):
        item = getattr(value, part.name)
        if not part.metadata.get("added") or item != part.default:
            values[part.name] = _to_plain(item)
    return values


def _to_plain(value: Any) -> Any:
    if isinstance(value, Configuration):
        return value.stored()
    if is_dataclass(value) and not isinstance(value, type):
        return to_stored(value)
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _format_value(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, Path) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
