"""What the session and a `response.create` say, as requests to the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.catalog import Gateway
from gateway.config import Kind
from gateway.errors import GatewayError
from gateway.request import ChatRequest, Sampling, SpeechRequest, TranscriptionRequest
from gateway.target import Target
from wires.openai.realtime.client_events import ResponseParams
from wires.openai.realtime.configuration import (
    InputTranscription,
    SessionConfig,
    choice_of,
    tools_of,
    voice_name,
)
from wires.openai.realtime.conversation import messages_of
from wires.openai.realtime.formats import voice_format
from wires.openai.realtime.items import Item, Recording
from wires.openai.realtime.response import ResponseConfig


class Catalog(Protocol):
    """What a session must know of the models; the Gateway is one."""

    def find(self, model_id: str | None, kind: Kind = "chat") -> Target: ...

    def find_voice(self, voice: str | None, model_id: str | None = None) -> Target: ...


async def target_of(gateway: Gateway, config: SessionConfig, model: str | None) -> Target:
    """The model that a session is about. Raises NotFound when there is none."""
    if config.type == "transcription":
        asked = config.audio.input.transcription
        return find_transcriber(gateway, asked.model if asked else None)
    return await gateway.resolve(model)


def session_body(config: SessionConfig, id: str, model: str, expires_at: int, catalog: Catalog) -> dict[str, Any]:
    """The session object."""
    if config.type == "transcription":
        head = {"object": "realtime.transcription_session", "id": id, "expires_at": expires_at}
    else:
        head = {"object": "realtime.session", "id": id, "model": model, "expires_at": expires_at}
    return {**head, **config.body(default_voice(catalog))}


def default_voice(catalog: Catalog) -> str:
    """What the session object shows as the voice when the client chose none; empty without a speech model."""
    try:
        return catalog.find_voice(None).model.id
    except GatewayError:
        return ""


def response_config(config: SessionConfig, params: ResponseParams, catalog: Catalog) -> ResponseConfig:
    """What holds for one response. Raises NotFound when it is to be spoken and there is no such voice."""
    output = params.audio.output if params.audio and params.audio.output else None
    source = config.audio.output
    voice = voice_name((output.voice if output else None) or source.voice)
    modality = (params.output_modalities or config.output_modalities)[0]
    if modality == "audio":
        catalog.find_voice(voice or None)
    return ResponseConfig(
        modality=modality,
        format=(output.format if output else None) or source.format,
        voice=voice or default_voice(catalog),
        max_output_tokens=params.max_output_tokens or config.max_output_tokens,
        metadata=params.metadata,
    )


def chat_request(model: str, config: SessionConfig, params: ResponseParams, items: Sequence[Item]) -> ChatRequest:
    """What the chat model is asked."""
    instructions = config.instructions if params.instructions is None else params.instructions
    tools = tools_of(config.tools if params.tools is None else params.tools)
    most = params.max_output_tokens or config.max_output_tokens
    reasoning = params.reasoning or config.reasoning or {}
    parallel = config.parallel_tool_calls if params.parallel_tool_calls is None else params.parallel_tool_calls
    return ChatRequest(
        model=model,
        messages=messages_of(instructions, items),
        tools=tools,
        tool_choice=choice_of(params.tool_choice or config.tool_choice) if tools else None,
        parallel_tool_calls=parallel if tools else None,
        sampling=Sampling(max_tokens=None if most == "inf" else most),
        reasoning_effort=reasoning.get("effort"),
    )


def speech_request(response: ResponseConfig, speed: float) -> SpeechRequest | None:
    """How the answer is spoken, None when it is not."""
    if response.modality != "audio":
        return None
    return SpeechRequest("", "", voice=response.voice or None, format=voice_format(response.format), speed=speed)


def transcription_request(
    recording: Recording, asked: InputTranscription | None, catalog: Catalog
) -> TranscriptionRequest:
    """How `recording` is written down."""
    model = asked.model if asked else None
    return TranscriptionRequest(
        model if model and _is_transcriber(catalog, model) else "",
        recording.pcm,
        recording.rate,
        language=asked.language if asked else None,
        prompt=asked.prompt if asked else None,
    )


def find_transcriber(catalog: Catalog, model: str | None) -> Target:
    """Names of other services' models (`whisper-1`, say), which clients send by default, mean the default one."""
    return catalog.find(model if model and _is_transcriber(catalog, model) else None, "transcription")


def _is_transcriber(catalog: Catalog, model: str) -> bool:
    try:
        catalog.find(model, "transcription")
    except GatewayError:
        return False
    return True
