"""A prediction's `output`: a list of text pieces, or the file of what a voice said."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from collections.abc import Iterable, Iterator

from gateway.events import AudioDelta, AudioStart, StreamEvent, TextDelta
from gateway.prediction import Prediction, Status
from gateway.predictions import Predictions

FILE_LIKE = ("https:", "data:")
"""An output that begins so is taken for a file by Replicate's clients, and fetched."""


async def output_of(predictions: Predictions, prediction: Prediction, base: str, *, listed: bool = False) -> object:
    """The output so far, None when there is nothing. In a list, audio that is no URL is left out for its size."""
    whole = prediction.status is Status.SUCCEEDED
    if prediction.kind == "chat":
        events = await predictions.recorded(prediction)
        pieces = [piece for event in events if isinstance(event, TextDelta) for piece in guarded(event.text)]
        return pieces or ([] if whole else None)
    if not whole:
        return None
    if base.startswith("https:"):
        return f"{base}/v1/files/{prediction.token}"
    if listed:
        return None
    # Clients leave an http: URL as text, but read a data URL as a file.
    return await asyncio.to_thread(_data_url, await predictions.recorded(prediction))


def guarded(text: str) -> Iterator[str]:
    """`text` in pieces of which none looks like a file's URL."""
    if text.startswith(FILE_LIKE):
        yield text[0]
        yield text[1:]
    elif text:
        yield text


def wav_file(events: Iterable[StreamEvent]) -> bytes:
    """A voice's PCM as one WAV file with its true length."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setsampwidth(2)
        file.setnchannels(1)
        file.setframerate(24_000)
        for event in events:
            match event:
                case AudioStart(format=format):
                    file.setnchannels(format.channels)
                    file.setframerate(format.rate)
                case AudioDelta(data=data):
                    file.writeframesraw(data)
                case _:
                    pass
    return buffer.getvalue()


def _data_url(events: Iterable[StreamEvent]) -> str:
    return "data:audio/wav;base64," + base64.b64encode(wav_file(events)).decode()
