"""What training needs beside assay itself."""

from importlib.util import find_spec

from assay.errors import UsageError

__all__ = ["require_train"]


def require_train(wandb: str = "off", environment: str = "crafter") -> None:
    """Say what to install, if something is missing.

    Args:
        wandb: Whether Weights & Biases is wanted: off, offline or online.
        environment: Where it is played.

    Raises:
        UsageError: Something is missing.
    """
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training needs {', '.join(missing)}, not installed here; install them with:"
            " pip install 'assay[train]' (from a checkout: pip install -e '.[train]')"
        )
    if environment == "mettagrid" and find_spec("mettagrid") is None:
        raise UsageError(
            "--environment mettagrid needs the package mettagrid, not installed here; install "
            "it with: pip install 'assay[mettagrid]' (from a checkout: pip install -e "
            "'.[mettagrid]'), or leave --environment out for crafter"
        )
    if wandb != "off" and find_spec("wandb") is None:
        raise UsageError(
            f"--wandb {wandb} needs the package wandb, not installed here; install it with:"
            " pip install wandb, or leave --wandb out"
        )
