"""The `connectors:` section of polywire.yaml."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


RegularExpression = Annotated[str, AfterValidator(_compiles)]

TRUSTED = (
    r"^https://api\.openai\.com/.*$",
    r"^https://api\.cohere\.ai/.*$",
    r"^https://api\.deepseek\.com/.*$",
    r"^https://generativelanguage\.googleapis\.com/.*$",
    r"^https://bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com/.*$",
    r"^https://runtime\.sagemaker\.[a-z0-9-]+\.amazonaws\.com/.*$",
)
"""OpenSearch's list, as far as models can be asked there, with hosts that no path can imitate."""


class ConnectorSettings(BaseModel):
    """Models that ML Commons clients register. Where a connector may lead is said in `gateway/trust.py`.

    `stream_enabled` and `remote_inference_enabled` are OpenSearch's flags of those names; `streams` bounds one
    worker's streams on that wire.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trusted_endpoints: tuple[RegularExpression, ...] = TRUSTED
    private_endpoints: tuple[RegularExpression, ...] = ()
    stream_enabled: bool = True
    remote_inference_enabled: bool = True
    streams: int = Field(default=320, gt=0)
