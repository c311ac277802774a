"""docs/websocket.asyncapi.yaml is true: valid, the code's own schemas, each sample accepted, each answer as it says."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, get_args

import jsonschema_rs
import pytest
import yaml

from gateway.events import FinishReason
from tests.javascript import install, run_node
from tests.running import ROOT, Service
from tests.sockets import LAST, Heard, socket
from wires.websocket.messages import FORMATS, ClientMessage

PATH = ROOT / "docs" / "websocket.asyncapi.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(PATH.read_text("utf-8"))
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
PROSE = frozenset({"title", "description", "examples", "$defs"})
AUDIO = bytes(4_800)


def names(references: list[dict[str, str]]) -> list[str]:
    """The messages that an operation refers to."""
    return [reference["$ref"].rsplit("/", 1)[1] for reference in references]


def replies(operation: dict[str, Any]) -> list[str]:
    return names(operation["reply"]["messages"]) if "reply" in operation else []


OPERATIONS: dict[str, dict[str, Any]] = DOCUMENT["operations"]
RECEIVED = {name: operation for name, operation in OPERATIONS.items() if operation["action"] == "receive"}
SAID = {message for operation in RECEIVED.values() for message in names(operation["messages"])}
ANSWERED = {message for operation in RECEIVED.values() for message in replies(operation)}


def test_the_official_parser_finds_nothing_wrong() -> None:
    install()
    found = run_node("asyncapi.mjs", str(PATH))
    assert found["problems"] == []
    assert set(found["messages"]) == set(MESSAGES) == SAID | ANSWERED


def test_the_clients_messages_are_those_of_the_code() -> None:
    models = {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(ClientMessage)}
    assert set(models) == SAID - {"microphone", "bare"}
    for kind, model in models.items():
        schema = model.model_json_schema()
        assert plain(MESSAGES[kind]["payload"], DOCUMENT) == plain(schema, schema), kind


def test_the_services_messages_are_those_of_the_code() -> None:
    assert set(kinds_in_the_code()) == ANSWERED - {"sound"}
    for kind in ANSWERED - {"sound"}:
        assert plain(MESSAGES[kind]["payload"], DOCUMENT)["properties"]["type"]["const"] == kind


def test_reasons_and_formats_are_those_of_the_code() -> None:
    assert SCHEMAS["Finished"]["properties"]["reason"]["enum"] == list(FinishReason)
    assert SCHEMAS["FormatName"]["enum"] == list(FORMATS)
    assert SCHEMAS["Encoding"]["enum"] == list(dict.fromkeys(FORMATS.values()))


async def test_every_sample_is_accepted_and_answered_as_the_document_says(service: Service) -> None:
    async with socket(service, subprotocols=["polywire.v1"]) as client:
        for name, operation in RECEIVED.items():
            said = [samples(message) for message in names(operation["messages"])]
            # The messages of one operation together are a turn; of one message, each sample is.
            for turn in ([sample] for sample in said[0]) if len(said) == 1 else [list(chain(*said))]:
                for sample in turn:
                    await client.connection.send(sample)
                answers = replies(operation)
                if set(answers).isdisjoint(LAST):
                    continue
                heard = Heard()
                # A bare text is answered by sound alone, whose end is not announced.
                while not (heard.messages and heard.kinds[-1] in LAST) and not (name == "bare" and heard.frames):
                    await client.hear_one(heard)
                check(heard, answers, turn)
                assert "error" not in heard.kinds, heard.last


@pytest.mark.parametrize("model", ["reasoning", "tools", "length", "fails-first", "fails-midway", "nope"])
async def test_every_kind_of_answer_is_as_the_document_says(service: Service, model: str) -> None:
    async with socket(service) as client:
        check(await client.ask(type="chat", text="hi", model=model, speak=True), replies(RECEIVED["chat"]), model)


async def test_a_refusal_and_a_cancelled_turn_are_as_the_document_says(service: Service) -> None:
    async with socket(service) as client:
        check(await client.ask(type="shout"), ["error"], "shout")
        await client.say(type="chat", id="c", text="hi", model="silent")
        check(await client.ask(type="cancel", id="c"), replies(RECEIVED["cancel"]), "cancel")


def check(heard: Heard, allowed: list[str], said: object) -> None:
    """Each message is one of `allowed` and fits its schema; no frame of audio came unannounced."""
    assert set(heard.kinds) <= set(allowed), said
    assert not heard.frames or "sound" in allowed, said
    for message in heard.messages:
        payload = MESSAGES[message["type"]]["payload"]
        jsonschema_rs.validate(
            {**payload, "components": DOCUMENT["components"]}, message, draft=jsonschema_rs.Draft201909
        )


def samples(message: str) -> list[str | bytes]:
    """The message's examples as they go over the wire."""
    if message == "microphone":
        return [AUDIO]
    payloads = [example["payload"] for example in MESSAGES[message]["examples"]]
    return [payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads]


def plain(schema: Any, root: dict[str, Any]) -> Any:
    """The schema without its prose, with its references followed and what null would mean left out."""
    if isinstance(schema, list):
        return [plain(part, root) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return plain(resolved(schema["$ref"], root), root)
    if schema.get("enum") == list(FORMATS):
        # The code takes any text, to say in its own words which there are.
        return {"type": "string"}
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        rest = [part for part in schema["anyOf"] if part != {"type": "null"}]
        return plain(rest[0] if len(rest) == 1 else {"anyOf": rest}, root)
    kept = {key: value for key, value in schema.items() if key not in PROSE and value is not None}
    return {
        key: {name: plain(part, root) for name, part in value.items()} if key == "properties" else plain(value, root)
        for key, value in kept.items()
    }


def resolved(reference: str, root: dict[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def kinds_in_the_code() -> Iterator[str]:
    """The `type` of every JSON object that the wire's modules write."""
    for path in (ROOT / "wires" / "websocket").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "type" and isinstance(value, ast.Constant):
                        yield str(value.value)
