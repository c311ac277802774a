"""What servers of the chat-completions dialect send, as bytes. Each constant is one whole body."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any] | None, reason: str | None = None, **more: Any) -> bytes:
    """One `chat.completion.chunk` as an event; `delta` None gives one without choices."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    value = {
        "id": "chatcmpl-9f2c",
        "object": "chat.completion.chunk",
        "created": 1764374400,
        "model": "local-chat",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """A usage object."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


def call(index: int | None, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    """One entry of `tool_calls`, without the fields that are None."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    head = {"index": index, "id": call_id, "type": "function" if name else None}
    return {key: value for key, value in head.items() if value is not None} | {"function": function}


def calls(*deltas: dict[str, Any]) -> bytes:
    """A whole stream with one tool call delta per chunk."""
    return (
        chunk({"role": "assistant", "content": None})
        + b"".join(chunk({"tool_calls": [delta]}) for delta in deltas)
        + chunk({}, "tool_calls")
        + DONE
    )


def words(pieces: Iterable[str]) -> bytes:
    """One chunk per piece of text."""
    return b"".join(chunk({"content": piece}) for piece in pieces)


SAID = "Hello 안녕하세요 👋🏽"
PIECES = ("Hel", "lo ", "안녕", "하세요", " 👋🏽")
COUNTED = usage(9, 3)
OPENAI = (
    chunk({"role": "assistant", "content": "", "refusal": None}, usage=None, obfuscation="aB3")
    + words(PIECES)
    + chunk({}, "stop", usage=None)
    + chunk(None, usage=COUNTED)
    + DONE
)
AZURE = (
    b'data: {"id":"","object":"","created":0,"model":"","prompt_filter_results":[{"prompt_index":0}],"choices":[]}\n\n'
    + OPENAI
)
VLLM = (
    chunk({"role": "assistant", "content": ""}, usage=usage(9, 0))
    + b"".join(chunk({"content": piece}, usage=usage(9, count)) for count, piece in enumerate(PIECES, 1))
    + chunk({"content": ""}, "stop", stop_reason=None, usage=usage(9, 3))
    + chunk(None, usage=COUNTED)
    + DONE
)
TGI_2 = OPENAI.replace(b"data: ", b"data:").replace(b'"stop"', b'"eos_token"').removesuffix(b"data:[DONE]\n\n")
TGI_3 = (
    b": keep-alive\n\n"
    + b"".join(chunk({"role": "assistant", "content": piece}) + b":\n\n" for piece in PIECES)
    + chunk({"role": "assistant", "content": ""}, "stop")
    + chunk(None, usage=COUNTED)
    + DONE
)
OLLAMA = (
    b"".join(chunk({"role": "assistant", "content": piece}, system_fingerprint="fp_ollama") for piece in PIECES)
    + chunk({"role": "assistant", "content": ""}, "stop", system_fingerprint="fp_ollama")
    + chunk(None, usage=COUNTED)
    + DONE
)
LLAMA_CPP = (
    chunk({"role": "assistant", "content": None})
    + words(PIECES)
    + chunk({}, "stop", usage=COUNTED, timings={"prompt_n": 9, "predicted_ms": 1.5})
    + DONE
)
LMI_LINES = OPENAI.replace(b"data: ", b"").replace(b"\n\n", b"\n").removesuffix(b"[DONE]\n")
CHOICES_NULL = OPENAI.replace(b'"choices":[]', b'"choices":null')
WITHOUT_DONE = OPENAI.removesuffix(DONE)
SERVERS = {
    "openai": OPENAI,
    "azure": AZURE,
    "vllm": VLLM,
    "tgi 2": TGI_2,
    "tgi 3": TGI_3,
    "ollama": OLLAMA,
    "llama.cpp": LLAMA_CPP,
    "choices null": CHOICES_NULL,
    "without [DONE]": WITHOUT_DONE,
    "more after [DONE]": OPENAI + words(["never"]),
    "byte order mark": b"\xef\xbb\xbf" + OPENAI,
    "CRLF": OPENAI.replace(b"\n", b"\r\n"),
    "CR": OPENAI.replace(b"\n", b"\r"),
}
"""All of them say SAID with the usage COUNTED."""

WHOLE = json.dumps(
    {
        "id": "chatcmpl-9f2c",
        "object": "chat.completion",
        "created": 1764374400,
        "model": "local-chat",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": SAID, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": COUNTED,
    },
    ensure_ascii=False,
    indent=2,
).encode()

INTERLEAVED = calls(
    call(0, "", "call_1", "get_weather"),
    call(1, "", "call_2", "get_time"),
    call(0, '{"city":'),
    call(1, '{"zone":'),
    call(0, '"Seoul"}'),
    call(1, '"KST"}'),
)
IDS_WITHOUT_INDEX = calls(
    call(None, "", "call_1", "get_weather"),
    call(None, "", "call_2", "get_time"),
    call(None, '{"city":', "call_1"),
    call(None, '{"zone":', "call_2"),
    call(None, '"Seoul"}', "call_1"),
    call(None, '"KST"}', "call_2"),
)
ALL_INDEX_ZERO = calls(
    call(0, '{"city":"Seoul"}', "call_1", "get_weather"), call(0, '{"zone":"KST"}', "call_2", "get_time")
)
IDS_AND_INDEX_ZERO_INTERLEAVED = calls(
    call(0, "", "call_1", "get_weather"),
    call(0, "", "call_2", "get_time"),
    call(0, '{"city":', "call_1", "get_weather"),
    call(0, '{"zone":', "call_2", "get_time"),
    call(0, '"Seoul"}', "call_1"),
    call(0, '"KST"}', "call_2"),
)
A_NEW_ID_EACH = calls(
    call(0, "", "call_1", "get_weather"),
    call(0, '{"city":', "r-1"),
    call(0, '"Seoul"}', "r-2"),
    call(1, "", "call_2", "get_time"),
    call(1, '{"zone":"KST"}', "r-3"),
)
NEITHER_INDEX_NOR_ID = calls(
    call(None, "", None, "get_weather"),
    call(None, '{"city":"Seoul"}'),
    call(None, "", None, "get_time"),
    call(None, '{"zone":"KST"}'),
)
ONE_ID_FOR_ALL = calls(
    call(0, '{"city":"Seoul"}', "call_1", "get_weather"), call(1, '{"zone":"KST"}', "call_1", "get_time")
)
NAME_AFTER_ID = calls(
    {"index": 0, "id": "call_1"},
    call(0, '{"city":"Seoul"}', None, "get_weather"),
    call(1, '{"zone":"KST"}', "call_2", "get_time"),
)
SAID_STOP = INTERLEAVED.replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"')
TOOL_STREAMS = {
    "interleaved": INTERLEAVED,
    "ids without index": IDS_WITHOUT_INDEX,
    "all index 0": ALL_INDEX_ZERO,
    "ids and index 0, interleaved": IDS_AND_INDEX_ZERO_INTERLEAVED,
    "a new id in each piece": A_NEW_ID_EACH,
    "neither index nor id": NEITHER_INDEX_NOR_ID,
    "one id for all": ONE_ID_FOR_ALL,
    "name after id": NAME_AFTER_ID,
    "said stop": SAID_STOP,
}
"""All of them call get_weather with Seoul and get_time with KST."""

REASONING = (
    chunk({"role": "assistant", "content": None, "reasoning_content": "I "})
    + chunk({"content": None, "reasoning_content": "think."})
    + chunk({"content": "An", "reasoning": " So:", "reasoning_content": " So:"})
    + chunk({"content": "swer", "reasoning_content": None})
    + chunk({}, "stop")
    + chunk(None, usage=usage(9, 8, completion_tokens_details={"reasoning_tokens": 5}))
    + DONE
)
"""`I think. So:`, then `Answer`."""

ERRORS = {
    "openai": (b'data: {"error":{"message":"Slow down","type":"x","code":"rate_limit_exceeded"}}\n\n', 429),
    "vllm": (b'data: {"error":{"message":"Too long","type":"BadRequestError","param":null,"code":400}}\n\n', 400),
    "older vllm": (b'data: {"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}\n\n', 400),
    "tgi": (b'data: {"error":{"message":"m","http_status_code":422}}\n\n' + DONE, 400),
    "tgi generate": (b'data: {"error":"m","error_type":"overloaded"}\n\n', 503),
    "llama.cpp": (b'error: {"x":1}\n\ndata: {"error":{"code":500,"message":"m","type":"server_error"}}\n\n', 502),
    "no words": (b'data: {"error":{}}\n\ndata: {"error":true}\n\n', 502),
    "event": (b'event: error\ndata: {"error":{"message":"m","code":"overloaded_error"}}\n\n', 503),
    "event without an error key": (b'event: error\ndata: {"message":"m","code":"rate_limit_exceeded"}\n\n', 429),
    "event that is not JSON": (b"event: error\ndata: out of memory\n\n", 502),
    "finish reason": (chunk({}, "error") + DONE, 502),
}
"""What ends a stream after its first tokens, and the status it means."""
