"""Bedrock's Converse body, without I/O: `ChatRequest` -> request body. The decoder of its answer is converse_stream.py.

Converse refuses a whole conversation for one blank text block, for two messages of one role in a row and for a first
message that is not the user's, so the turns are rebuilt here under exactly those rules.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import (
    ChatRequest,
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)

Block = dict[str, Any]

IMAGE_FORMATS = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.*)", re.IGNORECASE | re.DOTALL)
REDACTED = "redacted:"
"""Marks a `ReasoningDelta.signature` that stands for encrypted reasoning; what follows is Converse's base64 blob."""

EXTRA_FIELDS = frozenset(
    {
        "additionalModelRequestFields",
        "additionalModelResponseFieldPaths",
        "guardrailConfig",
        "performanceConfig",
        "promptVariables",
        "requestMetadata",
        "serviceTier",
    }
)
EXTRA_MODEL_FIELDS = frozenset({"thinking", "anthropic_beta"})
"""A caller's fields that are a model's own: they travel in `additionalModelRequestFields`."""

EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
EMPTY_SCHEMA = {"type": "object", "properties": {}}
FIRST_USER_TEXT = "."
"""Stands in for the user where a conversation begins with the assistant, which Converse refuses."""
NO_OUTPUT = "(no output)"
"""Stands in for a tool's empty answer: a blank text block is refused, and a result may not be left out."""


def converse_body(request: ChatRequest) -> dict[str, Any]:
    """The body of `ConverseStream`. Raises InvalidRequest when it would say nothing, Unsupported for what it lacks."""
    turns = _turns(request.messages)
    if not turns:
        raise InvalidRequest(
            "The messages hold no text, image or tool result; write something to answer.", param="messages"
        )
    body: dict[str, Any] = {key: value for key, value in request.extra.items() if key in EXTRA_FIELDS}
    if isinstance(metadata := request.extra.get("metadata"), Mapping) and metadata:
        body.setdefault("requestMetadata", dict(metadata))
    body["messages"] = turns
    if system := [{"text": text} for text in _system_texts(request.messages)]:
        body["system"] = system
    if inference := _inference(request.sampling):
        body["inferenceConfig"] = inference
    if tools := _tool_config(request):
        body["toolConfig"] = tools
    if fields := _model_fields(request):
        body["additionalModelRequestFields"] = fields
    if output := _output_config(request):
        body["outputConfig"] = output
    return body


def _system_texts(messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        if message.role is Role.SYSTEM:
            yield from (part.text for part in message.parts if isinstance(part, Text) and part.text.strip())


def _turns(messages: Iterable[Message]) -> list[Block]:
    """User and assistant turns in strict alternation, the user first, no block blank."""
    turns: list[Block] = []
    for message in messages:
        if message.role is Role.SYSTEM:
            continue
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        blocks = [block for part in message.parts if (block := _block(part)) is not None]
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    if not turns:
        return []
    for turn in turns:
        # A turn's tool results come first: they answer the calls of the turn before.
        turn["content"].sort(key=lambda block: "toolResult" not in block)
    if turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"text": FIRST_USER_TEXT}]})
    _strip_prefill(turns[-1])
    return turns


def _strip_prefill(turn: Block) -> None:
    """A last message of the assistant's is the answer's beginning, and may not end in white space."""
    last = turn["content"][-1]
    if turn["role"] == "assistant" and "text" in last:
        last["text"] = last["text"].rstrip()


def _block(part: Part) -> Block | None:
    """One content block; None for what Converse would refuse as blank."""
    match part:
        case Text(text=text):
            return {"text": text} if text.strip() else None
        case Image(url=url):
            return {"image": _image(url)}
        case Reasoning():
            return _reasoning(part)
        case ToolCall(call_id=call_id, name=name):
            return {"toolUse": {"toolUseId": tool_use_id(call_id), "name": name, "input": _arguments(part)}}
        case ToolResult(call_id=call_id, text=text):
            content = [{"text": text if text.strip() else NO_OUTPUT}]
            return {"toolResult": {"toolUseId": tool_use_id(call_id), "content": content, "status": "success"}}


def _image(url: str) -> Block:
    match = DATA_URL.fullmatch(url)
    if match is None:
        raise Unsupported(
            "Bedrock takes images only as base64 data: URLs (data:image/png;base64,...), not by address.",
            param="messages",
        )
    media, data = match[1].lower(), "".join(match[2].split())
    if media not in IMAGE_FORMATS:
        raise Unsupported(f"Bedrock takes png, jpeg, gif and webp images, not {media!r}.", param="messages")
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InvalidRequest("The image's data: URL is not valid base64.", param="messages") from error
    return {"format": IMAGE_FORMATS[media], "source": {"bytes": data}}


def _reasoning(part: Reasoning) -> Block | None:
    if part.signature is None:
        # Models that sign their reasoning refuse an unsigned block, and those that do not want none back.
        return None
    if part.signature.startswith(REDACTED):
        return {"reasoningContent": {"redactedContent": part.signature.removeprefix(REDACTED)}}
    return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments) if call.arguments.strip() else {}
    except ValueError as error:
        raise InvalidRequest(f"The arguments of tool call {call.call_id!r} are not JSON.", param="messages") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"The arguments of tool call {call.call_id!r} are not a JSON object.", param="messages")
    return value


def tool_use_id(call_id: str) -> str:
    """`call_id` as Converse allows it, the same for a call and its result; ids that differ stay different."""
    if re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", call_id):
        return call_id
    clean = re.sub(r"[^a-zA-Z0-9_.:-]", "_", call_id)[:47]
    return f"{clean}_{hashlib.sha256(call_id.encode()).hexdigest()[:16]}"


def _inference(sampling: Sampling) -> Block:
    inference: Block = {}
    if sampling.max_tokens is not None:
        inference["maxTokens"] = sampling.max_tokens
    if sampling.temperature is not None:
        # OpenAI's scale goes to 2, Converse's ends at 1.
        inference["temperature"] = min(sampling.temperature, 1.0)
    if sampling.top_p is not None:
        inference["topP"] = sampling.top_p
    if stops := [stop for stop in sampling.stop if stop]:
        inference["stopSequences"] = stops
    return inference


def _tool_config(request: ChatRequest) -> Block | None:
    """None when the model may call nothing. A history with tool blocks needs its tools in any case."""
    called = [part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    if request.tool_choice == "none" and not called:
        return None
    tools = request.tools or tuple(Tool(name) for name in dict.fromkeys(called))
    if not tools:
        return None
    config: Block = {"tools": [{"toolSpec": _tool_spec(tool)} for tool in tools]}
    if request.tools and (choice := _tool_choice(request.tool_choice)):
        config["toolChoice"] = choice
    return config


def _tool_spec(tool: Tool) -> Block:
    spec: Block = {"name": tool.name, "inputSchema": {"json": dict(tool.parameters or EMPTY_SCHEMA)}}
    if tool.description:
        spec["description"] = tool.description
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return spec


def _tool_choice(choice: str | None) -> Block | None:
    match choice:
        case None | "none":
            return None
        case "auto":
            return {"auto": {}}
        case "required":
            return {"any": {}}
        case name:
            return {"tool": {"name": name}}


def _model_fields(request: ChatRequest) -> Block:
    fields = {key: value for key, value in request.extra.items() if key in EXTRA_MODEL_FIELDS}
    if request.sampling.top_k is not None:
        fields["top_k"] = request.sampling.top_k
    own = request.extra.get("additionalModelRequestFields")
    return {**fields, **own} if isinstance(own, Mapping) else fields


def _output_config(request: ChatRequest) -> Block:
    config: Block = {}
    if request.reasoning_effort in EFFORTS:
        config["effort"] = request.reasoning_effort
    wanted = request.response_format or {"type": "text"}
    match wanted.get("type"):
        case "text":
            return config
        case "json_schema":
            config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": _schema(wanted)}}
            return config
        case other:
            raise Unsupported(
                f"Bedrock has no response_format {other!r}; use json_schema or describe the form in the prompt.",
                param="response_format",
            )


def _schema(response_format: Mapping[str, Any]) -> Block:
    wanted = response_format.get("json_schema")
    if not isinstance(wanted, Mapping) or not isinstance(wanted.get("schema"), Mapping):
        raise InvalidRequest("response_format json_schema needs json_schema.schema.", param="response_format")
    # Converse wants the schema as JSON text, not as an object.
    schema: Block = {"schema": json.dumps(wanted["schema"], ensure_ascii=False)}
    schema.update({key: wanted[key] for key in ("name", "description") if wanted.get(key)})
    return schema
