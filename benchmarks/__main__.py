"""`make bench`: run every benchmark, or those that are named, and print their tables."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import adapters, embedded, growth, grpc_text, relays, speech, stores, voices
from benchmarks.load import Unavailable
from benchmarks.table import ratios, table

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "performance"


def _embedded(rounds: int, pictures: Path) -> str:
    return table("The embedded model and voice", embedded.measure())


def _adapters(rounds: int, pictures: Path) -> str:
    return ratios(f"Adapters, {adapters.STREAMS} streams at once", adapters.measure())


def _stores(rounds: int, pictures: Path) -> str:
    return stores.report()


SECTIONS: dict[str, Callable[[int, Path], str]] = {
    "embedded": _embedded,
    "adapters": _adapters,
    "stores": _stores,
    "relays": relays.section,
    "voices": voices.section,
    "speech": speech.section,
    "grpc": grpc_text.section,
    "growth": growth.section,
}
"""Each takes the number of rounds and the folder for its pictures, and gives Markdown."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--rounds", type=int, default=1, help="default: 1, which takes half an hour")
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    asked = parser.parse_args()
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    # Programs that sleep while others are measured would stay asleep for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    asked.pictures.mkdir(parents=True, exist_ok=True)
    done = []
    for name in asked.sections or SECTIONS:
        began = time.monotonic()
        try:
            found = SECTIONS[name](asked.rounds, asked.pictures)
        except Unavailable as reason:
            found = f"left out: {reason}"
        done.append(f"## {name}\n\n{found}\n\nMeasured in {time.monotonic() - began:.0f} s.")
    print("\n\n".join(done))


if __name__ == "__main__":
    main()
