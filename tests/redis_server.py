"""A real Redis of the test's own, on a free loopback port."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lacking import lacking
from tests.running import free_port

MISSING = "needs a Redis: apt-get install redis-server (or put valkey-server into PATH)"


@dataclass
class RedisServer:
    """A server in `folder`. What it stores survives `restart` only if it is `persistent`.

    With a `certificate`, a file that holds its key too, it speaks TLS and nothing else.
    """

    folder: Path
    port: int
    persistent: bool = False
    password: str | None = None
    certificate: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis{'s' if self.certificate else ''}://{secret}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = find_program()
        command = [
            program,
            "--tls-port" if self.certificate else "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
            "--save",
            "",
        ]
        command += ["--appendonly", "yes" if self.persistent else "no", "--appendfsync", "always"]
        if self.password:
            command += ["--requirepass", self.password]
        if self.certificate:
            file = str(self.certificate)
            command += ["--port", "0", "--tls-cert-file", file, "--tls-key-file", file, "--tls-auth-clients", "no"]
        with (self.folder / "redis.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 10
        while not self._answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError((self.folder / "redis.log").read_text()[-2000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it without a warning."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart(self) -> None:
        """Kill it and start it again on the same port."""
        self.kill()
        self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It takes connections and answers nothing until the block ends."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def command(self, *words: str) -> str:
        """The raw answer to one command."""
        with self._connect() as connection:
            if self.password:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                connection.recv(100)
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65536).decode()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        if self.certificate is None:
            return connection
        trust = ssl.create_default_context(cafile=self.certificate)
        return trust.wrap_socket(connection, server_hostname="127.0.0.1")

    def _answers(self) -> bool:
        try:
            return "PONG" in self.command("PING")
        except OSError:
            return False


def find_program() -> str:
    """The server's program; without one the test is skipped."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        lacking(MISSING)
    return program


@contextmanager
def redis_server(
    folder: Path, *, persistent: bool = False, password: str | None = None, certificate: Path | None = None
) -> Iterator[RedisServer]:
    """A server until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    server = RedisServer(folder, free_port(), persistent, password, certificate)
    server.start()
    try:
        yield server
    finally:
        server.kill()
