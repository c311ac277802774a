"""Services for the Realtime tests: one behind TLS and a key, one whose voice and transcriber are the embedded ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import scripted_config
from tests.running import Service, running
from tests.upstreams.certificates import key_pair

KEY = "sk-canary-realtime"
RATE = 24_000
QUESTION = "The quick brown fox jumps over the lazy dog."
LONG = " ".join(f"This is sentence number {number} of a very long answer." for number in range(1, 60))
HEARD = "Please remember to water the plants before you leave the house tomorrow."


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "certificate.pem", folder / "key.pem"
    for path, pem in zip(paths, key_pair(), strict=True):
        path.write_bytes(pem)
    return paths


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[Service]:
    """Scripted providers behind TLS and an API key."""
    environment = {"POLYWIRE_API_KEYS": KEY}
    folder = tmp_path_factory.mktemp("secure")
    with running(folder, scripted_config(), environment=environment, tls=certificate) as started:
        started.headers = {"authorization": f"Bearer {KEY}"}
        yield started


@pytest.fixture(scope="session")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Scripted chat models with the embedded voice and transcriber: no key and no network."""
    folder = tmp_path_factory.mktemp("talking")
    script = folder / "script.yaml"
    words = "".join(f"  - {{text: {word!r}}}\n" for word in (f"{word} " for word in LONG.split()))
    answer = f"  - {{text: {HEARD!r}}}\n  - {{finish: stop}}\n"
    words = "".join(f"  - {{text: {'number ' * 5!r}}}\n" for _ in range(10))
    few = f"{words}  - {{finish: stop}}\n"
    heard = "  - {text: Hello.}\n  - {finish: stop}\n"
    script.write_text(f"long:\n{words}  - {{finish: stop}}\nanswer:\n{answer}few:\n{few}heard:\n{heard}")
    config = {
        "providers": [{"name": "script", "type": "scripted", "path": str(script)}, {"name": "local", "type": "local"}],
        "models": [
            {"id": "long", "provider": "script", "upstream": "long"},
            {"id": "few", "provider": "script", "upstream": "few"},
            {"id": "answer", "provider": "script", "upstream": "answer"},
            {"id": "echo", "provider": "script", "upstream": "echo"},
            {"id": "voice", "provider": "local", "upstream": "speech", "kind": "speech"},
            {"id": "hum", "provider": "script", "upstream": "tone", "kind": "speech"},
            {"id": "heard", "provider": "script", "upstream": "heard", "kind": "transcription"},
            {"id": "transcriber", "provider": "local", "upstream": "transcription", "kind": "transcription"},
        ],
    }
    with running(folder, config) as started:
        yield started


@pytest.fixture(scope="session")
def question() -> bytes:
    """QUESTION as the embedded voice says it: 24 kHz PCM that begins with its first sound."""
    from hibari import Hibari

    audio = Hibari(voice="heart")(QUESTION)
    pcm = (np.clip(audio, -1, 1) * 32767).astype("<i2")
    begins = int(np.argmax(np.abs(pcm.astype(np.int32)) > 1_000))
    return bytes(pcm[begins:].tobytes())


def silence(seconds: float) -> bytes:
    return bytes(2 * int(RATE * seconds))
