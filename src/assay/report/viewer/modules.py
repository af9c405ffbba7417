"""The files of the page, and its modules joined into one.

A browser loads no module from a file on disk, and a notebook takes only one, so both get all
modules as one text. The rules that make this possible are checked here: imports are relative,
at the top, and without other names; a name is defined once.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from assay.errors import UsageError

_ENDINGS: Final = (".html", ".css", ".js")
_IMPORT: Final = re.compile(r"^import\s*\{([^}]*)\}\s*from\s*\"\./([\w.-]+)\";\n", re.MULTILINE)
_ANY_IMPORT: Final = re.compile(r"^\s*import\b|\bimport\s*\(", re.MULTILINE)
_EXPORT: Final = re.compile(
    r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE
)
_DEFAULT: Final = re.compile(r"^export default \w+;\n", re.MULTILINE)
_ANY_EXPORT: Final = re.compile(r"^\s*export\b", re.MULTILINE)
_DEFINED: Final = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|var|class)\s+(\w+)", re.MULTILINE
)


@cache
def static_files() -> Mapping[str, bytes]:
    """Return the files of the page by name."""
    folder = files("assay.report.viewer") / "static"
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir(), key=lambda path: path.name)
        if path.name.endswith(_ENDINGS)
    }


def page_modules() -> dict[str, str]:
    """Return the text of each module of the page."""
    return {
        name: body.decode() for name, body in static_files().items() if name.endswith(".js")
    }


def join_modules(modules: Mapping[str, str], entry: str, *, keep_default: bool = False) -> str:
    """Join a module and all that it imports into one text, those it needs first.

    Args:
        modules: Text of each module by name.
        entry: Name of the module to start from.
        keep_default: Keep the default export of the entry, for a notebook.

    Raises:
        UsageError: A module breaks a rule; see the module docstring.
    """
    owners: dict[str, str] = {}
    parts: list[str] = []
    for name in _in_order(modules, entry, ()):
        text = modules[name]
        for defined in _DEFINED.findall(text):
            if owner := owners.get(defined):
                raise UsageError(f"{defined!r} is defined in {owner} and in {name}")
            owners[defined] = name
        last = _DEFAULT.findall(text)
        body = _EXPORT.sub("", _DEFAULT.sub("", _IMPORT.sub("", text)))
        if _ANY_IMPORT.search(_without_comments(body)) or _ANY_EXPORT.search(body):
            raise UsageError(f"{name} has an import or export that cannot be joined")
        parts.append(body + "".join(last if keep_default and name == entry else []))
    return "\n".join(parts)


def _in_order(
    modules: Mapping[str, str], name: str, above: tuple[str, ...], done: set[str] | None = None
) -> Iterator[str]:
    done = set() if done is None else done
    if name in above:
        raise UsageError(f"modules import each other: {', '.join((*above, name))}")
    if name in done:
        return
    if name not in modules:
        raise UsageError(f"there is no module {name!r}")
    for _, other in _IMPORT.findall(modules[name]):
        yield from _in_order(modules, other, (*above, name), done)
    done.add(name)
    yield name


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
