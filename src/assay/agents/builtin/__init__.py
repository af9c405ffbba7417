"""Chat models that come with the package: scripted players behind the chat protocol."""

from .models import BUILTIN_MODELS, BuiltinModel, builtin_models, is_scripted, make_builtin
from .request import Choice, draws, last_observation, max_actions, notes, offers_interact

__all__ = [
    "BUILTIN_MODELS",
    "BuiltinModel",
    "Choice",
    "builtin_models",
    "draws",
    "is_scripted",
    "last_observation",
    "make_builtin",
    "max_actions",
    "notes",
    "offers_interact",
]
