"""A chat request as the `input` of a model on Replicate or Cog, whose field names differ from model to model.

The model's own schema (`components.schemas.Input`) says which exist; without one the names of most language models are
assumed. Only fields that the model has are sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.prompt import flatten, system_text, words
from gateway.errors import InvalidRequest
from gateway.events import Usage
from gateway.request import ChatRequest, Message, Role

SYSTEM_FIELDS = ("system_prompt", "system_instruction")
STOP_FIELDS = ("stop_sequences", "stop")
SAMPLING_FIELDS = {
    "max_tokens": ("max_tokens", "max_new_tokens", "max_completion_tokens", "max_output_tokens"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "seed": ("seed",),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
}
ASSUMED_SCHEMA: Mapping[str, Any] = {
    "properties": {name: {} for name in ("prompt", "system_prompt", "stop_sequences", *SAMPLING_FIELDS)},
}


def model_input(request: ChatRequest, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The `input` object. Raises Unsupported for images, InvalidRequest for a stop that the model cannot be told."""
    fields = (schema or ASSUMED_SCHEMA).get("properties") or {}
    values = _conversation(request.messages, fields, (schema or ASSUMED_SCHEMA).get("required") or ())
    for name, candidates in SAMPLING_FIELDS.items():
        value, field = getattr(request.sampling, name), _first(candidates, fields)
        if value is not None and field is not None:
            values[field] = value
    stop_field = _first(STOP_FIELDS, fields)
    if request.sampling.stop and stop_field is not None:
        values[stop_field] = _stop(request.sampling.stop, fields[stop_field])
    values.update({name: value for name, value in request.extra.items() if schema is None or name in fields})
    return values


def input_schema(openapi: object) -> Mapping[str, Any] | None:
    """The `Input` schema of an OpenAPI document, None when it has none."""
    node = openapi
    for key in ("components", "schemas", "Input"):
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) and isinstance(node.get("properties"), dict) else None


def usage_of(metrics: object) -> Usage | None:
    """The token counts in a prediction's `metrics`, None when the model does not count."""
    if not isinstance(metrics, dict):
        return None
    counts = [metrics.get(name) for name in ("input_token_count", "output_token_count")]
    given, output = (int(count) if isinstance(count, int | float) else None for count in counts)
    return None if given is None and output is None else Usage(input_tokens=given or 0, output_tokens=output or 0)


def _conversation(messages: Sequence[Message], fields: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    system_field = _first(SYSTEM_FIELDS, fields)
    system = system_text(messages)
    values: dict[str, Any] = {}
    if "messages" in fields:
        turns = [{"role": str(message.role), "content": words(message)} for message in messages]
        textual = _type(fields["messages"]) == "string"
        values["messages"] = json.dumps(turns, ensure_ascii=False) if textual else turns
        if "prompt" not in required:
            return values
    if system and system_field is not None:
        values[system_field] = system
        messages = [message for message in messages if message.role is not Role.SYSTEM]
    return {**values, "prompt": flatten(messages)}


def _stop(stop: Sequence[str], field: object) -> str | list[str]:
    """A list where the schema wants one; else Replicate's usual text with commas between."""
    if _type(field) == "array":
        return list(stop)
    if any("," in sequence for sequence in stop):
        raise InvalidRequest("This model cannot be told a stop sequence with a comma in it.", param="stop")
    return ",".join(stop)


def _first(candidates: Sequence[str], fields: Mapping[str, Any]) -> str | None:
    return next((name for name in candidates if name in fields), None)


def _type(field: object) -> object:
    return field.get("type") if isinstance(field, dict) else None
