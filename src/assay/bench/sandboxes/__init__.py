"""Sandboxes: where commands run that reach nothing but what they were given."""

from assay.bench.sandboxes.bubblewrap import BubblewrapBackend
from assay.bench.sandboxes.choosing import BACKENDS, choose_backend
from assay.bench.sandboxes.images import check_recipe
from assay.bench.sandboxes.modal import ModalBackend, check_program
from assay.bench.sandboxes.roots import python_mounts, python_path, sandbox_environment
from assay.bench.sandboxes.unprotected import UNPROTECTED, UnprotectedBackend

__all__ = [
    "BACKENDS",
    "UNPROTECTED",
    "BubblewrapBackend",
    "ModalBackend",
    "UnprotectedBackend",
    "check_program",
    "check_recipe",
    "choose_backend",
    "python_mounts",
    "python_path",
    "sandbox_environment",
]
