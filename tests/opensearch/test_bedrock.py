"""Registered Bedrock models: where they are asked, how they are signed, what of the template arrives."""

from __future__ import annotations

import json

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.opensearch.cluster import BEDROCK, Cluster, as_json, bedrock_connector, contents, data_map, frames, reason
from tests.upstreams.aws_fake import CONVERSE_TEXT, CONVERSE_TOOLS, exception, refusal, stream, text_delta
from tests.upstreams.byte_server import Request, serving
from tests.upstreams.cutting import one_byte_each

ASKED = {"inputs": "Hi", "_llm_interface": BEDROCK}
PIECES = ["Hello ", "안녕", "하세요", " 👋🏽"]


def signature(request: Request, url: str) -> str:
    """The Authorization header that AWS would compute for what was received."""
    names = request.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = {
        name: request.headers[name] for name in names if name not in ("host", "x-amz-date", "x-amz-security-token")
    }
    aws = AWSRequest("POST", url + request.path, data=request.body, headers=signed)
    aws.context["timestamp"] = request.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDCANARY", "canary/secret", "canary+token"), "bedrock", "us-east-1")
    aws.headers["X-Amz-Date"] = request.headers["x-amz-date"]
    aws.headers["X-Amz-Security-Token"] = "canary+token"
    text = signer.string_to_sign(aws, signer.canonical_request(aws))
    return str(signer.signature(text, aws))


async def test_a_bedrock_model_streams_and_its_inference_config_is_honoured_case_34(cluster: Cluster) -> None:
    async with serving(stream(*one_byte_each(b"".join(CONVERSE_TEXT)))) as remote:
        answer = await cluster.stream(await cluster.register(bedrock_connector(remote.url)), ASKED)
        assert contents(answer.content) == PIECES
        (request,) = remote.requests
        assert request.path == "/model/us.anthropic.claude-3%3A0/converse-stream"
        assert json.loads(request.body) == {
            "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
            "inferenceConfig": {"maxTokens": 7, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        }
        assert request.headers["authorization"].endswith(f"Signature={signature(request, remote.url)}")
        assert request.headers["x-amz-security-token"] == "canary+token"


async def test_predict_goes_to_converse_and_gives_its_json(cluster: Cluster) -> None:
    whole = {"output": {"message": {"content": [{"text": "Hi"}]}}, "stopReason": "end_turn"}
    async with serving(as_json(whole)) as remote:
        path = {"response_filter": "$.output.message.content[0].text"}
        connector = bedrock_connector(remote.url)
        connector["parameters"] |= path
        answer = await cluster.predict(await cluster.register(connector), {"inputs": "Hi"})
        assert answer.json()["inference_results"][0]["output"][0]["dataAsMap"] == {"response": "Hi"}
        assert remote.requests[0].path.endswith("/converse")
        assert "AWS4-HMAC-SHA256" in remote.requests[0].headers["authorization"]


async def test_tool_calls_of_bedrock_look_like_openais_case_37(cluster: Cluster) -> None:
    async with serving(stream(*CONVERSE_TOOLS)) as remote:
        answer = await cluster.stream(await cluster.register(bedrock_connector(remote.url)), ASKED)
        whole = json.loads(contents(answer.content)[-1])["choices"][0]["message"]["tool_calls"]
        assert [(call["function"]["name"], call["function"]["arguments"]) for call in whole] == [
            ("get_weather", '{"city": "Seoul"}'),
            ("get_time", "{}"),
        ]


async def test_a_bad_token_stays_403_without_the_key(cluster: Cluster) -> None:
    body = {"message": "The security token canary+token is invalid."}
    async with serving(refusal(403, "UnrecognizedClientException", body)) as remote:
        answer = await cluster.stream(await cluster.register(bedrock_connector(remote.url)), ASKED)
        assert reason(answer)[:2] == (403, "status_exception")
        assert "canary" not in answer.text


@pytest.mark.parametrize("cut", [True, False])
async def test_a_bedrock_stream_that_breaks_off_is_an_error_frame(cluster: Cluster, cut: bool) -> None:
    end = [] if cut else [exception("throttlingException", {"message": "Too many tokens."})]
    async with serving(stream(*CONVERSE_TEXT[:1], text_delta("Hi"), *end)) as remote:
        answer = await cluster.stream(await cluster.register(bedrock_connector(remote.url)), ASKED)
        text, failure = frames(answer.content)
        assert data_map(text)["content"] == "Hi"
        assert list(failure) == ["error"]


async def test_messages_do_not_fit_a_template_of_inputs(cluster: Cluster) -> None:
    async with serving(stream(*CONVERSE_TEXT)) as remote:
        parameters = {"messages": [{"role": "user", "content": "Hi"}], "_llm_interface": BEDROCK}
        answer = await cluster.stream(await cluster.register(bedrock_connector(remote.url)), parameters)
        words = "Some parameter placeholder not filled in payload: inputs"
        assert reason(answer) == (400, "illegal_argument_exception", words)
        assert remote.requests == []
