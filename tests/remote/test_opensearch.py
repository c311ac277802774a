"""An OpenSearch cluster's own ways: two request shapes, error frames of three kinds, a fallback without streaming."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import (
    GatewayError,
    NotFound,
    RateLimited,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.events import Finished, FinishReason, Usage
from gateway.request import ChatRequest, Role, Sampling, text_message
from tests.remote.upstreams import (
    EVENT_STREAM,
    HELLO,
    TEXT,
    chat,
    frame,
    outcome,
    provider_for,
    recorded,
    upstream,
)
from tests.upstreams.byte_server import Act, Answer, ByteServer, Request, json_answer

MODEL = "/_plugins/_ml/models/AlI3QZcB-tBcnGSI1JlH"
MESSAGES = (text_message(Role.SYSTEM, "Be brief."), text_message(Role.USER, "안녕?"))
STREAMING_IS_OFF = {
    "error": {
        "root_cause": [],
        "type": "illegal_state_exception",
        "reason": "Streaming is currently disabled. To enable it, update the setting ...",
    },
    "status": 500,
}
NO_ROUTE = {"error": f"no handler found for uri [{MODEL}/_predict/stream] and method [POST]"}


class Cluster:
    """Answers look-ups from `documents`, by the end of their path, and predictions from `stream` and `whole`."""

    def __init__(self, stream: Answer, whole: Answer | None = None, **documents: Any) -> None:
        self.stream = stream
        self.whole = whole or json_answer({}, 404)
        self.documents = documents

    def __call__(self, request: Request) -> Answer:
        if request.method == "POST":
            return self.stream if request.path.endswith("/stream") else self.whole
        kind = "connector" if "/connectors/" in request.path else "model"
        return json_answer(self.documents[kind]) if kind in self.documents else json_answer({}, 404)


async def predict(server: ByteServer, request: ChatRequest, **row: Any) -> tuple[str, Finished | None, Any]:
    provider = provider_for("opensearch", server.url, **row)
    try:
        return await outcome(provider.stream(request))
    finally:
        await provider.aclose()


def whole_answer(response: dict[str, Any]) -> Answer:
    output = [{"name": "response", "dataAsMap": response}]
    return json_answer({"inference_results": [{"output": output, "status_code": 200}]})


async def sent_parameters(request: ChatRequest, **documents: Any) -> dict[str, Any]:
    async with ByteServer(
        {"*": Cluster(Answer([recorded("opensearch")], headers=EVENT_STREAM), **documents)}
    ) as server:
        text, finished, _ = await predict(server, request)
        (post,) = server.received("POST", "/")
    assert (text, finished) == (TEXT, Finished(FinishReason.STOP))
    assert post.path == f"{MODEL}/_predict/stream"
    # The cluster parses every HTTP chunk of a request by itself.
    assert "transfer-encoding" not in post.headers
    assert post.headers["content-type"] == "application/json"
    assert post.headers["authorization"].startswith("Basic ")
    parameters: dict[str, Any] = post.json["parameters"]
    return parameters


async def test_messages_go_to_a_model_behind_an_http_connector() -> None:
    request = chat("opensearch", messages=MESSAGES, sampling=Sampling(max_tokens=9, temperature=0.0, stop=("END",)))
    parameters = await sent_parameters(request, model={"connector": {"protocol": "http"}})
    assert parameters == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "안녕?"}],
        "max_tokens": 9,
        "temperature": 0.0,
        "stop": ["END"],
        "_llm_interface": "openai/v1/chat/completions",
    }


async def test_one_text_goes_to_a_model_behind_a_bedrock_connector() -> None:
    parameters = await sent_parameters(
        chat("opensearch", messages=MESSAGES), model={"connector_id": "c1"}, connector={"protocol": "aws_sigv4"}
    )
    assert parameters == {"inputs": "Be brief.\n\n안녕?", "_llm_interface": "bedrock/converse/claude"}


@pytest.mark.parametrize("model", [None, {}, {"connector_id": "gone"}, {"connector": {"protocol": 1}}])
async def test_a_cluster_that_tells_nothing_is_sent_messages(model: dict[str, Any] | None) -> None:
    documents = {} if model is None else {"model": model}
    parameters = await sent_parameters(chat("opensearch"), **documents)
    assert parameters["_llm_interface"] == "openai/v1/chat/completions"
    assert "messages" in parameters


async def test_the_connectors_own_interface_goes_before_its_protocol() -> None:
    connector = {"protocol": "http", "parameters": {"_llm_interface": "bedrock/converse/claude"}}
    assert "inputs" in await sent_parameters(chat("opensearch"), model={"connector": connector})


async def test_the_callers_interface_and_parameters_pass_but_never_stream() -> None:
    extra = {"_llm_interface": "bedrock/converse/claude", "stream": True, "guard": "on"}
    parameters = await sent_parameters(chat("opensearch", extra=extra), model={"connector": {"protocol": "http"}})
    assert parameters == {"inputs": "Hi", "guard": "on", "_llm_interface": "bedrock/converse/claude"}


async def test_the_interface_is_looked_up_once() -> None:
    cluster = Cluster(Answer([recorded("opensearch")], headers=EVENT_STREAM), model={"connector": {"protocol": "http"}})
    async with ByteServer({"*": cluster}) as server:
        provider = provider_for("opensearch", server.url)
        for _ in range(3):
            await outcome(provider.stream(chat("opensearch")))
        await provider.aclose()
        assert len(server.received("GET", MODEL)) == 1


@pytest.mark.parametrize("model", ["..", "../_search", "a/b", "", "a?x=1", "%2e%2e"])
async def test_what_is_no_id_is_not_asked_for(model: str) -> None:
    async with ByteServer({"*": Cluster(Answer())}) as server:
        _, _, error = await predict(server, chat("opensearch", model=model))
        assert server.requests == []
    assert isinstance(error, NotFound)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"error": "Error from remote service: bad key"}', "Error from remote service: bad key"),
        (b'{"error": "say \\"no\\"\there"}', 'say "no"\there'),
        (b'{"error": "nested \\\\"quotes\\\\" end"}', 'nested \\\\"quotes\\\\" end'),
        (b'{"error": "{\\"error\\": {\\"message\\": \\"no\\"}}"}', '{"error": {"message": "no"}}'),
        (b'{"error": "Request failed"}', "Request failed"),
    ],
)
async def test_an_error_frame_is_an_error_even_if_it_is_no_json(payload: bytes, said: str) -> None:
    body = frame("a") + b"data: " + payload + b"\n\n"
    async with upstream("opensearch", Answer([body], headers=EVENT_STREAM)) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, finished) == ("a", None)
    assert type(error) is UpstreamError
    assert said in error.message


@pytest.mark.parametrize("pieces", [1, 7, 1000])
async def test_an_error_object_without_data_is_an_error(pieces: int) -> None:
    body = b'{"error":{"root_cause":[],"type":"status_exception","reason":"Request is throttled"},"status":429}'
    cut = [body[at : at + pieces] for at in range(0, len(body), pieces)]
    async with upstream("opensearch", Answer(cut, headers=EVENT_STREAM)) as remote:
        _, _, error = await outcome(remote.events())
    assert isinstance(error, RateLimited)
    assert "throttled" in error.message


@pytest.mark.parametrize(
    "payload", [b"data: {}", b"data: nonsense", b"data: []", b"{", b"", b"data: " + b"[" * 9999, b'data: {"error": ""}']
)
async def test_what_is_no_prediction_is_no_success(payload: bytes) -> None:
    async with upstream("opensearch", Answer([payload + b"\n\n"], headers=EVENT_STREAM)) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, finished) == ("", None)
    assert isinstance(error, UpstreamError)


async def test_text_in_the_last_frame_counts_and_nothing_after_it() -> None:
    body = frame("a") + frame("b", last=True) + frame("c") + b'data: {"error": "late"}\n\n'
    async with upstream("opensearch", Answer([body], headers=EVENT_STREAM)) as remote:
        text, finished, _ = await outcome(remote.events())
    assert (text, finished) == ("ab", Finished(FinishReason.STOP))


async def test_the_output_named_response_is_the_text() -> None:
    other = b'{"name":"memory_id","result":"x"},{"name":"token_usage","dataAsMap":{"content":"no"}},'
    body = recorded("opensearch").replace(b'"output":[', b'"output":[' + other)
    async with upstream("opensearch", Answer([body], headers=EVENT_STREAM)) as remote:
        text, _, error = await outcome(remote.events())
    assert (text, error) == (TEXT, None)


async def test_silence_in_the_middle_has_a_bound_of_its_own() -> None:
    stalled = Answer([frame("a"), Act.HANG], headers=EVENT_STREAM)
    async with ByteServer({"*": Cluster(stalled)}) as server:
        text, finished, error = await predict(server, chat("opensearch"), idle_seconds=0.05)
        (request,) = server.received("POST", "/stream")
        assert request.gone.is_set() or await request.gone.wait()
    assert (text, finished) == ("a", None)
    assert isinstance(error, UpstreamTimeout)


OPENAI_ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": TEXT}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5},
}
CONVERSE_ANSWER = {
    "output": {"message": {"content": [{"text": piece} for piece in HELLO]}},
    "stopReason": "max_tokens",
    "usage": {"inputTokens": 3, "outputTokens": 5},
}
COUNTED = Finished(FinishReason.LENGTH, Usage(input_tokens=3, output_tokens=5))


@pytest.mark.parametrize(
    "off", [json_answer(STREAMING_IS_OFF, 500), json_answer(NO_ROUTE, 400), json_answer({"error": "no"}, 405)]
)
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (OPENAI_ANSWER, COUNTED),
        (CONVERSE_ANSWER, COUNTED),
        ({"response": TEXT}, Finished(FinishReason.STOP)),
        ({"response": list(HELLO)}, Finished(FinishReason.STOP)),
    ],
)
async def test_a_cluster_without_streaming_gives_its_whole_answer(
    off: Answer, response: dict[str, Any], expected: Finished
) -> None:
    async with ByteServer({"*": Cluster(off, whole_answer(response))}) as server:
        text, finished, error = await predict(server, chat("opensearch"))
        first, second = server.received("POST", "/")
    assert (text, finished, error) == (TEXT, expected, None)
    assert (first.json, second.path) == (second.json, f"{MODEL}/_predict")


@pytest.mark.parametrize(
    "whole",
    [
        whole_answer({"something": "else"}),
        whole_answer({"choices": [{"message": {"content": "a"}}]}),
        json_answer({}),
        json_answer([]),
        json_answer({"error": "no", "status": 200}),
    ],
)
async def test_a_whole_answer_without_an_end_or_text_is_no_success(whole: Answer) -> None:
    async with ByteServer({"*": Cluster(json_answer(STREAMING_IS_OFF, 500), whole)}) as server:
        _, finished, error = await predict(server, chat("opensearch"))
    assert finished is None
    assert isinstance(error, UpstreamError)


async def test_a_failure_of_the_whole_answer_keeps_its_status() -> None:
    refused = json_answer(
        {"error": {"type": "status_exception", "reason": "Error from remote service: slow down"}, "status": 429}, 429
    )
    async with ByteServer({"*": Cluster(json_answer(STREAMING_IS_OFF, 500), refused)}) as server:
        _, _, error = await predict(server, chat("opensearch"))
    assert isinstance(error, RateLimited)


@pytest.mark.parametrize(
    ("error_type", "reason", "code"),
    [
        ("security_exception", "no permissions for [cluster:admin/x]", "provider_credentials"),
        ("status_exception", "Model is disabled.", "upstream_error"),
    ],
)
async def test_a_disabled_model_is_not_blamed_on_the_credentials(error_type: str, reason: str, code: str) -> None:
    answer = json_answer({"error": {"type": error_type, "reason": reason}, "status": 403}, 403)
    async with ByteServer({"*": Cluster(answer)}) as server:
        _, _, error = await predict(server, chat("opensearch"))
    assert isinstance(error, UpstreamError)
    assert error.code == code
    assert ("disabled" in error.message) == (code == "upstream_error")


def test_a_row_with_an_empty_variable_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMOTE_KEY")
    with pytest.raises(GatewayError, match="REMOTE_KEY"):
        provider_for("opensearch", "http://127.0.0.1:9")
