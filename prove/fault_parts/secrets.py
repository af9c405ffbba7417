"""Secrets in many places: no file and no output has twelve characters of one in a row.

A key in a variable or a file, in addresses, where no key belongs, repeated by a provider in
replies and errors, and raised or printed by code of a user. Tables are read, too: DuckDB
compresses them.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from assay.store.schema import TABLES
from assay.store.views import VIEWS
from tests.runs.echo import Answer, answering, error_page, failing, rambling, refusing, talking
from tests.runs.tables import rows

from .processes import code_of, printed, start_assay
from .tried import Tried

__all__ = ["attack"]

_KEY = "sk-planted-0a1b2c3d4e5f6a7b8c9d"
_ODD = 'planted+0a1b/2c3d"4e5f\\6a7b=8c9d'
"""A key that JSON and URLs write otherwise."""
_RUN = 12
_SMALL = (
    *("run", "--models", "any", "--no-baselines", "--episodes", "2", "--max-turns", "2"),
    *("--call-patience", "1", "--database", "traces.duckdb", "-vv", "--debug"),
)
_LOCAL = ("run", "--models", "builtin/noop", "--no-baselines", "--episodes", "1")
_DATABASE = ("--database", "traces.duckdb")
_AFTERWARDS = (
    ("traces", "list"),
    ("traces", "show", "best"),
    ("traces", "verify"),
    ("traces", "export", "--format", "json", "--output", "out.json"),
    ("traces", "export", "--format", "parquet", "--output", "out.parquet"),
    ("traces", "export", "--format", "atif", "--output", "out.atif"),
    ("experiments", "list"),
)
"""What shows or copies a run that has ended."""


@dataclass(frozen=True, kw_only=True)
class _Setup:
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the user's, which may hold the secret."""
    answer: Answer | None = None
    """What a provider answers; its address takes the place of `@URL`."""
    key: str = _KEY


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Every set-up once."""
    for attack, setups in (
        ("code of a user raises, prints or says the key", _user_code()),
        ("a provider repeats the key in a reply", _replies()),
        ("a provider repeats the key in an error", _errors()),
        ("a secret in an address", dict(_addresses())),
        ("a key in a file, in its place and in others", _files()),
        ("a key where no key belongs", _misplaced()),
    ):
        tried = Tried(attack)
        for name, setup in setups.items():
            lost = _leaks(folder / f"{attack} {name}".replace(" ", "-"), setup)
            tried.count(lost and f"{name}: {lost}")
        tried.note = f"no {_RUN} characters of it in any file, table or output"
        yield tried


def _replies() -> dict[str, _Setup]:
    answers: dict[str, Answer] = {
        "whole": talking,
        "first half": lambda key: talking(key[:16]),
        "last half": lambda key: talking(key[-16:]),
        "in an address": lambda key: talking(f"http://h/?k={quote(key, safe='')}"),
        "as JSON": lambda key: talking(json.dumps(json.dumps(key))),
        "in a long end": rambling,
        "refusal": refusing,
    }
    return {
        f"{name} {number}": _Setup(
            arguments=(*_SMALL, "--openai-base-url", "@URL", "--cache", "replies.sqlite"),
            environment={"OPENAI_API_KEY": key},
            answer=answer,
            key=key,
        )
        for name, answer in answers.items()
        for number, key in enumerate((_KEY, _ODD))
    }


def _errors() -> dict[str, _Setup]:
    answers = {str(status): failing(status) for status in (400, 401, 404, 429, 500, 503)}
    answers["page"] = error_page(380)
    answers["half"] = lambda key: failing(500)(key[8:24])
    return {
        name: _Setup(
            arguments=(*_SMALL, "--openai-base-url", "@URL"),
            environment={"OPENAI_API_KEY": _KEY},
            answer=answer,
        )
        for name, answer in answers.items()
    }


def _addresses() -> Iterator[tuple[str, _Setup]]:
    for name, address in (
        ("password", f"http://me:{_KEY}@127.0.0.1:9/v1"),
        ("query", f"http://127.0.0.1:9/v1?key={_KEY}"),
    ):
        yield (
            f"option, {name}",
            _Setup(arguments=(*_SMALL, "--openai-base-url", address)),
        )
        yield (
            f"service, {name}",
            _Setup(arguments=(*_LOCAL, "--service-url", address)),
        )
        yield (
            f"variable, {name}",
            _Setup(arguments=_SMALL, environment={"OPENAI_BASE_URL": address}),
        )
        yield (
            f"file, {name}",
            _Setup(
                arguments=(*_LOCAL, "--config", "mine.toml"),
                files={"mine.toml": f'[openai]\nbase_url = "{address}"\n'},
            ),
        )
        yield (
            f"models.toml, {name}",
            _Setup(
                arguments=("run", "--models", "a", "--episodes", "1", "--debug"),
                environment={"ASSAY_MODELS": "models.toml"},
                files={
                    "models.toml": f'[providers.mine]\nbase_url = "{address}"\n'
                    '[models.a]\nprovider = "mine"\n'
                },
            ),
        )


def _files() -> dict[str, _Setup]:
    texts = {
        "in its place": f'[openai]\napi_key = "{_KEY}"\n',
        "as a list": f'[openai]\napi_key = ["{_KEY}"]\n',
        "outside a table": f'openai = "{_KEY}"\n',
        "as a number": f'[experiment]\nepisodes = "{_KEY}"\n',
        "as an unknown name": f'[openai]\n"{_KEY}" = 1\n',
        "not TOML": f"api_key = {_KEY}\n",
    }
    arguments = (*_SMALL, "--openai-base-url", "@URL", "--config", "mine.toml")
    setups = {
        name: _Setup(arguments=arguments, files={"mine.toml": text}, answer=talking)
        for name, text in texts.items()
    }
    rows_of_models = (
        f'[providers.mine]\nbase_url = "@URL"\nkey = "{_KEY}"\n[models.a]\nprovider = "mine"\n'
    )
    for name, text in (
        ("models.toml", rows_of_models),
        ("models.toml, misspelt", rows_of_models.replace("key =", "kee =")),
    ):
        setups[name] = _Setup(
            arguments=("run", "--models", "a", *_SMALL[3:]),
            environment={"ASSAY_MODELS": "models.toml"},
            files={"models.toml": text},
            answer=talking,
        )
    return setups


def _misplaced() -> dict[str, _Setup]:
    return {
        "a model": _Setup(arguments=("run", "--models", _KEY)),
        "an option": _Setup(arguments=(*_LOCAL, f"--openai-api-key={_KEY}")),
        "a number": _Setup(arguments=(*_LOCAL, "--max-turns", _KEY)),
        "a command": _Setup(arguments=(_KEY,)),
        "the variable of a variable": _Setup(
            arguments=("serve-models", "--port", "0", "--api-key-env", _KEY)
        ),
    }


def _user_code() -> dict[str, _Setup]:
    agent = "import os\nKEY = os.environ['MY_API_KEY']\ndef act(view):\n    {}\n"
    hook = (
        "import os\nfrom assay.metrics import BaseHook, hook\nKEY = os.environ['MY_API_KEY']\n"
        "@hook\nclass Mine(BaseHook):\n    def on_turn(self, played):\n        {}\n"
    )
    bodies = {
        "agent, raised": ("--agents", agent.format("raise ValueError(KEY)")),
        "agent, printed": ("--agents", agent.format("print(KEY); return 'noop'")),
        "agent, an action": ("--agents", agent.format("return KEY")),
        "hook, raised": ("--hooks", hook.format("raise ValueError(KEY)")),
        "hook, printed": ("--hooks", hook.format("print(KEY); return ()")),
        "hook, while it is loaded": (
            "--hooks",
            "import os\nassert 0, os.environ['MY_API_KEY']",
        ),
    }
    return {
        f"{name}, {executor}": _Setup(
            arguments=(
                *("run", "--no-baselines", "--episodes", "1", "--max-turns", "2", *_DATABASE),
                *("--executor", executor, option),
                *(("mine.py:act",) if option == "--agents" else ("mine.py", *_LOCAL[1:3])),
            ),
            environment={"MY_API_KEY": _KEY.removeprefix("sk-")},
            files={"mine.py": text},
        )
        for executor in ("asyncio", "processes")
        for name, (option, text) in bodies.items()
    }


def _leaks(folder: Path, setup: _Setup) -> str:
    """Where the secret is that is not a file of the user's; empty if nowhere."""
    folder.mkdir()
    if setup.answer is None:
        return _play(folder, setup, "")
    with answering(setup.answer) as url:
        return _play(folder, setup, url)


def _play(folder: Path, setup: _Setup, url: str) -> str:
    for name, text in setup.files.items():
        (folder / name).write_text(text.replace("@URL", url), "utf-8")
        (folder / name).chmod(0o600)
    arguments = [argument.replace("@URL", url) for argument in setup.arguments]
    environment = {"OPENAI_API_KEY": "", **setup.environment}
    if code_of(start_assay(folder, *arguments, environment=environment)) is None:
        return "it hangs"
    if setup.answer is talking and (folder / "traces.duckdb").exists():
        for more in _AFTERWARDS:
            code_of(start_assay(folder, *more, *_DATABASE, environment=environment))
    if not printed(folder).strip():
        return "not a word was printed"
    return _place_of(setup.key, folder, {*setup.files})


def _place_of(secret: str, folder: Path, spared: set[str]) -> str:
    forms = {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
    parts = {form[at : at + _RUN] for form in forms for at in range(len(form) - _RUN + 1)}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in spared and "__pycache__" not in path.parts:
            content = path.read_bytes()
            found = next((part for part in parts if part.encode() in content), None)
            if found is not None:
                return f"{path.name} has {found!r}"
    database = folder / "traces.duckdb"
    for source in (*TABLES, *VIEWS) if database.exists() else ():
        text = str(rows(database, source.name))
        if any(part in text for part in parts):
            return f"table {source.name}"
    return ""
