"""Sandboxes at Modal: its real client, against a service of ours that speaks its protocols."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.bench.sandboxes.modal import ModalBackend

from .boxes import run, spec
from .modal_server import FakeModal

pytestmark = pytest.mark.docker

BENCH = Path(__file__).parents[2] / "examples" / "bench"


@pytest.fixture
def backend(modal_service: FakeModal) -> Iterator[ModalBackend]:
    yield ModalBackend()
    assert not modal_service.sandboxes, "a sandbox outlived its test"


def test_first(backend: ModalBackend, tmp_path: Path) -> None:
    end = run(backend, spec(tmp_path), "sh", "-c", "id; pwd; echo x > made; echo err >&2")
    print(end)
    assert (tmp_path / "made").read_text() == "x\n"
