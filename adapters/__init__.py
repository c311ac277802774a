"""Southbound: which adapter makes a provider of each type.

An adapter is imported when its first row is used, so a missing SDK breaks only the rows that need it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import cast

from gateway.config import Kind, ProviderRow, Settings
from gateway.errors import InternalError, Unsupported
from gateway.ports import Provider

# The embedded voice's onnxruntime would tell its maker of every start and keep an id of this machine. It looks when it
# is loaded, which no adapter does before this.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

BUILDERS: dict[str, dict[Kind, str]] = {
    "local": {
        "chat": "adapters.local_chat:LocalChat",
        "speech": "adapters.local_speech:LocalSpeech",
        "transcription": "adapters.local_transcription:LocalTranscription",
    },
    "openai": {
        "chat": "adapters.openai_chat:OpenAIChat",
        "speech": "adapters.openai_speech:OpenAISpeech",
        "transcription": "adapters.openai_transcription:OpenAITranscription",
    },
    "bedrock": {"chat": "adapters.bedrock:Bedrock"},
    "sagemaker": {"chat": "adapters.sagemaker:SageMaker"},
    "polly": {"speech": "adapters.polly:Polly"},
    "replicate": {"chat": "adapters.replicate:Replicate"},
    "cog": {"chat": "adapters.cog:Cog"},
    "opensearch": {"chat": "adapters.opensearch:OpenSearch"},
    "connector": {"chat": "adapters.connector:ConnectorChat"},
    "scripted": {
        "chat": "adapters.scripted:ScriptedChat",
        "speech": "adapters.scripted:ScriptedSpeech",
        "transcription": "adapters.scripted:ScriptedTranscription",
    },
}


def build(row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
    """The provider of `row` for `kind`. Raises Unsupported if there is none, InternalError without its SDK."""
    kinds = BUILDERS[row.type]
    if kind not in kinds:
        offered = ", ".join(kinds)
        raise Unsupported(
            f"Provider {row.name!r} of type {row.type!r} offers {offered}, not {kind}.", provider=row.name
        )
    module, _, name = kinds[kind].partition(":")
    try:
        adapter = getattr(import_module(module), name)
    except ImportError as error:
        raise InternalError(
            f"Provider {row.name!r} needs a package that is not installed ({error.name}); install requirements.txt.",
            provider=row.name,
        ) from error
    return cast(Provider, adapter(row, settings))
