"""How much of the audio that was sent a client that plays it as it comes has played. Times are in seconds."""

from __future__ import annotations


class Playback:
    """One stream of audio; `begins` is when the audio before it will have been played."""

    def __init__(self, begins: float) -> None:
        self.sent = 0.0
        self.ends = begins

    def send(self, seconds: float, now: float) -> None:
        """Audio of `seconds` goes out."""
        self.ends = max(self.ends, now) + seconds
        self.sent += seconds

    def ahead(self, now: float) -> float:
        """Seconds of audio that wait to be played."""
        return max(0.0, self.ends - now)

    def played(self, now: float) -> float:
        """Seconds of this audio that were played."""
        return max(0.0, self.sent - self.ahead(now))
