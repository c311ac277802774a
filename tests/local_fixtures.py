"""What the tests of the embedded provider share: a private temporary folder, hence a child of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from gateway.config import LocalSettings, ProviderRow, Settings
from gateway.request import ChatRequest, Role, Sampling, text_message

ROOT = Path(__file__).resolve().parent.parent
ROW = ProviderRow(name="local", type="local")
SETTINGS = Settings(local=LocalSettings(threads=1))

WORKER = """
import asyncio
from adapters.local_child import LocalChild
from gateway.config import LocalSettings

async def main():
    address = await LocalChild(LocalSettings(threads=1)).address()
    print(address.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make `path` the temporary folder of this process and of those that it starts."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir, os.environ["TMPDIR"] = str(path), str(path)
    try:
        yield path
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


@contextmanager
def worker() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that holds a child, and the child's process id. It is killed with -9 on the way out."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def question(text: str, **sampling: object) -> ChatRequest:
    return ChatRequest("chat", (text_message(Role.USER, text),), sampling=Sampling(**sampling))  # type: ignore[arg-type]  # tests name the fields


def lives(pid: int) -> bool:
    """Whether the process runs; one that waits only for being reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def seconds_until(condition: Callable[[], bool], limit: float) -> float:
    """How long it takes until `condition()` holds; fails after `limit` seconds."""
    clock = asyncio.get_running_loop().time
    start = clock()
    while not condition():
        assert clock() - start < limit, f"not within {limit} s"
        await asyncio.sleep(0.01)
    return clock() - start
