"""The models a server has, by the names it answers to. Knows nothing of any wire."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from assay._util.names import unknown_name
from assay.errors import ModelRejected, UsageError
from assay.types import ChatModel, ChatReply, ChatRequest

from .scripted import read_scripts

__all__ = ["ModelTable"]

_MAX_NAME = 200


class ModelTable:
    """Models by name, which may come and go; a model may have several names."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = models

    @classmethod
    def with_aliases(
        cls,
        models: Mapping[str, ChatModel],
        aliases: Mapping[str, str],
        script: Path | None = None,
    ) -> "ModelTable":
        """Return the models, and one that works by a script if there is a file of scripts.

        Some have further names: `aliases` gives the model of each.
        """
        own = dict(models)
        if script is not None:
            scripted = read_scripts(script)
            own[scripted.name] = scripted
        named = dict(own)
        for name, target in aliases.items():
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise UsageError(
                    f"alias {name!r} is not allowed; give 1 to {_MAX_NAME} printable characters"
                )
            if name in own:
                raise UsageError(f"alias {name!r} is the name of a built-in model already")
            if target not in own:
                raise UsageError(unknown_name("built-in model", target, own))
            named[name] = own[target]
        return cls(named)

    @property
    def names(self) -> Iterable[str]:
        """All names, in order."""
        return self._models.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def provider(self, name: str) -> str:
        """Who is behind a name."""
        return self._models[name].provider

    def require(self, name: str) -> None:
        """Refuse a name that no model has."""
        if name not in self._models:
            # The search for a near name takes long where this one is long.
            shown = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."
            raise ModelRejected(unknown_name("model", shown, self._models))

    async def answer(self, request: ChatRequest) -> ChatReply:
        """What the model answers that the request names."""
        return await self._models[request.model].reply(request)
