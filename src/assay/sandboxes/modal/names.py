"""Names that assay uses at Modal; does not need its client."""

import platform
from typing import Final

BEGUN: Final = "/.assay-begun"
"""A file that is there for a moment, when a sandbox has begun."""
APP: Final = "assay"
"""Under which name Modal lists what is assay's."""
TOKEN: Final = "modal token new, or MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"


def plain_name() -> str:
    """The public image that tasks without a Dockerfile start from."""
    return f"python:{'.'.join(platform.python_version_tuple()[:2])}-slim-bookworm"
