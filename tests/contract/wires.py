"""The wires of the contract suite: a new wire joins by one entry, and is then asked everything that the others are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.errors import GatewayError
from gateway.events import Failed, Finished, FinishReason, StreamEvent
from tests.contract import wire_readers as readers
from tests.contract.wire_clients import Clients, Raw
from tests.contract.wire_entry import WireEntry
from wires.base import Encoder
from wires.generate import PieceEncoder
from wires.openai.chat import ChunkEncoder
from wires.openai.completions import CompletionEncoder
from wires.openai.responses.encoder import ResponseEncoder
from wires.openai.responses.request import ResponseBody, template
from wires.opensearch.encoder import ContentEncoder, FrameEncoder
from wires.replicate.encoder import EventEncoder
from wires.sagemaker.encoders import ChatForm, CompletionForm, GenerateForm
from wires.sagemaker.routes import FramedEncoder
from wires.websocket.frames import FrameEncoder as TurnEncoder

Body = Callable[[str, str], dict[str, Any]]

NO_REASON = {"reason": "every end without an error is the same"}
NO_TOOLS = {"tools": "the answer is a plain text"}
NO_USAGE = {"usage": "the stream has no place for counts"}
NO_REASONING = {"reasoning": "the answer has one text, and thinking is not part of it"}
LINES = {"carriage return": "the text stands in the lines of server-sent events, which end at every line end"}
PLAIN = NO_REASON | NO_TOOLS | NO_USAGE | NO_REASONING
SSE = {"accept": "text/event-stream"}
USAGE = {"stream_options": {"include_usage": True}}
GENERATE_REASONS = {reason: "stop_sequence" for reason in FinishReason} | {
    FinishReason.STOP: "eos_token",
    FinishReason.LENGTH: "length",
}
REALTIME_REASONS = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.LENGTH: "max_output_tokens",
}
RESPONSE_REASONS = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.LENGTH: "max_output_tokens",
}


def messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def posted(path: str, body: Body, headers: Mapping[str, str] | None = None) -> Any:
    """Asks by one POST."""

    async def ask(clients: Clients, model: str, prompt: str) -> Raw:
        return await clients.post(path.format(model=model), body(model, prompt), headers)

    return ask


def on_socket(path: str) -> Any:
    """Asks by one `chat` message."""

    async def ask(clients: Clients, model: str, prompt: str) -> Raw:
        message = {"type": "chat", "model": model, "messages": messages(prompt)}
        return await clients.turn(path, json.dumps(message))

    return ask


async def ask_replicate(clients: Clients, model: str, prompt: str) -> Raw:
    """Creates a prediction and reads its stream."""
    body = {"version": model, "input": {"prompt": prompt}, "stream": True}
    made = await clients.post("/v1/predictions", body)
    if made.status != 201:
        return made
    return await clients.send("GET", json.loads(made.body)["urls"]["stream"])


async def ask_realtime(clients: Clients, model: str, prompt: str) -> Raw:
    """Asks for one response out of the conversation."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    response = {"conversation": "none", "input": [item], "output_modalities": ["text"]}
    message = {"type": "response.create", "response": response}
    return await clients.turn(f"/v1/realtime?model={model}", json.dumps(message))


async def ask_grpc(clients: Clients, model: str, prompt: str) -> Raw:
    return await clients.predict(model, prompt)


def encoded(encoder: Callable[[], Encoder[bytes]]) -> Callable[[Iterable[StreamEvent]], Raw]:
    def encode(events: Iterable[StreamEvent]) -> Raw:
        fresh = encoder()
        return Raw(200, b"".join(frame for event in events for frame in fresh.encode(event)))

    return encode


def encode_generate(*, framed: bool) -> Callable[[Iterable[StreamEvent]], Raw]:
    def encode(events: Iterable[StreamEvent]) -> Raw:
        encoder = PieceEncoder(framed=framed)
        body: list[bytes] = []
        try:
            for event in events:
                body += encoder.encode(event)
        except GatewayError:
            return Raw(200, b"".join(body), whole=False)
        return Raw(200, b"".join(body))

    return encode


def encode_turn(events: Iterable[StreamEvent]) -> Raw:
    encoder = TurnEncoder("r")
    frames = [frame for event in events for frame in encoder.encode(event)]
    return Raw(101, "\n".join(json.dumps(frame) for frame in frames).encode())


def encode_grpc(events: Iterable[StreamEvent]) -> Raw:
    encoder, lines, status = ContentEncoder(), [], {"status": "OK", "details": ""}
    for event in events:
        lines += [{"content": content, "is_last": False} for content in encoder.contents(event)]
        if isinstance(event, Finished):
            lines.append({"content": "", "is_last": True})
        elif isinstance(event, Failed):
            status = {"status": "INTERNAL", "details": event.error.message}
    return Raw(200, "\n".join(json.dumps(line) for line in [*lines, status]).encode())


def response_encoder() -> ResponseEncoder:
    return ResponseEncoder(template(ResponseBody(model="m", input="hi")))


ENTRIES = (
    WireEntry(
        "generate",
        posted("/generate", lambda model, prompt: {"prompt": prompt, "model": model}),
        encode_generate(framed=False),
        readers.read_plain,
        PLAIN,
    ),
    WireEntry(
        "generate as events",
        posted("/generate", lambda model, prompt: {"prompt": prompt, "model": model}, SSE),
        encode_generate(framed=True),
        readers.read_named,
        PLAIN | LINES,
    ),
    WireEntry("websocket", on_socket("/ws"), encode_turn, readers.read_socket),
    WireEntry("sagemaker socket", on_socket("/invocations-bidirectional-stream"), encode_turn, readers.read_socket),
    WireEntry(
        "openai chat",
        posted(
            "/v1/chat/completions",
            lambda model, prompt: {"model": model, "messages": messages(prompt), "stream": True, **USAGE},
        ),
        encoded(lambda: ChunkEncoder(include_usage=True)),
        readers.read_chunks,
    ),
    WireEntry(
        "openai completions",
        posted("/v1/completions", lambda model, prompt: {"model": model, "prompt": prompt, "stream": True, **USAGE}),
        encoded(lambda: CompletionEncoder(echo="", include_usage=True)),
        readers.read_chunks,
        NO_TOOLS | NO_REASONING,
    ),
    WireEntry(
        "openai responses",
        posted("/v1/responses", lambda model, prompt: {"model": model, "input": prompt, "stream": True}),
        encoded(response_encoder),
        readers.read_response,
        reasons=RESPONSE_REASONS,
    ),
    WireEntry("openai realtime", ask_realtime, None, readers.read_realtime, NO_REASONING, REALTIME_REASONS),
    WireEntry(
        "replicate",
        ask_replicate,
        encoded(lambda: EventEncoder(1)),
        readers.read_named,
        PLAIN | LINES,
        reasons={FinishReason.CANCELLED: "canceled"},
    ),
    WireEntry(
        "ml commons",
        posted(
            "/_plugins/_ml/models/{model}/_predict/stream", lambda model, prompt: {"parameters": {"inputs": prompt}}
        ),
        encoded(FrameEncoder),
        readers.read_contents,
        NO_REASON | NO_USAGE | NO_REASONING,
    ),
    WireEntry("ml commons grpc", ask_grpc, encode_grpc, readers.read_messages, NO_REASON | NO_USAGE | NO_REASONING),
    WireEntry(
        "sagemaker messages",
        posted(
            "/invocations",
            lambda model, prompt: {"model": model, "messages": messages(prompt), "stream": True, **USAGE},
        ),
        encoded(lambda: ChatForm(include_usage=True).encoder()),
        readers.read_chunks,
    ),
    WireEntry(
        "sagemaker inputs",
        posted(
            "/invocations",
            lambda model, prompt: {
                "model": model,
                "inputs": prompt,
                "parameters": {"details": True},
                "stream": True,
            },
        ),
        encoded(lambda: GenerateForm(details=True).encoder()),
        readers.read_tokens,
        NO_TOOLS | NO_REASONING,
        GENERATE_REASONS,
    ),
    WireEntry(
        "sagemaker prompt",
        posted("/invocations", lambda model, prompt: {"model": model, "prompt": prompt, "stream": True}),
        encoded(lambda: CompletionForm().encoder()),
        readers.read_chunks,
        NO_TOOLS | NO_REASONING | NO_USAGE,
    ),
    WireEntry(
        "sagemaker runtime",
        posted(
            "/endpoints/{model}/invocations-response-stream",
            lambda model, prompt: {"messages": messages(prompt), "stream": True, **USAGE},
        ),
        encoded(lambda: FramedEncoder(ChatForm(include_usage=True).encoder())),
        readers.read_payload_parts,
    ),
    WireEntry(
        "lambda",
        posted(
            "/lambda", lambda model, prompt: {"model": model, "messages": messages(prompt), "stream": True, **USAGE}
        ),
        encoded(lambda: ChatForm(include_usage=True).encoder()),
        readers.read_function,
    ),
)
