"""Settings of the agent's conversation with a model. No behaviour."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from assay.core.settings import Configuration, Setting
from assay.core.values import choice, file_text, path, real, text, value_type, whole

ViewForm = Literal["full", "short"]
"""Forms of an observation."""

_prompt_text = text(200_000)


@value_type(f"the path of a file with {_prompt_text.allowed}", option=Path)
def _read_prompt_file(value: Any) -> str:
    return str(_prompt_text.read(file_text(path.read(value))))


@dataclass(frozen=True, slots=True)
class AgentOptions(Configuration):
    """Settings for calling a model; an invalid value raises UsageError."""

    history: int = Setting(8, whole(1, 100)).about(
        "Number of previous turns that the model sees"
    )
    temperature: float = Setting(0.0, real(0, 2)).about("Sampling temperature, from 0 to 2")
    max_tokens: int = Setting(1024, whole(1, 10**9)).about(
        "Maximum number of tokens in a reply"
    )
    actions_per_turn: int = Setting(5, whole(1, 50)).about(
        "Maximum number of actions in a turn"
    )
    view: ViewForm = Setting("full", choice(*get_args(ViewForm))).about(
        "Length of observations; short is for small models"
    )
    prompt: str | None = Setting(None, _prompt_text, given=_read_prompt_file).about(
        "Text file with your own instructions; rules and tools are always added"
    )
