"""Names that assay uses at Modal; does not import its client."""

import platform
from typing import Final

BEGUN: Final = "/.assay-begun"
"""A file that exists for a moment after a sandbox has started."""
APP: Final = "assay"
"""Name of the app that Modal lists."""
TOKEN: Final = "modal token new, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"


def default_image_name() -> str:
    """Return the public base image for tasks without a Dockerfile."""
    return f"python:{'.'.join(platform.python_version_tuple()[:2])}-slim-bookworm"
