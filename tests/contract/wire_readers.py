"""How strict clients read each wire's bytes. Whatever stands behind the end of an answer is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from botocore.eventstream import EventStreamBuffer

from tests.contract.wire_clients import Raw
from tests.contract.wire_entry import Answer, json_of

DONE = "[DONE]"
LINE_END = re.compile(r"\r\n|\n|\r")


def sse(body: bytes) -> Iterator[tuple[str, str]]:
    """The events (name, data) of a stream of server-sent events, as the HTML standard reads them."""
    text = body.decode()
    assert not text or text.endswith("\n\n")
    for block in re.split(r"(?<=\n)\n", text):
        name, data = "message", []
        for line in LINE_END.split(block):
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            elif field == "event":
                name = value.removeprefix(" ")
        if data:
            yield name, "\n".join(data)


def json_lines(body: bytes) -> Iterator[dict[str, Any]]:
    """A socket's or gRPC's messages."""
    yield from (json.loads(line) for line in body.decode().split("\n") if line)


def read_plain(raw: Raw) -> Answer:
    """`/generate`: the body is the text, and its clean end the only end."""
    answer = Answer()
    if raw.status != 200:
        answer.fail(json_of(raw)["error"])
        return answer
    answer.text = raw.body.decode()
    if raw.whole:
        answer.ends.append("end")
    else:
        answer.fail("")
    return answer


def read_named(raw: Raw) -> Answer:
    """`output` (or no name), `error` and `done`: Replicate's events and the framed `/generate`."""
    answer = Answer()
    if raw.status >= 400:
        body = json_of(raw)
        answer.fail(body.get("detail") or body["error"])
        return answer
    over = False
    for name, data in sse(raw.body):
        assert not over
        match name:
            case "output" | "message":
                assert not answer.ends
                answer.text += data
            case "error":
                body = json.loads(data)
                answer.fail(body.get("detail") or body["error"])
            case "done":
                over = True
                reason = json.loads(data).get("reason")
                if answer.error is None:
                    answer.ends.append(reason or "end")
                else:
                    assert reason == "error"
    # The framed `/generate` breaks its body after an error; Replicate says done in every case.
    assert over or not raw.whole
    return answer


def read_chunks(raw: Raw) -> Answer:
    """OpenAI's chat chunks and text completions, and TGI's, which write the same."""
    answer = Answer()
    if raw.status != 200:
        body = json_of(raw)
        answer.fail(body["error"]["message"] if isinstance(body["error"], dict) else body["error"])
        return answer
    closed = False
    for _, data in sse(raw.body):
        assert not closed
        if data == DONE:
            assert answer.error is None
            closed = True
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            error = chunk["error"]
            answer.fail(error["message"] if isinstance(error, dict) else error)
            continue
        if chunk.get("usage"):
            usage = chunk["usage"]
            answer.usage = usage["prompt_tokens"], usage["completion_tokens"]
        for choice in chunk["choices"]:
            assert not answer.ends
            _read_choice(choice, answer)
    assert closed or answer.error is not None
    return answer


def _read_choice(choice: dict[str, Any], answer: Answer) -> None:
    delta = choice.get("delta", {})
    answer.text += choice.get("text") or delta.get("content") or ""
    answer.reasoning += delta.get("reasoning_content") or ""
    for call in delta.get("tool_calls", ()):
        answer.call(call["index"], call["function"].get("name", ""), call["function"]["arguments"])
    if choice["finish_reason"] is not None:
        answer.ends.append(choice["finish_reason"])


def read_tokens(raw: Raw) -> Answer:
    """TGI's generate: the last event has the whole text once more."""
    answer = Answer()
    if raw.status != 200:
        answer.fail(json_of(raw)["error"])
        return answer
    for _, data in sse(raw.body):
        assert not answer.ends
        event = json.loads(data)
        if "error" in event:
            answer.fail(event["error"])
            continue
        answer.text += event["token"]["text"]
        if event["generated_text"] is not None:
            assert event["generated_text"] == answer.text
            details = event["details"]
            answer.ends.append(details["finish_reason"])
            answer.usage = details["input_length"], details["generated_tokens"]
    return answer


def read_payload_parts(raw: Raw) -> Answer:
    """The runtime API's event stream: payload parts with TGI's bytes, closed by an exception when it fails."""
    if raw.status != 200:
        answer = Answer()
        answer.fail(json_of(raw)["Message"])
        return answer
    buffer = EventStreamBuffer()
    buffer.add_data(raw.body)
    parts, failure = [], None
    for message in buffer:
        assert failure is None
        response = message.to_response_dict()
        if response["status_code"] == 200:
            assert response["headers"][":event-type"] == "PayloadPart"
            parts.append(response["body"])
        else:
            failure = json.loads(response["body"])
    if failure is not None:
        parts.append(b"data:" + json.dumps({"error": failure["Message"]}).encode() + b"\n\n")
    return read_chunks(Raw(200, b"".join(parts), raw.whole))


def read_function(raw: Raw) -> Answer:
    """A Lambda function URL: TGI's stream, and errors of its own."""
    if raw.status == 200:
        return read_chunks(raw)
    answer = Answer()
    answer.fail(json_of(raw)["message"])
    return answer


def read_response(raw: Raw) -> Answer:
    """The Responses API: numbered events, one of which ends the response."""
    answer = Answer()
    if raw.status != 200:
        answer.fail(json_of(raw)["error"]["message"])
        return answer
    for number, (name, data) in enumerate(sse(raw.body)):
        event = json.loads(data)
        assert (event["type"], event["sequence_number"]) == (name, number)
        assert not answer.ends
        match name:
            case "response.output_text.delta":
                answer.text += event["delta"]
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                answer.reasoning += event["delta"]
            case "response.output_item.done" if event["item"]["type"] == "function_call":
                answer.calls.append([event["item"]["name"], event["item"]["arguments"]])
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                _read_ending(event["response"], answer)
    return answer


def _read_ending(response: dict[str, Any], answer: Answer) -> None:
    whole = "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )
    assert whole == answer.text
    if response["error"]:
        answer.fail(response["error"]["message"])
        return
    details = response["incomplete_details"] or {}
    answer.ends.append(details.get("reason", response["status"]))
    if response["usage"]:
        answer.usage = response["usage"]["input_tokens"], response["usage"]["output_tokens"]


def read_realtime(raw: Raw) -> Answer:
    """One response of a Realtime session; what stands before it belongs to the session."""
    answer = Answer()
    for event in json_lines(raw.body):
        assert not answer.ends
        match event["type"]:
            case "response.output_text.delta":
                answer.text += event["delta"]
            case "response.function_call_arguments.done":
                answer.calls.append([event["name"], event["arguments"]])
            case "error":
                answer.fail(event["error"]["message"])
            case "response.done":
                response = event["response"]
                details = response["status_details"] or {}
                if response["status"] == "failed":
                    answer.fail(details["error"].get("message", ""))
                else:
                    answer.ends.append(details.get("reason", response["status"]))
                if response["usage"]:
                    answer.usage = response["usage"]["input_tokens"], response["usage"]["output_tokens"]
    return answer


def read_socket(raw: Raw) -> Answer:
    """A turn on `/ws`."""
    answer = Answer()
    for message in json_lines(raw.body):
        assert not answer.ends
        match message["type"]:
            case "text":
                answer.text += message["text"]
            case "reasoning":
                answer.reasoning += message["text"]
            case "tool_call":
                begins = message["index"] == len(answer.calls)
                answer.call(message["index"], message["name"] if begins else "", message["arguments"])
            case "finished":
                answer.ends.append(message["reason"])
                if message["usage"]:
                    answer.usage = message["usage"]["input_tokens"], message["usage"]["output_tokens"]
            case "error":
                answer.fail(message["message"])
    return answer


def read_contents(raw: Raw) -> Answer:
    """ML Commons over REST: frames with `content`; the last one says `is_last`, or is an error."""
    answer = Answer()
    if raw.status != 200:
        answer.fail(json_of(raw)["error"]["reason"])
        return answer
    for _, data in sse(raw.body):
        assert not answer.ends
        frame = json.loads(data)
        if "error" in frame:
            answer.fail(frame["error"])
            continue
        found = frame["inference_results"][0]["output"][0]["dataAsMap"]
        _read_content(found["content"], found["is_last"], answer)
    return answer


def read_messages(raw: Raw) -> Answer:
    """ML Commons over gRPC: messages, then a status."""
    answer = Answer()
    *messages, status = json_lines(raw.body)
    for message in messages:
        assert not answer.ends
        _read_content(message["content"], message["is_last"], answer)
    if status["status"] != "OK":
        assert not answer.ends
        answer.fail(status["details"])
    return answer


def _read_content(content: str, last: bool, answer: Answer) -> None:
    """Tool calls stand in `content` as JSON: pieces as they are written, and all of them whole before the end."""
    if last:
        assert content == ""
        answer.ends.append("end")
    elif content.startswith('[{"index":'):
        [call] = json.loads(content)
        answer.call(call["index"], call["function"].get("name", ""), call["function"]["arguments"])
    elif content.startswith('{"choices":'):
        calls = json.loads(content)["choices"][0]["message"]["tool_calls"]
        whole = [[call["function"]["name"], call["function"]["arguments"]] for call in calls]
        assert whole == [[name, arguments or "{}"] for name, arguments in answer.calls]
    else:
        answer.text += content
