"""Secrets in many places: no file and no output has twelve characters of one in a row.

The key is in a variable or a file, in an address or a wrong place, repeated by a provider in
replies and errors, and raised or printed by user code. Tables are read with SQL, because DuckDB
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
from tests.runs.echo import (
    Answer,
    answering,
    error_page,
    key_in_error,
    key_in_finish_reason,
    key_in_refusal,
    key_in_reply,
)
from tests.runs.tables import rows

from .processes import read_output, start_assay, wait_for_exit
from .tried import FaultRow

__all__ = ["attack"]

_KEY = "sk-planted-0a1b2c3d4e5f6a7b8c9d"
_ODD_KEY = 'planted+0a1b/2c3d"4e5f\\6a7b=8c9d'
"""A key that JSON and URLs escape."""
_LEAK_CHARACTERS = 12
_SMALL_RUN = (
    *("run", "--models", "any", "--no-baselines", "--episodes", "2", "--max-turns", "2"),
    *("--call-patience", "1", "--database", "traces.duckdb", "-vv", "--debug"),
)
_LOCAL_RUN = ("run", "--models", "builtin/noop", "--no-baselines", "--episodes", "1")
_DATABASE_OPTION = ("--database", "traces.duckdb")
_LATER_COMMANDS = (
    ("traces", "list"),
    ("traces", "show", "best"),
    ("traces", "verify"),
    ("traces", "export", "--format", "json", "--output", "out.json"),
    ("traces", "export", "--format", "parquet", "--output", "out.parquet"),
    ("traces", "export", "--format", "atif", "--output", "out.atif"),
    ("experiments", "list"),
)
"""Commands that show or copy a finished run."""


@dataclass(frozen=True, kw_only=True)
class _Setup:
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the user, which may contain the secret."""
    answer: Answer | None = None
    """Response of the provider; its address replaces `@URL`."""
    key: str = _KEY


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Run every set-up once."""
    for attack, setups in (
        ("user code raises, prints or returns the key", _user_code_setups()),
        ("a provider repeats the key in a reply", _reply_setups()),
        ("a provider repeats the key in an error", _error_setups()),
        ("a secret in an address", dict(_address_setups())),
        ("a key in a file, in its place and in others", _file_setups()),
        ("a key where no key belongs", _misplaced_setups()),
    ):
        row = FaultRow(attack)
        for name, setup in setups.items():
            lost = _find_leak(folder / f"{attack} {name}".replace(" ", "-"), setup)
            row.count(lost and f"{name}: {lost}")
        row.note = f"no {_LEAK_CHARACTERS} characters of it in any file, table or output"
        yield row


def _reply_setups() -> dict[str, _Setup]:
    answers: dict[str, Answer] = {
        "whole": key_in_reply,
        "first half": lambda key: key_in_reply(key[:16]),
        "last half": lambda key: key_in_reply(key[-16:]),
        "in an address": lambda key: key_in_reply(f"http://h/?k={quote(key, safe='')}"),
        "as JSON": lambda key: key_in_reply(json.dumps(json.dumps(key))),
        "in a long end": key_in_finish_reason,
        "refusal": key_in_refusal,
    }
    return {
        f"{name} {number}": _Setup(
            arguments=(*_SMALL_RUN, "--openai-base-url", "@URL", "--cache", "replies.sqlite"),
            environment={"OPENAI_API_KEY": key},
            answer=answer,
            key=key,
        )
        for name, answer in answers.items()
        for number, key in enumerate((_KEY, _ODD_KEY))
    }


def _error_setups() -> dict[str, _Setup]:
    answers = {str(status): key_in_error(status) for status in (400, 401, 404, 429, 500, 503)}
    answers["page"] = error_page(380)
    answers["half"] = lambda key: key_in_error(500)(key[8:24])
    return {
        name: _Setup(
            arguments=(*_SMALL_RUN, "--openai-base-url", "@URL"),
            environment={"OPENAI_API_KEY": _KEY},
            answer=answer,
        )
        for name, answer in answers.items()
    }


def _address_setups() -> Iterator[tuple[str, _Setup]]:
    for name, address in (
        ("password", f"http://me:{_KEY}@127.0.0.1:9/v1"),
        ("query", f"http://127.0.0.1:9/v1?key={_KEY}"),
    ):
        yield (
            f"option, {name}",
            _Setup(arguments=(*_SMALL_RUN, "--openai-base-url", address)),
        )
        yield (
            f"service, {name}",
            _Setup(arguments=(*_LOCAL_RUN, "--service-url", address)),
        )
        yield (
            f"variable, {name}",
            _Setup(arguments=_SMALL_RUN, environment={"OPENAI_BASE_URL": address}),
        )
        yield (
            f"file, {name}",
            _Setup(
                arguments=(*_LOCAL_RUN, "--config", "mine.toml"),
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


def _file_setups() -> dict[str, _Setup]:
    texts = {
        "in its place": f'[openai]\napi_key = "{_KEY}"\n',
        "as a list": f'[openai]\napi_key = ["{_KEY}"]\n',
        "outside a table": f'openai = "{_KEY}"\n',
        "as a number": f'[experiment]\nepisodes = "{_KEY}"\n',
        "as an unknown name": f'[openai]\n"{_KEY}" = 1\n',
        "not TOML": f"api_key = {_KEY}\n",
    }
    arguments = (*_SMALL_RUN, "--openai-base-url", "@URL", "--config", "mine.toml")
    setups = {
        name: _Setup(arguments=arguments, files={"mine.toml": text}, answer=key_in_reply)
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
            arguments=("run", "--models", "a", *_SMALL_RUN[3:]),
            environment={"ASSAY_MODELS": "models.toml"},
            files={"models.toml": text},
            answer=key_in_reply,
        )
    return setups


def _misplaced_setups() -> dict[str, _Setup]:
    return {
        "a model": _Setup(arguments=("run", "--models", _KEY)),
        "an option": _Setup(arguments=(*_LOCAL_RUN, f"--openai-api-key={_KEY}")),
        "a number": _Setup(arguments=(*_LOCAL_RUN, "--max-turns", _KEY)),
        "a command": _Setup(arguments=(_KEY,)),
        "the variable of a variable": _Setup(
            arguments=("serve-models", "--port", "0", "--api-key-env", _KEY)
        ),
    }


def _user_code_setups() -> dict[str, _Setup]:
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
                *(
                    "run",
                    "--no-baselines",
                    "--episodes",
                    "1",
                    "--max-turns",
                    "2",
                    *_DATABASE_OPTION,
                ),
                *("--executor", executor, option),
                *(("mine.py:act",) if option == "--agents" else ("mine.py", *_LOCAL_RUN[1:3])),
            ),
            environment={"MY_API_KEY": _KEY.removeprefix("sk-")},
            files={"mine.py": text},
        )
        for executor in ("asyncio", "processes")
        for name, (option, text) in bodies.items()
    }


def _find_leak(folder: Path, setup: _Setup) -> str:
    """Return where the secret is found outside the user's files, or an empty text."""
    folder.mkdir()
    if setup.answer is None:
        return _run_setup(folder, setup, "")
    with answering(setup.answer) as url:
        return _run_setup(folder, setup, url)


def _run_setup(folder: Path, setup: _Setup, url: str) -> str:
    for name, text in setup.files.items():
        (folder / name).write_text(text.replace("@URL", url), "utf-8")
        (folder / name).chmod(0o600)
    arguments = [argument.replace("@URL", url) for argument in setup.arguments]
    environment = {"OPENAI_API_KEY": "", **setup.environment}
    code = wait_for_exit(start_assay(folder, *arguments, environment=environment))
    if isinstance(code, str):
        return code
    if setup.answer is key_in_reply and (folder / "traces.duckdb").exists():
        for more in _LATER_COMMANDS:
            wait_for_exit(
                start_assay(folder, *more, *_DATABASE_OPTION, environment=environment)
            )
    if not read_output(folder).strip():
        return "no output"
    return _find_secret(setup.key, folder, {*setup.files})


def _find_secret(secret: str, folder: Path, user_files: set[str]) -> str:
    forms = {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
    parts = {
        form[at : at + _LEAK_CHARACTERS]
        for form in forms
        for at in range(len(form) - _LEAK_CHARACTERS + 1)
    }
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in user_files and "__pycache__" not in path.parts:
            content = path.read_bytes()
            match = next((part for part in parts if part.encode() in content), None)
            if match is not None:
                return f"{path.name} has {match!r}"
    database = folder / "traces.duckdb"
    for source in (*TABLES, *VIEWS) if database.exists() else ():
        text = str(rows(database, source.name))
        if any(part in text for part in parts):
            return f"table {source.name}"
    return ""
