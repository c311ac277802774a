"""The process of the embedded chat model: llama.cpp's server on loopback, shared by all workers of one machine.

Run as a file by `adapters/local_folder.py`, never imported: `python -P local_server.py FOLDER`, settings on stdin. It
holds `FOLDER/alive` locked so that there is only one, and says in `FOLDER/child.json` where it listens and with which
key. Once it can lock `FOLDER/users` for itself, no worker lives any more and it leaves: kernels free locks on `kill -9`
too.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

# Spinning OpenMP threads starve each other on busy cores: 2 tokens/s instead of 40. Read when libgomp is loaded.
os.environ["OMP_WAIT_POLICY"] = "passive"

USERS_CHECK_SECONDS = 0.25
LOCK_SECONDS = 5.0
TOKENS_PER_STEP = 32


def main() -> None:
    """Become the one child of the folder, in the background: whoever started this waits only for the lock."""
    folder, settings = Path(sys.argv[1]), json.load(sys.stdin)
    alive = _open(folder / "alive")
    if not _lock_soon(alive):
        return
    (folder / "child.json").unlink(missing_ok=True)
    if os.fork():
        # The lock lives on in the fork. Nobody has to wait for that one: it is a child of init now.
        os._exit(0)
    _serve(folder, settings)


def _serve(folder: Path, settings: dict[str, Any]) -> None:
    import xllamacpp  # after the fork, since it starts threads

    key = secrets.token_urlsafe(24)
    users = _open(folder / "users")
    server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), settings, key))
    _end_log()
    _publish(folder, {"base_url": f"{server.listening_address}/v1", "key": key, "pid": os.getpid()})
    while not _lock(users):
        time.sleep(USERS_CHECK_SECONDS)
    (folder / "child.json").unlink(missing_ok=True)
    # The lock on `users` holds until the process is gone, so a worker that arrives now starts a child of its own.
    os._exit(0)


def _parameters(parameters: Any, settings: dict[str, Any], key: str) -> Any:
    parameters.model.path = settings["gguf"]
    parameters.model_alias = {"chat"}
    parameters.hostnames, parameters.port, parameters.api_keys = ["127.0.0.1"], 0, [key]
    parameters.ui = False
    parameters.verbosity = 1
    parameters.n_gpu_layers = 0
    # A host-side prompt cache grows by 6 MB for every distinct prompt, up to 8 GB by default.
    parameters.cache_ram_mib = 0
    # Otherwise the context would shrink to the free memory without a word.
    parameters.fit_params = False
    # The engine divides the context among the slots.
    parameters.n_parallel, parameters.n_ctx = settings["slots"], settings["slots"] * settings["context"]
    # One step for all streams. By default it takes 2048 prompt tokens: many seconds in which no other stream moves on
    # and nobody's leaving is noticed.
    parameters.n_batch = parameters.n_ubatch = max(TOKENS_PER_STEP, settings["slots"])
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = settings["threads"]
    # A waiting request holds one of these threads too; with the default, the thirteenth stream would not be read.
    parameters.n_threads_http = settings["slots"] + 64
    return parameters


def _publish(folder: Path, value: dict[str, Any]) -> None:
    """Write `child.json`. It stays open and locked, so that its readers see whether this very child still lives."""
    draft = folder / "child.json.new"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    _lock(descriptor)
    os.write(descriptor, json.dumps(value).encode())
    draft.rename(folder / "child.json")


def _end_log() -> None:
    """The log is for what goes wrong while loading; after that it would grow with every refused request."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_soon(descriptor: int) -> bool:
    """Workers that look whether a child lives hold the lock for a moment; another child holds it for good."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not (locked := _lock(descriptor)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return locked


if __name__ == "__main__":
    main()
