"""Options of a command, made from the settings of a configuration.

An option that was not given is not there, so that a file or a default can count.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from cyclopts import Group, Parameter

from assay._util.settings import Configuration, Setting, settings_of
from assay.cli.numbers import Whole

__all__ = ["options_of"]


def options_of(
    configuration: type[Configuration], only: Mapping[str, str | None] | None = None
) -> Any:
    """A typed dictionary with an option for each setting that is no secret, in groups.

    `only` names those that are wanted, if not all are, with what the help says in place of
    their defaults.
    """
    groups: dict[str, Group] = {}
    options: dict[str, Any] = {}
    for setting in settings_of(configuration).values():
        wanted = only is None or setting.name in only
        if wanted and setting.secret is None and not setting.in_files:
            new = Group(setting.group, sort_key=len(groups) + 1)
            group = groups.setdefault(setting.group, new)
            said = (only or {}).get(setting.name)
            shown = setting if said is None else setting._replace(default=None, without=said)
            options[setting.name] = _annotated(shown, group)
    # Not a dataclass: that takes 8 ms to make, at every start of the program.
    return TypedDict("Options", options, total=False)  # type: ignore[operator]


def _annotated(setting: Setting, group: Group) -> Any:
    takes = setting.given or setting.takes
    parsed: Any = Whole if takes.option is int else takes.option
    more: dict[str, Any] = {}
    if setting.aliases:
        more["name"] = [setting.option, *setting.aliases]
    if takes.words:
        parsed = tuple[parsed, ...]
        more |= {"negative": "", "consume_multiple": True if takes.words == "+" else (0, 1)}
        more["allow_repeating"] = takes.words == "+"
        if takes.words == "?":
            more["metavar"] = "[STR]"
    elif setting.default is False:
        more["negative"] = ""
    more["show_default"] = setting.without or _shown_default(setting) or False
    choices = f" [choices: {', '.join(takes.choices)}]" if takes.choices else ""
    told = f"{setting.text}.{choices}"
    return Annotated[parsed | None, Parameter(group=group, help=told, **more)]


def _shown_default(setting: Setting) -> str:
    default = setting.default
    if default is None or default is False or default == ():
        return ""
    if default is True:
        return "on"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    shown = f"{default:,}" if isinstance(default, int) else str(default).removesuffix(".0")
    return f"${setting.variable}, else {shown}" if setting.variable else shown
