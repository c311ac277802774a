"""placeholder until voice merges"""

from collections.abc import AsyncGenerator

from gateway.events import AudioEvent
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest


def synthesize(provider: SpeechProvider, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
    return provider.synthesize(request)
