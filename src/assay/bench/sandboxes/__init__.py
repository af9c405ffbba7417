"""Sandboxes: where commands run that reach nothing but what they were given."""

from assay.bench.sandboxes.bubblewrap import BubblewrapBackend
from assay.bench.sandboxes.choosing import BACKENDS, choose_backend
from assay.bench.sandboxes.egress import PUBLIC, describe_network, parse_destination
from assay.bench.sandboxes.modal import ModalBackend, check_program
from assay.bench.sandboxes.roots import python_mounts, python_path, sandbox_environment
from assay.bench.sandboxes.self_test import SelfTest, proven_enforcement, run_self_test
from assay.bench.sandboxes.unprotected import UNPROTECTED, UnprotectedBackend

__all__ = [
    "BACKENDS",
    "PUBLIC",
    "UNPROTECTED",
    "BubblewrapBackend",
    "ModalBackend",
    "SelfTest",
    "UnprotectedBackend",
    "check_program",
    "choose_backend",
    "describe_network",
    "parse_destination",
    "proven_enforcement",
    "python_mounts",
    "python_path",
    "run_self_test",
    "sandbox_environment",
]
