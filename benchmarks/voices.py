"""Speech in frames of 20 ms: `/ws` and Realtime beside the same socket under `bentoml serve` as it comes.

Programs come in two kinds, which must not be compared: those that relay an upstream's frames, and those whose voice
makes its frames in the process and has nothing to read. Such a voice of Polywire's either calls back when a frame is
due or is a plain generator that sleeps until then, as the others' is. A token is a frame here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import LATEST_AUDIO, OFFERED, Figure, leaving, memory, most_streams, paced, slow_reader
from benchmarks.gateways import plain_voice
from benchmarks.interleaved import Results, measure, running
from benchmarks.load import Load, Upstream
from benchmarks.table import grid, ratio
from benchmarks.targets import polywire, scratch

RELAY, REALTIME = "Polywire /ws", "Polywire Realtime"
PUSHED, YIELDED = "Polywire /ws, frames pushed", "Polywire /ws, frames yielded"
SPEAK = '{"type": "speak", "text": "{control}"}'
RESPOND = json.dumps(
    {
        "type": "response.create",
        "response": {
            "output_modalities": ["audio"],
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "{control}"}]}],
        },
    }
)
LEAVERS = Load(streams=20, tokens=2000, interval=20_000, ramp=0.3, seconds=15, requests=40, warm=0)
FIGURES: tuple[Figure, ...] = (
    memory,
    paced(30),
    paced(100),
    most_streams(LATEST_AUDIO),
    leaving("midway", LEAVERS, "--cancel-after", "10"),
    slow_reader,
)
OWN_FIGURES: tuple[Figure, ...] = (
    paced(30),
    paced(100),
    most_streams(LATEST_AUDIO),
    paced(30, offered=True),
    most_streams(LATEST_AUDIO, offered=True),
)
"""A program without an upstream has nothing to close, and nothing that goes on without its reader."""


def section(rounds: int, pictures: Path) -> str:
    """The tables and the ratios."""
    with scratch() as path, Upstream() as upstream:
        folder, url = Path(path), upstream.url
        relays = [
            polywire(url, folder, RELAY, path="/ws", hello=SPEAK),
            polywire(
                url,
                folder,
                REALTIME,
                chat="scripted",
                path="/v1/realtime?model=default",
                hello=RESPOND,
                more=["--base64"],
            ),
            plain_voice(folder, url),
        ]
        with running(relays, folder) as targets:
            relayed = measure(targets, upstream, FIGURES, rounds)
        voices = {PUSHED: "benchmarks.peers.pushed_voice:Polywire", YIELDED: "benchmarks.peers.own_voice:Polywire"}
        makers = [
            *(
                polywire(url, folder, name, voice="scripted", service=service, path="/ws", hello=SPEAK)
                for name, service in voices.items()
            ),
            plain_voice(folder),
            plain_voice(folder, traced=False),
        ]
        with running(makers, folder) as targets:
            made = measure(targets, upstream, OWN_FIGURES, rounds)
    parts = ["### Frames of an upstream", grid(relayed), _ratios(relayed, (RELAY, REALTIME))]
    return "\n\n".join([*parts, "### Frames that the program makes itself", grid(made), _ratios(made, tuple(voices))])


def _ratios(results: Results, ours: Sequence[str]) -> str:
    names = (
        "CPU us/token 30",
        "CPU us/token 100",
        "most streams",
        f"CPU us/token 30{OFFERED}",
        f"most streams{OFFERED}",
    )
    found: dict[str, Mapping[str, float | None]] = {}
    for program, figures in results.items():
        if program not in ours:
            for own in ours:
                row = results.get(own, {})
                found[f"{own} / {program}"] = {name: ratio(row.get(name), figures.get(name)) for name in names}
    return "#### Polywire's figure divided by theirs\n\n" + grid(found)
