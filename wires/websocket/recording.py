"""What a `/ws` client says in binary frames until it commits it: signed 16-bit little-endian mono PCM."""

from __future__ import annotations

from gateway.errors import InvalidRequest, PayloadTooLarge

LONGEST_SECONDS = 120
SAMPLE_BYTES = 2


class Recording:
    """Belongs to the connection. A sample may be cut between two frames."""

    def __init__(self) -> None:
        self._pcm = bytearray()

    def add(self, data: bytes, rate: int) -> None:
        """Raises PayloadTooLarge, and forgets the audio, when it lasts longer than anybody speaks."""
        self._pcm += data
        if len(self._pcm) > LONGEST_SECONDS * rate * SAMPLE_BYTES:
            self._pcm.clear()
            raise PayloadTooLarge(f"The audio is longer than {LONGEST_SECONDS} s; commit it earlier.")

    def take(self) -> bytes:
        """All samples; the next recording begins. Raises InvalidRequest when there are none."""
        pcm = bytes(self._pcm[: len(self._pcm) // SAMPLE_BYTES * SAMPLE_BYTES])
        self._pcm.clear()
        if not pcm:
            raise InvalidRequest("No audio was sent; send binary frames before audio.commit.", code="audio_empty")
        return pcm
