"""Models and versions as Replicate's clients see them, with the schema by which they find a streamed output."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from gateway.catalog import Gateway
from gateway.config import ModelRow
from gateway.errors import NotFound
from wires.replicate.objects import timestamp

HIDDEN_VERSION = "hidden"
"""The version of a prediction that named its model only."""
COG_VERSION = "0.9.0"
"""Anything older than 0.3.9 makes clients take every array for a streamed one."""
STARTED_AT = time.time()

CHAT_INPUT: dict[str, Any] = {
    "prompt": {"type": "string", "title": "Prompt", "x-order": 0},
    "system_prompt": {"type": "string", "title": "System Prompt", "x-order": 1},
    "messages": {"type": "array", "title": "Messages", "items": {"type": "object"}, "x-order": 2},
    "max_tokens": {"type": "integer", "title": "Max Tokens", "minimum": 1, "x-order": 3},
    "temperature": {"type": "number", "title": "Temperature", "minimum": 0, "maximum": 5, "x-order": 4},
    "top_p": {"type": "number", "title": "Top P", "minimum": 0, "maximum": 1, "x-order": 5},
    "top_k": {"type": "integer", "title": "Top K", "x-order": 6},
    "stop_sequences": {"type": "string", "title": "Stop Sequences", "x-order": 7},
    "seed": {"type": "integer", "title": "Seed", "x-order": 8},
}
CHAT_OUTPUT: dict[str, Any] = {
    "type": "array",
    "title": "Output",
    "items": {"type": "string"},
    "x-cog-array-type": "iterator",
    "x-cog-array-display": "concatenate",
}
SPEECH_INPUT: dict[str, Any] = {
    "text": {"type": "string", "title": "Text", "x-order": 0},
    "voice": {"type": "string", "title": "Voice", "x-order": 1},
    "speed": {"type": "number", "title": "Speed", "minimum": 0.25, "maximum": 4, "default": 1, "x-order": 2},
}
SPEECH_OUTPUT: dict[str, Any] = {"type": "string", "title": "Output", "format": "uri"}


async def find_model(gateway: Gateway, id: str) -> ModelRow:
    """The chat or speech model that a client calls `id`. Raises NotFound."""
    row = next((row for row in gateway.models() if row.id == id), None)
    if row is None:
        row = (await gateway.resolve(id)).model
    if row.kind == "transcription":
        raise NotFound(f"Model {id!r} transcribes; ask it by /v1/audio/transcriptions.", code="model_not_found")
    return row


async def find_version(gateway: Gateway, reference: str) -> ModelRow:
    """The model of `owner/name`, `owner/name:version` or a bare version id. Raises NotFound."""
    name, _, version = reference.rpartition(":")
    if name:
        row = await find_model(gateway, name)
        if version == version_id(row):
            return row
        raise NotFound(f"Model {name!r} has no such version; its version is {version_id(row)}.")
    for row in gateway.models():
        if reference == version_id(row) and row.kind != "transcription":
            return row
    return await find_model(gateway, reference)


def version_id(row: ModelRow) -> str:
    """64 hex digits that stay the same while the row does."""
    parts = (row.id, row.kind, row.provider, row.upstream)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def version_object(row: ModelRow) -> dict[str, Any]:
    """The one version of a model."""
    chat = row.kind == "chat"
    required = "prompt" if chat else "text"
    schemas = {
        "Input": {
            "type": "object",
            "title": "Input",
            # A chat may come as `messages` instead.
            "required": [] if chat else [required],
            "properties": CHAT_INPUT if chat else SPEECH_INPUT,
        },
        "Output": CHAT_OUTPUT if chat else SPEECH_OUTPUT,
    }
    return {
        "id": version_id(row),
        "created_at": timestamp(STARTED_AT),
        "cog_version": COG_VERSION,
        "openapi_schema": {
            "openapi": "3.0.2",
            "info": {"title": "Cog", "version": "0.1.0"},
            "paths": {},
            "components": {"schemas": schemas},
        },
    }


def model_object(row: ModelRow, base: str) -> dict[str, Any]:
    """A model of two name parts, with the fields of OpenAI's model object beside Replicate's.

    OpenAI's clients ask for `/v1/models/owner/name` too, and neither side minds fields that it does not know.
    """
    owner, _, name = row.id.rpartition("/")
    return {
        "url": f"{base}/v1/models/{row.id}",
        "owner": owner,
        "name": name,
        "description": None,
        "visibility": "public",
        "is_official": True,
        "github_url": None,
        "paper_url": None,
        "license_url": None,
        "run_count": 0,
        "cover_image_url": None,
        "default_example": None,
        "latest_version": version_object(row),
        "id": row.id,
        "object": "model",
        "created": int(STARTED_AT),
        "owned_by": row.provider,
        "kind": row.kind,
    }
