"""`make autobahn`: Autobahn's cases, played by kosoku, against the service under BentoML.

`/echo` stands beside the wires, behind the same server and middlewares; on `/ws`, which answers nothing as it came, the
cases are those whose right outcome is a failed connection or an answer of the protocol itself. Exits 1 on a failure
that is not KNOWN.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import scripted_config
from tests.running import running

KOSOKU = sys.argv[1] if len(sys.argv) > 1 else "kosoku"
KNOWN = {"7.1.5": "websockets answers a close frame inside a fragmented message with 1002"}
LEFT_OUT = ("9.*", "12.*", "13.*")
"""Megabytes for minutes, and compression, whose frames are the WebSocket library's alone."""
BAD = ("FAILED", "ERROR")
NO_ECHO = (
    *("2.*", "3.*", "4.*", "5.1", "5.2", "7.*"),
    *(f"5.{number}" for number in range(9, 19)),
    *(f"6.{number}.*" for number in (3, 4, 8, 10, *range(12, 22))),
)
WANTS_ECHO = ("7.1.1",)
PATHS = {"echo": (("*",), ()), "ws": (NO_ECHO, WANTS_ECHO)}


def play(url: str, cases: tuple[str, ...], but: tuple[str, ...], folder: Path) -> dict[str, str]:
    """The verdict of each case."""
    command = [KOSOKU, "-o", str(folder)]
    for case in cases:
        command += ["-i", case]
    for case in (*LEFT_OUT, *but):
        command += ["-x", case]
    subprocess.run([*command, url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=500, check=False)
    (verdicts,) = json.loads((folder / "index.json").read_text()).values()
    return {case: f"{found['behavior']}/{found['behaviorClose']}" for case, found in verdicts.items()}


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(folder, scripted_config(), target="tests.autobahn.service:service") as service:
            for path, (cases, but) in PATHS.items():
                verdicts = play(f"{service.ws_url}/{path}", cases, but, folder / path)
                bad = {case: verdict for case, verdict in verdicts.items() if verdict.startswith(BAD)}
                failed += len(bad.keys() - KNOWN.keys())
                print(f"/{path}: {len(verdicts)} cases, {len(bad)} failed")  # noqa: T201 - a program's output
                for case, verdict in bad.items():
                    print(f"  {case} {verdict} {KNOWN.get(case, '')}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
