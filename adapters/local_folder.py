"""The private folder in which workers and the embedded chat model's process meet: locks, address, log.

`local_server.py` holds the other ends: `alive` and `child.json` are locked by the child, `users` by every worker, and
`spawn` by the one worker that looks for a child or starts one.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gateway.errors import UpstreamUnavailable

SERVER = Path(__file__).with_name("local_server.py")
START_SECONDS = 30.0
QUOTED_LOG = 300
LONGEST_ADDRESS = 4096


@dataclass(frozen=True, slots=True)
class Address:
    """Where a child answers (`base_url` ends in /v1), and the key that it demands."""

    base_url: str
    pid: int
    key: str = field(repr=False)


class Folder:
    """The open files of one worker. Its locks are `flock`s: they end with the process that holds them."""

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

    def start(self, settings: bytes) -> None:
        """Start a child and wait until it holds its lock; it loads the model after that. Raises UpstreamUnavailable."""
        with (self._path / "log").open("wb") as log:
            try:
                subprocess.run(  # noqa: S603 - our own file, by our own interpreter
                    [sys.executable, "-P", str(SERVER), str(self._path)],
                    input=settings,
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


def private_folder(name: str) -> Folder:
    """`polywire-<uid>/<name>` in the temporary folder, checked to be ours alone: it will hold a key.

    Raises UpstreamUnavailable when it is not.
    """
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
        return Folder(parent / name)
    except OSError as error:
        raise UpstreamUnavailable(
            f"{str(parent)!r} cannot be written ({error.strerror}); set TMPDIR to a folder that can.", retryable=False
        ) from error


def try_lock(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(descriptor: int) -> bool:
    if not try_lock(descriptor, fcntl.LOCK_SH):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
