"""What the containers behind a SageMaker endpoint read and write, without I/O: a body per dialect, one decoder for all.

`openai` is the messages API (TGI with MESSAGES_API_ENABLED, vLLM, LMI chat); `tgi` and `lmi` are the generate forms,
which take one prompt. A container may answer in another form than it was asked in, so the decoder reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from adapters.chat_completions import FINISH_REASONS, ChatCompletionDecoder, chat_body, stream_error
from adapters.http import error_for_status
from adapters.line_reader import DONE, LineReader
from adapters.special_tokens import SpecialTokens
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Unsupported, UpstreamError
from gateway.events import Delta, Finished, FinishReason, TextDelta, Usage
from gateway.request import ChatRequest, Image, Role, ToolCall, ToolResult

ERROR_STATUS = {"validation": 400, "template_error": 400, "missing_template_variable": 400, "tool_error": 400}
ERROR_STATUS |= {"overloaded": 429, "generation": 502, "incomplete_generation": 502}
SPEAKERS = {Role.SYSTEM: "System", Role.USER: "User", Role.ASSISTANT: "Assistant"}


def openai_body(request: ChatRequest) -> dict[str, Any]:
    """The messages API. An endpoint's name means nothing to its container: TGI wants to hear `tgi`, LMI anything.

    vLLM takes only its served name: that is the model row's `served_model`.
    """
    return {**chat_body(request), "model": request.options.get("served_model") or "tgi"}


def tgi_body(request: ChatRequest) -> dict[str, Any]:
    """TGI's generate form. Without `details` its stream would not say why it ended."""
    parameters = _parameters(request) | {"stop": list(request.sampling.stop) or None, "details": True}
    return {"inputs": _prompt(request), "parameters": _given(parameters), "stream": True}


def lmi_body(request: ChatRequest) -> dict[str, Any]:
    """LMI's (DJL's) generate form."""
    parameters = _parameters(request) | {"stop_sequences": list(request.sampling.stop) or None, "details": True}
    return {"inputs": _prompt(request), "parameters": _given(parameters), "stream": True}


BODIES: Mapping[str, Callable[[ChatRequest], dict[str, Any]]] = {
    "openai": openai_body,
    "tgi": tgi_body,
    "lmi": lmi_body,
}


def _parameters(request: ChatRequest) -> dict[str, Any]:
    sampling = request.sampling
    # Both servers refuse a temperature of 0 and a top_p of 1; greedy decoding is `do_sample: false`.
    greedy = sampling.temperature == 0
    return {
        "max_new_tokens": sampling.max_tokens,
        "temperature": None if greedy else sampling.temperature,
        "do_sample": None if sampling.temperature is None else not greedy,
        "top_p": sampling.top_p if sampling.top_p is not None and 0 < sampling.top_p < 1 else None,
        "top_k": sampling.top_k,
        "seed": sampling.seed,
        "return_full_text": False,
    }


def _prompt(request: ChatRequest) -> str:
    """One message is the prompt as it stands; a conversation is written down, since the template is not known here."""
    parts = [part for message in request.messages for part in message.parts]
    if request.tools or any(isinstance(part, Image | ToolCall | ToolResult) for part in parts):
        raise Unsupported("This SageMaker endpoint takes text only; its model row's dialect is a generate form.")
    if len(request.messages) == 1:
        return request.messages[0].text
    lines = [f"{SPEAKERS[message.role]}: {message.text}" for message in request.messages if message.role in SPEAKERS]
    return "\n\n".join([*lines, "Assistant:"])


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


class _Token(msgspec.Struct):
    text: str | None = None
    special: bool | None = None
    special_token: bool | None = None


class _Details(msgspec.Struct):
    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class _Payload(msgspec.Struct):
    choices: Any = None
    usage: Any = None
    token: _Token | None = None
    generated_text: str | None = None
    details: _Details | None = None
    outputs: list[str] | None = None
    error: Any = None
    error_type: str | None = None


_decode = msgspec.json.Decoder(_Payload | list[_Payload]).decode


class ContainerDecoder:
    """`feed` the bytes of every PayloadPart however they are cut, then `end`, then `finish`."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._lines = LineReader(row.name)
        self._chat = ChatCompletionDecoder(row)
        self._special = SpecialTokens()
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._wrote = False

    def feed(self, data: bytes) -> Iterable[Delta]:
        """The deltas that `data` completes. Raises GatewayError for an error object and for what is not JSON."""
        for payload in self._lines.feed(data):
            yield from self._payload(payload)

    def end(self) -> Iterable[Delta]:
        """The deltas of the body's end. Text held back as the beginning of a special token is text after all."""
        for payload in self._lines.end():
            yield from self._payload(payload)
        if text := self._special.end():
            yield TextDelta(text)

    def finish(self) -> Finished:
        """The terminal event. Raises Truncated without a finish reason, a generated_text or `[DONE]`."""
        if self._reason is not None:
            return Finished(self._reason, self._usage)
        return self._chat.finish()

    def _payload(self, payload: bytes) -> Iterable[Delta]:
        if self._chat.done:
            return
        if payload.startswith(DONE):
            self._chat.feed(payload)
            return
        try:
            value = _decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(
                f"Provider {self._row.name!r} sent a line that is no answer of a model container.",
                provider=self._row.name,
            ) from error
        for item in value if isinstance(value, list) else [value]:
            if item.error:
                raise container_error(self._row, item.error, item.error_type)
            if item.choices is not None or item.usage is not None:
                yield from self._stripped(self._chat.feed(payload))
            else:
                yield from self._generated(item)

    def _stripped(self, deltas: Iterable[Delta]) -> Iterable[Delta]:
        for delta in deltas:
            if not isinstance(delta, TextDelta):
                yield delta
            elif text := self._special.feed(delta.text):
                yield TextDelta(text)

    def _generated(self, item: _Payload) -> Iterable[Delta]:
        """One event of a generate stream. `generated_text` repeats the whole answer and marks its end."""
        text = "".join(item.outputs or ()) + self._token_text(item.token)
        if item.generated_text is not None and not self._wrote:
            text = text or item.generated_text
        if text:
            self._wrote = True
            yield TextDelta(text)
        details = item.details
        if details is not None and details.finish_reason:
            self._reason = self._finish_reason(details.finish_reason)
            self._usage = Usage(details.input_length or 0, details.generated_tokens or 0)
        elif item.generated_text is not None:
            self._reason = FinishReason.STOP

    def _token_text(self, token: _Token | None) -> str:
        if token is None or not token.text or token.special or token.special_token:
            return ""
        # Where a server says of each token whether it is special, the others are text whatever they look like.
        return token.text if token.special is False else self._special.feed(token.text)

    def _finish_reason(self, word: str) -> FinishReason:
        if word in FINISH_REASONS:
            return FINISH_REASONS[word]
        raise UpstreamError(
            f"Provider {self._row.name!r} ended its answer with {word[:64]!r}; it is not whole.",
            provider=self._row.name,
        )


def container_error(row: ProviderRow, error: Any, error_type: str | None) -> GatewayError:
    """`{"error": {"message", "http_status_code"}}` (TGI 3), `{"error": "...", "error_type": "..."}` or any other."""
    if isinstance(error, str):
        return error_for_status(row, ERROR_STATUS.get(error_type or "", 502), error)
    status = error.get("http_status_code") if isinstance(error, dict) else None
    if isinstance(status, int) and status >= 400:
        return error_for_status(row, 502 if status == 424 else status, str(error.get("message") or ""))
    return stream_error(row, error)
