"""The Replicate wire with the official Python client, replicate 1.0.7."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from replicate.client import Client
from replicate.exceptions import ModelError, ReplicateError

from tests.predictions.conftest import KEY
from tests.running import Service

STORY = "Once upon a time 옛날옛적에 👩‍👩‍👧"
PROMPT = {"prompt": "Tell me a story"}
RARE = re.compile("[\u2028\u2029\x85\v]")


@pytest.fixture
def client(cluster: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("REPLICATE_POLL_INTERVAL", "0.05")
    client = Client(api_token=KEY, base_url=cluster.url)
    client.poll_interval = 0.05
    yield client
    client._client.close()


def version_of(client: Client, name: str) -> str:
    model = client.models.get(name)
    assert model.latest_version is not None
    return f"{name}:{model.latest_version.id}"


def test_stream_by_model_and_by_version(client: Client) -> None:
    for reference in ("test/story", version_of(client, "test/story")):
        assert "".join(str(event) for event in client.stream(reference, input=PROMPT)) == STORY


def test_the_call_of_the_documentation_configured_by_the_environment(cluster: Service) -> None:
    """Mission row 72, in its valid form."""
    script = (
        "import replicate\n"
        "for event in replicate.stream('test/story', input={'prompt': 'Tell me a story'}): print(str(event), end='')"
    )
    variables = {"REPLICATE_BASE_URL": cluster.url, "REPLICATE_API_TOKEN": KEY, "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, check=True, timeout=30)
    assert done.stdout.decode() == STORY


@pytest.mark.parametrize("suffix", ["", "/v1"])
def test_a_base_url_with_v1_works_as_well(cluster: Service, suffix: str) -> None:
    client = Client(api_token=KEY, base_url=cluster.url + suffix)
    assert client.run("test/story", input=PROMPT) == ["Once", " upon a time", " 옛날옛적에 👩‍👩‍👧"]
    client._client.close()


def test_run_gives_the_complete_text_though_it_waits_too_short(client: Client) -> None:
    """Trap 1, in both forms of a reference."""
    assert client.run("test/slow", input=PROMPT, wait=1) == ["A", "B", "C", "D"]
    assert list(client.run(version_of(client, "test/slow"), input=PROMPT, wait=1)) == ["A", "B", "C", "D"]


def test_run_that_polls_yields_every_piece(client: Client) -> None:
    assert list(client.run(version_of(client, "test/slow"), input=PROMPT, wait=False)) == ["A", "B", "C", "D"]


async def test_the_asynchronous_calls(cluster: Service) -> None:
    client = Client(api_token=KEY, base_url=cluster.url)
    streams = [await client.async_stream("test/story", input=PROMPT) for _ in range(3)]

    async def read(stream: Any) -> str:
        return "".join([str(event) async for event in stream])

    assert await asyncio.gather(*(read(stream) for stream in streams)) == [STORY] * 3
    output: Any = await client.async_run("test/story", input=PROMPT)
    assert "".join(output) == STORY
    await client._async_client.aclose()


def test_a_failure_is_raised(client: Client) -> None:
    """Trap 2: also before the first text, where a stream without ids would be empty and silent."""
    for model in ("test/fails-first", "test/fails-midway"):
        with pytest.raises(RuntimeError, match="detail"):
            list(client.stream(model, input=PROMPT))
    with pytest.raises(ModelError, match="It broke"):
        client.run("test/fails-midway", input=PROMPT)


def test_cancel_stops_the_stream_and_updates_the_prediction(client: Client) -> None:
    prediction = client.models.predictions.create("test/hangs", input=PROMPT, stream=True)
    events = prediction.stream()
    assert str(next(events)) == "Begun"
    prediction.cancel()
    assert prediction.status == "canceled"
    last = list(events)[-1]
    assert (last.event.value, last.data) == ("done", '{"reason": "canceled"}')
    again = client.predictions.cancel(prediction.id)
    assert again.status == "canceled"


def test_newlines_and_links_arrive_and_rare_separators_cost_only_themselves(client: Client) -> None:
    """Case S5; traps 4 and 6."""
    assert "".join(str(event) for event in client.stream("test/lines", input=PROMPT)) == "a\n\n\nb\nc d\ne"
    assert "".join(str(event) for event in client.stream("test/links", input=PROMPT)) == (
        "https://example.org/ and data:x"
    )
    text = "".join(str(event) for event in client.stream("test/separators", input=PROMPT))
    assert text == RARE.sub("", "one\u2028two\u2029three\u0085four\vfive \u2028six")


def test_every_status_passes_the_clients_own_model(client: Client) -> None:
    """Trap 9."""
    made = client.models.predictions.create("test/hangs", input=PROMPT)
    seen = {made.status, client.predictions.get(made.id).status, client.predictions.cancel(made.id).status}
    for model in ("test/story", "test/fails-first"):
        prediction = client.models.predictions.create(model, input=PROMPT)
        prediction.wait()
        seen.add(prediction.status)
    assert seen >= {"starting", "processing", "canceled", "succeeded", "failed"}
    assert made.id in {prediction.id for prediction in client.predictions.list()}


def test_models_versions_and_deployments(client: Client) -> None:
    model = client.models.get("test/story")
    assert [version.id for version in model.versions.list()] == [model.latest_version.id]  # type: ignore[union-attr]  # it is there
    made = client.deployments.predictions.create(("test", "story"), input=PROMPT)
    made.wait()
    assert "".join(made.output or ()) == STORY


def test_a_voice_gives_a_file(client: Client) -> None:
    output: Any = client.run("test/voice", input={"text": "Hello there"})
    audio = output.read()
    assert audio[:4] == b"RIFF"
    assert int.from_bytes(audio[4:8], "little") == len(audio) - 8


def test_refusals_are_the_clients_own_errors(client: Client) -> None:
    with pytest.raises(ReplicateError) as missing:
        client.run("nobody/nothing", input=PROMPT)
    assert missing.value.status == 404
    with pytest.raises(ReplicateError) as wrong:
        client.run("test/story", input={"prompt": "hi", "temperature": "hot"})
    assert wrong.value.status == 422
    assert "input.temperature" in (wrong.value.detail or "")
    stranger = Client(api_token="wrong", base_url=client._base_url)
    with pytest.raises(ReplicateError) as refused:
        stranger.run("test/story", input=PROMPT)
    assert refused.value.status == 401
    stranger._client.close()
