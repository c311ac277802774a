"""A real nginx in front of several services, configured as docs/operations.md says."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lacking import lacking
from tests.running import free_port, is_open

MISSING = "needs nginx: apt-get install nginx-light"
CONFIGURATION = """
user root;
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream polywire {{
        random;
        {servers}
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://polywire;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_read_timeout 3600s;
        }}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, ports: Sequence[int]) -> Iterator[str]:
    """The URL of a proxy that shares the requests among the services at `ports`, at random."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        lacking(MISSING)
    folder.mkdir()
    port = free_port()
    servers = "\n".join(f"server 127.0.0.1:{each} max_fails=1 fail_timeout=5s;" for each in ports)
    path = folder / "nginx.conf"
    path.write_text(CONFIGURATION.format(folder=folder, servers=servers, port=port))
    command = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not is_open(port):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError((folder / "error.log").read_text())
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
