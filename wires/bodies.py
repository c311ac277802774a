"""What request bodies in OpenAI's manner have in common."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import ConfigDict, Field

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import ML_PARAMETERS, Sampling
from wires.chat_messages import OpenBody


class StrictBody(OpenBody):
    """A body whose unknown fields are kept and ignored, and whose numbers are numbers."""

    model_config = ConfigDict(extra="allow", strict=True)

    def refuse(self, *fields: str) -> None:
        """Raise Unsupported if the caller set one of `fields`, which this body does not declare."""
        for field in fields if self.model_extra else ():
            if self.given(field):
                raise Unsupported(f"The field {field!r} is not supported.", param=field)

    def given(self, field: str) -> Any:
        """The value of an undeclared field; False, empty and zero are as good as none."""
        return (self.model_extra or {}).get(field) or None

    def passed_on(self, *fields: str) -> dict[str, Any]:
        """The undeclared `fields` that the caller set, for the provider to know what they mean."""
        extra = self.model_extra or {}
        return {field: extra[field] for field in fields if extra.get(field) is not None} if extra else {}

    def vendor_fields(self, *but: str) -> dict[str, Any]:
        """All undeclared fields that the caller set, except `but`: what they mean is the provider's to know.

        Raises InvalidRequest for one that could not be sent: it holds half a character, say.
        """
        extra = self.model_extra
        if not extra:
            return {}
        fields = {
            name: value for name, value in extra.items() if value is not None and name not in (*but, ML_PARAMETERS)
        }
        for name, value in fields.items():
            try:
                msgspec.json.encode({name: value})
            except (ValueError, OverflowError, RecursionError):
                raise InvalidRequest(f"The field {name!r} holds what cannot be passed on.", param=name) from None
        return fields


class StreamOptions(StrictBody):
    include_usage: bool | None = None


class StreamedBody(StrictBody):
    """A body with `stream` and `stream_options`."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check_stream(self) -> None:
        """Raise InvalidRequest for stream_options without a stream."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest("stream_options is only allowed with stream: true.", param="stream_options")


class SampledBody(StreamedBody):
    """A body with the sampling fields that chat and legacy completions share."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    stop: str | list[str] | None = None
    seed: int | None = None
    top_k: int | None = None
    n: int | None = None
    user: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop sequences; an empty one stops nothing."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in stops if stop)

    def sampling(self, max_tokens: int | None) -> Sampling:
        """The sampling that the body asks for; each form has its own name for `max_tokens`."""
        return Sampling(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stops,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
        )

    def check_n(self) -> None:
        """Raise Unsupported for more than one answer."""
        if self.n not in (None, 1):
            raise Unsupported("Only n = 1 is supported; send the request again for another answer.", param="n")
