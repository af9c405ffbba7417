"""`python -m prove.attacks.proxy SOCKET`: the proxy of a trial, whose model says hello."""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.bench.coders.proxy import ModelProxy
from tests.bench.test_proxy import FakeModel, job


async def _serve(path: Path) -> None:
    with TemporaryDirectory() as folder:
        async with ModelProxy(job(FakeModel(), Path(folder))).serve_at(path):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
