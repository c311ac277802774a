"""What users said, written down: by the client's wish, or because a chat model can read only text."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.events import Failed, Finished, StreamEvent, TextDelta
from wires.openai.realtime.configuration import InputTranscription
from wires.openai.realtime.items import Item, Recording
from wires.openai.realtime.outgoing import Outgoing, Transcribe, error_body
from wires.openai.realtime.requests import Catalog, transcription_request


@dataclass(slots=True)
class _Work:
    item: Item
    index: int
    recording: Recording
    said: bool
    seconds: float
    text: str = ""


class Transcripts:
    """Transcriptions at work, by the key in their `Transcribe`."""

    def __init__(self, out: Outgoing, catalog: Catalog) -> None:
        self._out, self._catalog = out, catalog
        self._works: dict[str, _Work] = {}

    def ask(self, item: Item, asked: InputTranscription | None, *, said: bool) -> bool:
        """Have what is recorded in `item` written down, once; `said`: tell the client. Whether any of it is at work."""
        for index, part in enumerate(item.parts):
            recording = part.recording
            if recording is None or recording.asked:
                continue
            recording.asked = True
            work = _Work(item, index, recording, said, recording.seconds)
            if recording.transcript is not None or not recording.pcm:
                self._end(work)
                continue
            key = f"{item.id}/{index}"
            self._works[key] = work
            self._out.order(Transcribe(key, transcription_request(recording, asked, self._catalog)))
        return self.is_at_work(item.id)

    def is_at_work(self, item_id: str) -> bool:
        return any(work.item.id == item_id for work in self._works.values())

    def feed(self, key: str, event: StreamEvent) -> str | None:
        """The next event of a transcription; the item's id when that ends it."""
        work = self._works[key]
        match event:
            case TextDelta(text=text):
                work.text += text
                if work.said:
                    self._say(work, "delta", delta=text)
                return None
            case Finished():
                self._end(work)
            case Failed(error=error):
                # The answer to it fails; later ones go on without what could not be understood.
                work.recording.transcript, work.recording.pcm = "", b""
                if work.said:
                    self._say(work, "failed", error=error_body(error))
            case _:
                return None
        del self._works[key]
        return work.item.id

    def _end(self, work: _Work) -> None:
        work.recording.transcript = (work.recording.transcript or work.text).strip()
        work.recording.pcm = b""
        if work.said:
            usage = {"type": "duration", "seconds": round(work.seconds, 3)}
            self._say(work, "completed", transcript=work.recording.transcript, usage=usage)

    def _say(self, work: _Work, kind: str, **fields: object) -> None:
        where = {"item_id": work.item.id, "content_index": work.index}
        self._out.say(f"conversation.item.input_audio_transcription.{kind}", **where, **fields)
