"""Fixtures that benchmark tests share with sandbox tests."""

from tests.sandboxes.conftest import image_root as image_root
from tests.sandboxes.conftest import modal_service as modal_service
from tests.sandboxes.conftest import own_cache as own_cache
