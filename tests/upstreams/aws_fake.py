"""AWS answers as bytes: event-stream frames and what Bedrock, SageMaker containers and Polly say in them.

The texts are recordings' shapes: TGI 2.0.1 with no space after `data:`, leaked special tokens and no `[DONE]`; TGI 3;
vLLM; LMI's JSON lines; Converse streams with the padding member `p`.
"""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32

from tests.upstreams.byte_server import Answer, Framing, Step

SENTENCE = "Hello 안녕하세요 👋🏽"
EVENT_STREAM = {"Content-Type": "application/vnd.amazon.eventstream"}


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One event-stream message; every header is a string (type 7)."""
    block = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(block) + len(payload) + 16, len(block))
    message = prelude + struct.pack("!I", crc32(prelude)) + block + payload
    return message + struct.pack("!I", crc32(message))


def event(name: str, body: dict[str, Any]) -> bytes:
    """A JSON event, as Bedrock writes them."""
    payload = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return frame({":event-type": name, ":content-type": "application/json", ":message-type": "event"}, payload)


def exception(name: str, body: dict[str, Any]) -> bytes:
    """An exception inside a stream."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps(body, separators=(",", ":")).encode())


def error(code: str, message: str) -> bytes:
    """An error message inside a stream."""
    return frame({":error-code": code, ":error-message": message, ":message-type": "error"}, b"")


def part(data: bytes) -> bytes:
    """A SageMaker PayloadPart."""
    headers = {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}
    return frame(headers, data)


def parts(body: bytes, size: int) -> list[bytes]:
    """`body` in PayloadParts of `size` bytes, whatever they cut."""
    return [part(body[start : start + size]) for start in range(0, len(body), size)]


def stream(*steps: Step) -> Answer:
    """An event stream in HTTP chunks, one per step."""
    return Answer(steps, headers=EVENT_STREAM)


def refusal(status: int, code: str, body: dict[str, Any], **headers: str) -> Answer:
    """An HTTP error as AWS writes it: the code in `x-amzn-errortype`, with its namespace."""
    kind = f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {"Content-Type": "application/json", "x-amzn-errortype": kind, **named}
    return Answer([json.dumps(body).encode()], status, head, Framing.LENGTH)


def text_delta(text: str, index: int = 0) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"text": text}, "p": "abcd"})


def reasoning_delta(index: int = 0, **content: str) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"reasoningContent": content}})


def tool_start(index: int, call_id: str, name: str) -> bytes:
    start = {"toolUse": {"toolUseId": call_id, "name": name}}
    return event("contentBlockStart", {"contentBlockIndex": index, "start": start, "p": "ab"})


def tool_delta(index: int, piece: str) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": piece}}})


def block_stop(index: int) -> bytes:
    return event("contentBlockStop", {"contentBlockIndex": index, "p": "ab"})


MESSAGE_START = event("messageStart", {"p": "abcdefghijklmnopqrstuvwx", "role": "assistant"})


def message_stop(reason: str = "end_turn") -> bytes:
    return event("messageStop", {"stopReason": reason, "p": "abcdef"})


def metadata(input_tokens: int = 412, output_tokens: int = 57, **more: int) -> bytes:
    usage = {"inputTokens": input_tokens, "outputTokens": output_tokens, "totalTokens": input_tokens + output_tokens}
    return event("metadata", {"usage": usage | more, "metrics": {"latencyMs": 812}, "p": "ab"})


CONVERSE_TEXT = [
    MESSAGE_START,
    *(text_delta(piece) for piece in ("Hello ", "안녕", "하세요", " 👋🏽")),
    block_stop(0),
    message_stop(),
    metadata(),
]
CONVERSE_TOOLS = [
    MESSAGE_START,
    reasoning_delta(0, text="Need the weather."),
    reasoning_delta(0, signature="c2ln"),
    block_stop(0),
    text_delta("안녕", 1),
    text_delta(" 🌍", 1),
    block_stop(1),
    tool_start(2, "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "get_weather"),
    tool_delta(2, ""),
    tool_delta(2, '{"city":'),
    tool_delta(2, ' "Seoul"}'),
    block_stop(2),
    tool_start(3, "tooluse_now", "get_time"),
    block_stop(3),
    message_stop("tool_use"),
    metadata(),
]


def _sse(body: dict[str, Any], prefix: str = "data: ") -> bytes:
    return f"{prefix}{json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def chat_chunk(text: str | None, reason: str | None = None, prefix: str = "data: ", **delta: Any) -> bytes:
    """One chunk of the messages API; `prefix` "data:" is TGI 2.0.1's."""
    content = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": {"role": "assistant"} | content | delta, "logprobs": None, "finish_reason": reason}
    named = {"object": "text_completion", "created": 1720501474, "model": "/opt/ml/model"}
    return _sse({"id": "", **named, "system_fingerprint": "2.0.1-native", "choices": [choice]}, prefix)


def usage_chunk(prompt: int, completion: int) -> bytes:
    return _sse({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


WORDS = ("Hello ", "안녕", "하세요", " 👋🏽")

# The separating line holds one blank, as in the recording.
TGI_2 = b"".join(
    chunk[:-1] + b" \n"
    for chunk in (
        *(chat_chunk(word, prefix="data:") for word in WORDS),
        chat_chunk("<|eot_id|>", prefix="data:"),
        chat_chunk("<|end_of_text|>", "eos_token", prefix="data:"),
    )
)
TGI_3 = b": keep-alive\n\n" + b"".join(
    [*(chat_chunk(word) for word in WORDS), chat_chunk("", "stop"), usage_chunk(9, 5), b"data: [DONE]\n\n"]
)
VLLM = b"".join([*(chat_chunk(word) for word in WORDS), chat_chunk(None, "length"), b"data: [DONE]\n\n"])


def generate_event(text: str, *, special: bool = False, whole: str | None = None, reason: str | None = None) -> bytes:
    """One event of TGI's generate form."""
    details = {"finish_reason": reason, "generated_tokens": 5, "input_length": 9, "seed": None} if reason else None
    token = {"id": 1, "text": text, "logprob": -0.1, "special": special}
    return _sse({"index": 1, "token": token, "generated_text": whole, "details": details}, "data:")


TGI_GENERATE = b"".join(
    [
        *(generate_event(word) for word in WORDS),
        generate_event("<|eot_id|>", special=True, whole=SENTENCE, reason="eos_token"),
    ]
)


def json_line(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode() + b"\n"


LMI_LINES = b"".join(json_line({"token": {"id": [7], "text": word, "log_prob": -0.1}}) for word in WORDS) + json_line(
    {
        "token": {"id": [2], "text": "</s>", "log_prob": -0.1},
        "generated_text": SENTENCE,
        "details": {"finish_reason": "eos_token", "generated_tokens": 5, "inputs": None},
    }
)
LMI_CHAT = b"".join(
    line.removeprefix(b"data: ").rstrip() + b"\n" for line in (*(chat_chunk(w) for w in WORDS), chat_chunk("", "stop"))
)

PCM = bytes(range(256)) * 4


def audio(*steps: Step, **more: Any) -> Answer:
    """Polly's answer to SynthesizeSpeech."""
    return Answer(steps, headers={"Content-Type": "audio/pcm", "x-amzn-RequestCharacters": "5"}, **more)
